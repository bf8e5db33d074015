"""Recurrent modules unrolled step by step, so that instruments can access their states.

Recurrent networks of this library and `torch.nn.RNN/LSTM/GRU` become a stack of layers with one
state per layer and step. Any other module that is called as `(x, state) -> (y, state)` becomes one
layer. Modules without such a state are measured through their inputs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.contract import Batch
from undamped.models.sequence_model import SequenceModel
from undamped.nn import Cell, Recurrent

State = tuple[Tensor, ...]


class Unrolled(ABC):
    """A unidirectional network of layers with accessible states."""

    layers: int
    output_is_state: bool = True
    """Whether the output of a step is a function of the states after it."""

    @abstractmethod
    def initial(self, batch: int, like: Tensor) -> list[State]:
        """Return the state of each layer before the first step."""

    @abstractmethod
    def step(self, x: Tensor, states: list[State]) -> tuple[Tensor, list[State]]:
        """Return the output for (batch, input) and the next states."""

    def prepare(self) -> None:  # noqa: B027
        """Compute, without gradients, the constants of all steps, if there are any."""


class UnrolledRecurrent(Unrolled):
    """A `Recurrent` network, layer by layer."""

    def __init__(self, network: Recurrent) -> None:
        self.network = network
        self.layers = network.num_layers
        self._constants: list[State] = []

    def prepare(self) -> None:
        """Compute each cell's constants once, instead of at every step."""
        with torch.no_grad():
            self._constants = [self.network.cell(layer).constants() for layer in range(self.layers)]

    def initial(self, batch: int, like: Tensor) -> list[State]:
        return [self.network.cell(layer).initial_state(batch, like) for layer in range(self.layers)]

    def step(self, x: Tensor, states: list[State]) -> tuple[Tensor, list[State]]:
        network, outputs, following = self.network, [x], []
        for layer in range(self.layers):
            cell: Cell = network.cell(layer)
            below = network.cell_class.sources(layer + 1, network.cell_options)
            source = torch.cat([outputs[i] for i in below], dim=-1)
            advanced = cell.advance(cell.project(source), states[layer], self._constants[layer])
            state = separate(advanced)
            following.append(state)
            outputs.append(cell.output(state))
        return outputs[-1], following


class UnrolledTorch(Unrolled):
    """`torch.nn.RNN`, `LSTM` or `GRU` in one direction, with the cells of torch."""

    def __init__(self, network: nn.RNNBase) -> None:
        self.network = network
        self.layers = network.num_layers
        self._advance = {
            "LSTM": torch.lstm_cell,
            "GRU": torch.gru_cell,
            "RNN_TANH": torch.rnn_tanh_cell,
            "RNN_RELU": torch.rnn_relu_cell,
        }[network.mode]

    def initial(self, batch: int, like: Tensor) -> list[State]:
        net = self.network
        hidden = like.new_zeros(batch, net.proj_size or net.hidden_size)
        if net.mode != "LSTM":
            return [(hidden,)] * self.layers
        return [(hidden, like.new_zeros(batch, net.hidden_size))] * self.layers

    def step(self, x: Tensor, states: list[State]) -> tuple[Tensor, list[State]]:
        net, below, following = self.network, x, []
        for layer in range(self.layers):
            weights = [
                getattr(net, f"{kind}_l{layer}", None)
                for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            ]
            if net.mode == "LSTM":
                state = self._advance_lstm(below, states[layer], weights, layer)
            else:
                state = (self._advance(below, states[layer][0], *weights),)
            following.append(separate(state))
            below = following[-1][0]
        return below, following

    def _advance_lstm(self, x: Tensor, state: State, weights: list[Any], layer: int) -> State:
        if not self.network.proj_size:
            return self._advance(x, state, *weights)
        # torch.lstm_cell has no projection of the hidden state.
        hidden, cell = state
        gates = nn.functional.linear(x, weights[0], weights[2])
        gates = gates + nn.functional.linear(hidden, weights[1], weights[3])
        i, f, g, o = gates.chunk(4, dim=-1)  # as in the equations of nn.LSTM
        cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
        hidden = torch.sigmoid(o) * torch.tanh(cell)
        return hidden @ getattr(self.network, f"weight_hr_l{layer}").T, cell


class UnrolledModule(Unrolled):
    """Any module called as `(x, state) -> (y, state)`, one step at a time.

    Its state counts as one layer. If its output is part of its state, as in most recurrent
    networks, it is taken from there; otherwise the output depends on the state before the step,
    whose gradient is measured.
    """

    layers = 1

    def __init__(
        self, module: nn.Module, batch_first: bool, wrapped: Any, output_part: int | None
    ) -> None:
        self.module = module
        self.axis = 1 if batch_first else 0
        self.output_is_state = output_part is not None
        self._wrapped = wrapped
        self._output_part = output_part

    def initial(self, batch: int, like: Tensor) -> list[State]:
        """Return zeros in the shape of the first state that the module returned."""
        return [tuple(torch.zeros_like(part) for part in _flatten(self._wrapped))]

    def step(self, x: Tensor, states: list[State]) -> tuple[Tensor, list[State]]:
        """Call the module with a sequence of one step."""
        output, state = self.module(x.unsqueeze(self.axis), _restore(states[0], self._wrapped))
        parts = separate(_flatten(state))
        output = output.squeeze(self.axis)
        if self._output_part is not None:
            output = _like_output(parts[self._output_part], output)
        return output, [parts]


