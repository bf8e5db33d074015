"""`accelerate`: faster passes for the recurrent layers of torch inside any module.

A module stays the same object, with the same parameters; only its class changes, to a subclass of
`nn.LSTM`, `nn.GRU` or `nn.RNN` whose `forward` selects the fastest way for every call:

- A sequence of one step is one call of torch's step function.
- A `PackedSequence` is padded and computed in one pass; torch's own loop over its steps takes many
  times as long. Batches of very unequal lengths are split into groups of similar lengths.
- GRUs, Elman networks and LSTMs with projections use the kernels of this library where they are
  faster (`kernel_is_faster`). oneDNN is faster for padded LSTMs in float32, so they stay there.
- Transforms of `torch.func`, forward-mode differentiation and `plain_loops` get a plain loop.
- Everything else is torch's own `forward`: other devices and types, subclasses of tensors,
  autocast, `torch.compile`, `torch.export`, tracing, and every argument that torch refuses.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrize import is_parametrized
from torch.nn.utils.rnn import PackedSequence

from undamped._base.errors import OptionError
from undamped._base.torch_internals import flat_weights, is_observed, is_tracing
from undamped.kernels.dispatch import use_plain_loops
from undamped.nn.bases.cell import ScanResult, State
from undamped.nn.lstm import GRUCell, LSTMCell
from undamped.nn.rnn import RNNCell
from undamped.nn.sequence_tensors import join_features, padding_mask, reverse_time
from undamped.nn.torch_like import TorchCell, kernel_scan

GROUP_ROWS = 8
"""Sequences whose steps cost as much as another pass over the same number of steps."""


class Sizes(NamedTuple):
    """What the fastest way depends on."""

    steps: int
    batch: int
    hidden: int
    training: bool
    """Whether a gradient will be computed."""


def kernel_is_faster(kind: str, dtype: torch.dtype, sizes: Sizes) -> bool:
    """Return whether the kernels of this library are faster than torch's loop over all steps.

    The limits are the borders of `undamped bench accelerate`: the kernels win where the number of
    steps counts and not the size of a product, and in float64 tanh is slow in them.

    Args:
        kind: "lstm" (with a projection, or in float64), "gru" or "rnn".
        dtype: Type of the numbers.
        sizes: Sizes of the pass.
    """
    steps, batch, hidden, training = sizes
    if dtype == torch.float64:
        return steps >= 64 and batch * hidden <= (256 if training else 16)
    if steps < 16:
        return False
    if kind == "rnn":
        return steps >= 64
    if not training:
        return steps >= 32 and hidden <= (128 if steps >= 64 else 64)
    return batch * hidden**2 <= (1 << 18 if steps < 64 else 1 << 19)


class Accelerated(nn.RNNBase):
    """The part that the accelerated classes share."""

    torch_class: ClassVar[type[nn.RNNBase]]
    cell_class: ClassVar[type[TorchCell]]
    kind: ClassVar[str]

    def forward(self, input: Any, hx: Any = None) -> Any:  # type: ignore[override]
        """Return what torch's `forward` returns, computed in the fastest way."""
        if isinstance(input, torch.fx.Proxy):  # this is no class that fx does not look into
            tracer: Any = input.tracer
            return tracer.create_proxy("call_module", tracer.path_of_module(self), (input, hx), {})
        way = self.way(input, hx)
        if way == "torch":
            return super().forward(input, hx)
        if isinstance(input, PackedSequence):
            return self._packed(input, hx)
        batched = input.dim() == 3
        x = input if batched else input.unsqueeze(1)
        if batched and self.batch_first:
            x = x.transpose(0, 1)
        states = self._split(hx if batched else _map(hx, lambda part: part.unsqueeze(1)), x)
        if way == "step":
            output, finals = self._step(x[0], states)
            output = output.unsqueeze(0)
        else:
            output, finals = self._run(x, states, self._weights(), None, None)
            if output.requires_grad and not self.bidirectional:
                output = output.clone()  # what kernels return must not be changed in place
        final = self._join(finals)
        if not batched:
            return output.squeeze(1), _map(final, lambda part: part.squeeze(1))
        return output.transpose(0, 1) if self.batch_first else output, final

    def __prepare_scriptable__(self) -> nn.Module:
        """Return the layer of torch, which `torch.jit.script` puts in place of this one."""
        layer = copy.copy(self)
        restore(layer)
        return layer

    # What runs

    def way(self, input: Any, hx: Any = None) -> str:
        """Return how a call is computed: "torch", "step", "scan" or "packed"."""
        packed = isinstance(input, PackedSequence)
        x: Any = input.data if packed else input
        if torch.compiler.is_compiling() or is_tracing():
            return "torch"
        if not isinstance(x, Tensor) or x.dim() < 2:
            return "torch"
        plain = use_plain_loops()
        if is_observed() and not plain:  # by what would not see the kernels
            return "torch"
        if packed:
            steps, batch = len(input.batch_sizes), int(input.batch_sizes[0])
        else:
            steps, batch = self._steps_and_batch(x)
            if not plain and self._certainly_torch(x.dtype, steps):
                return "torch"
        sizes = Sizes(steps, batch, self.hidden_size, self._has_gradient(x))
        if not plain and not self._is_faster(x.dtype, sizes, packed):
            return "torch"
        if not self._fits(x, hx, packed, batch):
            return "torch"
        if packed:
            return "packed"
        return "step" if steps == 1 and not plain else "scan"

    def _certainly_torch(self, dtype: torch.dtype, steps: int) -> bool:
        """Return at once what most calls need: further checks take as long as a short sequence."""
        if self.kind != "lstm":
            return steps < 16
        return steps > 1 and dtype is torch.float32 and not self.proj_size

    def _is_faster(self, dtype: torch.dtype, sizes: Sizes, packed: bool) -> bool:
        """Return whether a pass of this module is faster than torch's own."""
        if self._one_dnn(dtype):
            single = sizes.steps == 1 and not self.bidirectional
            return packed or (single and sizes.batch * sizes.hidden <= 1024)
        if kernel_is_faster(self.kind, dtype, sizes):
            return True
        # The backward pass of torch takes a time proportional to the square of the steps.
        return packed and sizes.training and sizes.steps >= (64 if dtype == torch.float32 else 200)

    def _steps_and_batch(self, x: Tensor) -> tuple[int, int]:
        if x.dim() == 2:
            return x.shape[0], 1
        return (x.shape[1], x.shape[0]) if self.batch_first else (x.shape[0], x.shape[1])

    def _has_gradient(self, x: Tensor) -> bool:
        if not torch.is_grad_enabled():
            return False
        return x.requires_grad or any(tensor.requires_grad for tensor in self._tensors())

    def _tensors(self) -> list[Any]:
        """Return the weights without a further pass of their parametrisations, which may count."""
        return list(self.parameters()) if is_parametrized(self) else flat_weights(self)

    def _fits(self, x: Tensor, hx: Any, packed: bool, batch: int) -> bool:
        """Return whether tensors have the types and shapes that torch's `forward` requires."""
        dims = x.dim()
        if x.dtype not in (torch.float32, torch.float64) or x.shape[-1:] != (self.input_size,):
            return False
        if dims not in ((2,) if packed else (2, 3)) or not x.numel():
            return False
        if torch.is_autocast_enabled("cpu"):
            return False
        parts = [] if hx is None else list(hx) if isinstance(hx, tuple | list) else [hx]
        if len(parts) not in (0, self._parts):
            return False
        batched = packed or dims == 3
        for part, shape in zip(parts, self._state_shapes(batch), strict=False):
            fitting = shape if batched else (shape[0], shape[2])
            if not isinstance(part, Tensor) or part.shape != fitting:
                return False
        tensors = [x, *parts, *self._tensors()]
        return all(
            type(t) in (Tensor, nn.Parameter) and t.dtype == x.dtype and t.device.type == "cpu"
            for t in tensors
        )

    @property
    def _parts(self) -> int:
        return len(self.cell_class.state_names)

    def _one_dnn(self, dtype: torch.dtype) -> bool:
        """Return whether torch computes a padded sequence in one call of oneDNN."""
        if self.kind != "lstm" or self.proj_size or dtype != torch.float32:
            return False
        return torch.backends.mkldnn.is_available() and bool(torch.backends.mkldnn.enabled)

    # States

    def _state_shapes(self, batch: int) -> list[tuple[int, int, int]]:
        cells = self.num_layers * (2 if self.bidirectional else 1)
        widths = (self.proj_size or self.hidden_size, self.hidden_size)[: self._parts]
        return [(cells, batch, width) for width in widths]

    def _split(self, hx: Any, x: Tensor) -> list[State]:
        """Return the first state of every layer and direction; zeros by default."""
        if hx is None:
            parts = [x.new_zeros(shape) for shape in self._state_shapes(x.shape[1])]
        else:
            parts = [hx] if isinstance(hx, Tensor) else list(hx)
        return list(zip(*(part.unbind(0) for part in parts), strict=True))

    def _join(self, finals: list[State]) -> Tensor | State:
        joined = tuple(torch.stack(parts) for parts in zip(*finals, strict=True))
        return joined[0] if self._parts == 1 else joined

    # Passes

    def _weights(self) -> list[list[Tensor | None]]:
        """Return the tensors of every layer and direction: matrices, biases, and the projection.

        They are read where torch's own `forward` reads them, so that tensors which
        `functional_call` or `weight_norm` put there are used.
        """
        count = (4 if self.bias else 2) + (self.proj_size > 0)
        flat, rows = flat_weights(self), []
        for start in range(0, len(flat), count):
            part = flat[start : start + count]
            biases = part[2:4] if self.bias else [None, None]
            rows.append([*part[:2], *biases, *(part[-1:] if self.proj_size else [])])
        return rows

    def _cell(self, weights: list[Tensor | None]) -> TorchCell:
        """Return a cell of this library that holds tensors of this module, and nothing else."""
        cell = self.cell_class.__new__(self.cell_class)
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
        vars(cell).update(zip(names, weights, strict=False))
        options = {"hidden_size": self.hidden_size, "training": self.training}
        if self.kind == "lstm":
            options |= {"h_detach": 0.0, "proj_size": self.proj_size}
        if self.kind == "rnn":
            kind: Any = self.nonlinearity
            options |= {"nonlinearity": kind, "torch_kernel": f"rnn_{kind}"}
        vars(cell).update(options)
        return cell

    def _step(self, x: Tensor, states: list[State]) -> tuple[Tensor, list[State]]:
        """Make one step through all layers, by torch's function of one step."""
        function, finals = self._step_function(), []
        for weights, state in zip(self._weights(), states, strict=True):
            result = function(x, state if self._parts > 1 else state[0], *weights)
            finals.append(result if isinstance(result, tuple) else (result,))
            x = finals[-1][0]
            if self.dropout and self.training and len(finals) < self.num_layers:
                x = F.dropout(x, self.dropout)
        return x, finals

    def _step_function(self) -> Any:
        name = f"rnn_{self.nonlinearity}" if self.kind == "rnn" else self.kind
        return getattr(torch, f"{name}_cell")

    def _run(
        self,
        x: Tensor,
        states: list[State],
        every: list[list[Tensor | None]],
        lengths: Tensor | None,
        masks: list[Tensor] | None,
    ) -> tuple[Tensor, list[State]]:
        """Run all layers over (time, batch, input), with dropout between them.

        Args:
            x: The input.
            states: The first state of every layer and direction.
            every: The weights of every layer and direction.
            lengths: (batch,) of each sequence; None if all are full.
            masks: Dropout masks between layers; None to draw them as torch does.
        """
        directions, finals = 2 if self.bidirectional else 1, []
        for layer in range(self.num_layers):
            both = []
            for direction in range(directions):
                at = layer * directions + direction
                directed = reverse_time(x, lengths) if direction else x
                output, final = self._scan(directed, states[at], every[at], lengths)
                both.append(reverse_time(output, lengths) if direction else output)
                finals.append(final)
            x = join_features(both)
            if layer < self.num_layers - 1 and self.dropout and self.training:
                x = x * masks[layer] if masks is not None else F.dropout(x, self.dropout)
        return x, finals

    def _scan(
        self, x: Tensor, state: State, weights: list[Tensor | None], lengths: Tensor | None
    ) -> ScanResult:
        """Run one layer in one direction."""
        if not self._one_dnn(x.dtype) or use_plain_loops():
            return self._cell(weights).scan(x, state, lengths)
        if lengths is None:
            return kernel_scan(torch.lstm, x, state, weights, None)
        return _flagged_scan(x, state, weights, lengths)

    # Packed sequences

    def _packed(self, packed: PackedSequence, hx: Any) -> tuple[PackedSequence, Any]:
        """Run over padded sequences, group by group; return the results packed and in order."""
        sizes, order = packed.batch_sizes, packed.sorted_indices
        steps, batch = len(sizes), int(sizes[0])
        rows = torch.arange(batch, device=sizes.device)
        running = rows < sizes.unsqueeze(1)  # (time, batch)
        at = running.flatten().nonzero().squeeze(1)
        lengths = running.sum(0)

        def padded(data: Tensor) -> Tensor:
            if len(at) == steps * batch:
                return data.view(steps, batch, -1)
            empty = data.new_zeros(steps * batch, data.shape[1])
            return empty.index_copy(0, at, data).view(steps, batch, -1)

        x = padded(packed.data)
        if order is not None:
            hx = _map(hx, lambda part: part.index_select(1, order))
        states, masks = self._split(hx, x), self._packed_masks(packed.data, padded)
        outputs, finals, weights = [], [], self._weights()
        for start, stop in length_groups(lengths.tolist()):
            longest, part = int(lengths[start]), slice(start, stop)
            ragged = lengths[part] if int(lengths[stop - 1]) < longest else None
            initial = [tuple(tensor[part] for tensor in state) for state in states]
            dropout = [mask[:longest, part] for mask in masks]
            output, final = self._run(x[:longest, part], initial, weights, ragged, dropout)
            if longest < steps:  # without which padding would copy
                output = F.pad(output, (0, 0, 0, 0, 0, steps - longest))
            outputs.append(output)
            finals.append(final)
        output = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1)
        final = self._join([_concatenated(parts) for parts in zip(*finals, strict=True)])
        if packed.unsorted_indices is not None:
            final = _map(final, lambda part: part.index_select(1, packed.unsorted_indices))
        data = output.flatten(0, 1)
        data = data.clone() if len(at) == len(data) else data.index_select(0, at)
        return PackedSequence(data, sizes, order, packed.unsorted_indices), final

    def _packed_masks(self, data: Tensor, padded: Any) -> list[Tensor]:
        """Draw the dropout masks between layers in torch's order: of the packed outputs."""
        if not (self.dropout and self.training):
            return []
        width = (self.proj_size or self.hidden_size) * (2 if self.bidirectional else 1)
        ones = data.new_ones(len(data), width)
        return [padded(F.dropout(ones, self.dropout)) for _ in range(self.num_layers - 1)]