def separate(state: State) -> State:
    """Return the parts of a state as independent variables of automatic differentiation.

    The h of an LSTM is computed from the c of the same step. The gradient of a state treats both as
    independent coordinates, so the path from c to h must not contribute.
    """
    return tuple(part.view_as(part) for part in state)


def unroll(module: nn.Module, x: Tensor, *, batch_first: bool = False) -> Unrolled | None:
    """Return the step-by-step form of a module, or None if it has no accessible state.

    Args:
        module: Any module.
        x: Its input, time first (time, batch, features).
        batch_first: Whether the module is called with the batch first.
    """
    if isinstance(module, Recurrent):
        return None if module.bidirectional else UnrolledRecurrent(module)
    if isinstance(module, nn.RNNBase):
        return None if module.bidirectional else UnrolledTorch(module)
    return _try_steps(module, x, batch_first)


def _try_steps(module: nn.Module, x: Tensor, batch_first: bool) -> Unrolled | None:
    """Call a module to detect whether it takes and returns a state."""
    first = x[:1].transpose(0, 1) if batch_first else x[:1]
    if first.is_floating_point():  # with zeros, outputs and states could be equal by accident
        noise = torch.randn(first.shape, generator=torch.Generator().manual_seed(0))
        first = noise.to(first)
    try:
        with torch.no_grad():
            answer = module(first)
            if not _is_step(answer, first):
                return None
            second = module(first, answer[1])
    except (TypeError, ValueError, RuntimeError, AttributeError, IndexError):
        return None
    if not _is_step(second, first):
        return None
    before, after = _flatten(answer[1]), _flatten(second[1])
    fits = [part.shape for part in before] == [part.shape for part in after]
    if not fits or not all(x.shape[1] in part.shape for part in before):
        return None
    outputs = [pair[0].squeeze(1 if batch_first else 0) for pair in (answer, second)]
    part = _output_part(outputs, [before, after])
    return UnrolledModule(module, batch_first, answer[1], part)


def _is_step(answer: Any, x: Tensor) -> bool:
    """Return whether an answer is a pair of outputs at every step and a state of tensors."""
    if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[0], Tensor)):
        return False
    return answer[0].shape[:2] == x.shape[:2] and bool(_flatten(answer[1]))


def _output_part(outputs: list[Tensor], states: list[State]) -> int | None:
    """Return the index of the part of the state that equals the output in two steps, or None."""
    for index in range(len(states[0])):
        pairs = [
            (_like_output(state[index], output), output)
            for state, output in zip(states, outputs, strict=True)
        ]
        if all(a.shape == b.shape and torch.equal(a, b) for a, b in pairs):
            return index
    return None


def _like_output(part: Tensor, output: Tensor) -> Tensor:
    """Return a part of a state; of a part with an axis of layers, the last layer."""
    return part[-1] if part.dim() == output.dim() + 1 else part


def _flatten(state: Any) -> State:
    if isinstance(state, Tensor):
        return (state,)
    if isinstance(state, list | tuple):
        return tuple(part for item in state for part in _flatten(item))
    return ()


def _restore(parts: State, like: Any) -> Any:
    remaining = iter(parts)

    def build(item: Any) -> Any:
        if isinstance(item, Tensor):
            return next(remaining)
        return type(item)(build(part) for part in item)

    return build(like)


def network_inside(module: nn.Module, x: Tensor | Batch) -> tuple[nn.Module, Tensor]:
    """Return the recurrent network of a model and its encoded inputs.

    Other modules are returned with the inputs themselves.
    """
    if isinstance(module, SequenceModel):
        with torch.no_grad():
            return module.network, module.encode(x)
    return module, x.expanded().inputs if isinstance(x, Batch) else x


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Set a module to evaluation mode, without gradients of its parameters, for a while."""
    was_training = [(part, part.training) for part in module.modules()]
    needed = [(parameter, parameter.requires_grad) for parameter in module.parameters()]
    module.eval()
    for parameter, _ in needed:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter, need in needed:
            parameter.requires_grad_(need)
        for part, training in was_training:
            part.training = training


@contextmanager
def without_fast_path() -> Iterator[None]:
    """Switch off the fast path of `nn.TransformerEncoder` for a while.

    The fast path is one fused operation, without access for hooks and counters.
    """
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