def length_groups(lengths: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and the past-the-last sequence of each group of similar lengths.

    A group ends where lengths have halved, if that spares more padding than another pass costs.

    Args:
        lengths: In descending order.
    """
    start = 0
    for i, length in enumerate(lengths):
        longest = lengths[start]
        padding = (longest - length) * (len(lengths) - i)
        if 2 * length <= longest and padding > GROUP_ROWS * length:
            yield start, i
            start = i
    yield start, len(lengths)


def _flagged_scan(
    x: Tensor, state: State, weights: list[Tensor | None], lengths: Tensor
) -> ScanResult:
    """Run one layer of an LSTM over sequences of unequal lengths, in torch's kernel.

    At padding, a further input closes the input gate and opens the forget gate completely, so that
    c does not change: its sigmoids are 0 and 1 in float32, and their slopes are 0. The last h is
    taken from the outputs, which at padding are numbers that nothing reads.
    """
    weight, recurrent, bias, _ = weights
    assert weight is not None and recurrent is not None
    hidden = recurrent.shape[1]
    with torch.no_grad():
        # Larger than what a hidden state, which is below 1, and the biases can add to a gate.
        bound = recurrent.abs().sum(1).max()
        if bias is not None:
            bound = bound + bias.abs().max() + weights[3].abs().max()  # type: ignore[union-attr]
        signs = bound.new_tensor((-1.0, 1.0, 0.0, 0.0))
        flag = (bound + 128) * signs.repeat_interleave(hidden)
    padding = padding_mask(x, lengths).to(x.dtype)
    every = [torch.cat((weight, flag.unsqueeze(1)), dim=1), *weights[1:]]
    source = torch.cat((x, padding), dim=-1)
    output, (_, memory) = kernel_scan(torch.lstm, source, state, every, None)
    return output, (output[lengths - 1, torch.arange(len(lengths), device=x.device)], memory)


def _map(state: Any, function: Any) -> Any:
    if state is None:
        return None
    return function(state) if isinstance(state, Tensor) else tuple(map(function, state))


def _concatenated(parts: tuple[State, ...]) -> State:
    """Join the states of groups of sequences."""
    return tuple(torch.cat(same) for same in zip(*parts, strict=True))


class AcceleratedLSTM(Accelerated, nn.LSTM):
    """An `nn.LSTM` with the passes of this module."""

    torch_class, cell_class, kind = nn.LSTM, LSTMCell, "lstm"


class AcceleratedGRU(Accelerated, nn.GRU):
    """An `nn.GRU` with the passes of this module."""

    torch_class, cell_class, kind = nn.GRU, GRUCell, "gru"


class AcceleratedRNN(Accelerated, nn.RNN):
    """An `nn.RNN` with the passes of this module."""

    torch_class, cell_class, kind = nn.RNN, RNNCell, "rnn"


CLASSES: dict[type[nn.Module], type[Accelerated]] = {
    kind.torch_class: kind for kind in (AcceleratedLSTM, AcceleratedGRU, AcceleratedRNN)
}


@dataclass(frozen=True)
class Acceleration:
    """What `accelerate` changed in a model.

    Args:
        replaced: Names of modules, and their class; the model itself has the name "".
        left: Names of recurrent modules that were not changed, and why.
    """

    replaced: dict[str, str]
    left: dict[str, str]

    def __str__(self) -> str:
        lines = [
            f"{name or '(the model)'}: accelerated {kind}" for name, kind in self.replaced.items()
        ]
        lines += [f"{name or '(the model)'}: left, {why}" for name, why in self.left.items()]
        return "\n".join(lines) or "The model contains no recurrent layer of torch."


def accelerate(model: nn.Module) -> Acceleration:
    """Make the recurrent layers of torch inside a module faster, in place.

    Every `nn.LSTM`, `nn.GRU` and `nn.RNN` stays the same object, with the same parameters, names,
    hooks and results (to rounding); `isinstance` and `state_dict` do not change. Optimisers,
    `copy.deepcopy`, pickling, DDP, `torch.compile`, `torch.func` and parametrisations work as
    before. Call `restore` before quantisation, which looks for torch's own classes.

    Args:
        model: Any module.

    Returns:
        Which modules were replaced, and which were not and why.

    Example:
        >>> tagger = torch.nn.Sequential(torch.nn.Embedding(100, 8), torch.nn.GRU(8, 16))
        >>> print(undamped.accelerate(tagger))
        1: accelerated GRU
    """
    _check(model, "accelerate")
    replaced, left = {}, {}
    for name, module in model.named_modules():
        kind = _class_of(module)
        if kind in CLASSES:
            _set_class(module, CLASSES[kind])
        if isinstance(module, Accelerated):
            replaced[name] = module.torch_class.__name__
        elif reason := _reason(module):
            left[name] = reason
    return Acceleration(replaced, left)


def restore(model: nn.Module) -> None:
    """Undo `accelerate`: give every accelerated layer its class of torch again."""
    _check(model, "restore")
    for module in model.modules():
        if isinstance(module, Accelerated):
            _set_class(module, module.torch_class)


def _check(model: Any, function: str) -> None:
    if not isinstance(model, nn.Module):
        raise OptionError(f"{function} takes an nn.Module, got {type(model).__name__}.")


def _class_of(module: nn.Module) -> Any:
    """Return the class of a module, without the subclass that a parametrisation makes."""
    kind = type(module)
    return kind.__bases__[0] if is_parametrized(module) else kind


def _set_class(module: nn.Module, kind: Any) -> None:
    """Give a module another class; a parametrised module gets a new subclass of it.

    Copies of a parametrised module have the same class, which must not change for them.
    """
    current = type(module)
    if is_parametrized(module):
        content = dict(vars(current))
        for name in ("__dict__", "__weakref__"):
            content.pop(name, None)
        kind = type(f"Parametrized{kind.__name__}", (kind,), content)
    module.__class__ = kind


def _reason(module: nn.Module) -> str:
    """Return why a recurrent module is not replaced; empty for other modules."""
    kind = type(module)
    scripted = isinstance(module, torch.jit.ScriptModule)
    name = getattr(module, "original_name", "") if scripted else kind.__name__
    if scripted and name in ("LSTM", "GRU", "RNN"):
        return "it is compiled by torch.jit.script"
    if ".quantized" in kind.__module__ and name in ("LSTM", "GRU", "RNN"):
        return "it is quantised"
    if isinstance(module, nn.RNNCellBase):
        return "torch computes a single step in one call already"
    if not isinstance(module, nn.RNNBase):
        return ""
    return f"{kind.__name__} is a subclass, whose forward may differ"
