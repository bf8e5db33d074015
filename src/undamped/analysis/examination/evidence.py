"""Measurements on any module over sequences, from which the rules of the doctor conclude.

All of them compare passes of a copy of the model in evaluation mode: with changed samples, changed
steps, another seed, and with gradients. A property that a pass must not have is located by its
modules: the first whose inputs agree in two passes while its outputs differ.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from undamped._base.errors import OptionError, ShapeError
from undamped._base.torch_internals import (
    TorchDispatchMode,
    tree_flatten,
    tree_leaves,
    tree_unflatten,
)
from undamped.analysis.core.gradients import first_tensor
from undamped.kernels.dispatch import plain_loops
from undamped.nn.acceleration import accelerate

Loss = Callable[..., Tensor]
RELATIVE = 1e-4
"""Difference, relative to the largest output, from which two outputs are not the same."""
SEQUENCES = (5, 7, 3, 11, 2)
"""Numbers of sequences that are measured: the first that is no other size of the inputs."""
ATEN = torch.ops.aten


class Call(NamedTuple):
    """One call of a submodule.

    Args:
        name: Name of the submodule; empty for the model.
        inputs: Tensors that it was called with.
        outputs: Tensors that it returned.
    """

    name: str
    inputs: list[Tensor]
    outputs: list[Tensor]


class Operation(NamedTuple):
    """One elementwise function or softmax inside a pass.

    Args:
        kind: "sigmoid", "tanh", "relu", "softmax", "log_softmax" or "cross entropy of logits".
        name: Name of the submodule that called it.
        inputs: What it was applied to.
        outputs: Its result.
        axis: Of a softmax.
    """

    kind: str
    name: str
    inputs: Tensor
    outputs: Tensor
    axis: int | None


class Replacement(TorchFunctionMode):
    """Functions of torch that are replaced in a pass.

    Args:
        functions: Functions, and what is called in place of each, with the original first.
    """

    def __init__(self, functions: dict[Any, Callable[..., Any]]) -> None:
        super().__init__()
        self.functions = functions

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the replacement, or the function itself."""
        replacement = self.functions.get(func)
        if replacement is None:
            return func(*args, **(kwargs or {}))
        return replacement(func, *args, **(kwargs or {}))


class _Recorder(TorchDispatchMode):
    """Records activations together with the module that called them."""

    KINDS: ClassVar = {
        ATEN.sigmoid.default: "sigmoid",
        ATEN.tanh.default: "tanh",
        ATEN.relu.default: "relu",
        ATEN.sigmoid_.default: "sigmoid",
        ATEN.tanh_.default: "tanh",
        ATEN.relu_.default: "relu",
        ATEN._softmax.default: "softmax",
        ATEN._log_softmax.default: "log_softmax",
        ATEN.binary_cross_entropy_with_logits.default: "cross entropy of logits",
    }

    def __init__(self, stack: list[str]) -> None:
        super().__init__()
        self.stack, self.operations = stack, []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        kind = self.KINDS.get(func)
        if kind is not None:
            axis = args[1] if "softmax" in kind else None
            name = self.stack[-1] if self.stack else ""
            self.operations.append(Operation(kind, name, args[0].detach(), result.detach(), axis))
        return result


@dataclass
class Evidence:
    """A model with its inputs, and what is measured about it.

    Args:
        model: Any module; it is not changed.
        inputs: Arguments of its `forward`; the first is the sequence.
        loss: From the model's output to a scalar.
        batch_first: Whether sequences are (batch, time, …).
        lengths: (batch,) the true length of each sequence, if some are padded.
        causal: Whether an output may depend on earlier steps only.
        learning_rate: The learning rate of training, if it is to be judged.
        clip: The norm at which training clips gradients, if it does.
        interventions: Context in which passes run, for remedies.
    """

    model: nn.Module
    inputs: tuple[Any, ...]
    loss: Loss
    batch_first: bool
    lengths: Tensor | None = None
    causal: bool = False
    learning_rate: float | None = None
    clip: float | None = None
    interventions: Callable[[], AbstractContextManager[Any]] = field(default=nullcontext)

    def changed(self, model: nn.Module | None = None, **options: Any) -> Evidence:
        """Return evidence about a changed model, or with other options."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return Evidence(**{**fields, "model": model or self.model, **options})

    def copy_model(self) -> nn.Module:
        """Return a copy of the model, for a remedy."""
        return copy.deepcopy(self.model)

    # Axes

    @property
    def batch_axis(self) -> int:
        """Axis of the sequences in the inputs."""
        return 0 if self.batch_first else 1

    @property
    def time_axis(self) -> int:
        """Axis of the steps in the inputs."""
        return 1 - self.batch_axis

    @property
    def sequence(self) -> Tensor:
        """The inputs over time."""
        return self.inputs[0]

    @property
    def steps(self) -> int:
        """Number of steps."""
        return self.sequence.shape[self.time_axis]

    @property
    def batch(self) -> int:
        """Number of sequences."""
        return self.sequence.shape[self.batch_axis]

    def step_axis(self, tensor: Tensor) -> int | None:
        """Return the axis of the steps in a tensor of the model, or None."""
        return _axis(tensor, self.steps, self.time_axis if tensor.dim() > 2 else 0)

    def sequence_axis(self, tensor: Tensor) -> int | None:
        """Return the axis of the sequences in a tensor of the model, or None."""
        return _axis(tensor, self.batch, self.batch_axis if tensor.dim() > 2 else 0)

    # Passes

    @contextmanager
    def named_calls(self, stack: list[str]) -> Iterator[list[Call]]:
        """Record calls of submodules, and write the name of the current one to a stack."""
        calls: list[Call] = []
        handles = []
        for name, module in self.model.named_modules():

            def enter(_: Any, __: Any, name: str = name) -> None:
                stack.append(name)

            def leave(_: Any, inputs: Any, output: Any, name: str = name) -> None:
                stack.pop()
                parts = (
                    [t for t in tree_leaves(x) if isinstance(t, Tensor)] for x in (inputs, output)
                )
                calls.append(Call(name, *parts))

            handles.append(module.register_forward_pre_hook(enter))
            handles.append(module.register_forward_hook(leave))
        try:
            yield calls
        finally:
            for handle in handles:
                handle.remove()

    def run(self, sequence: Tensor | None = None, seed: int = 0) -> Any:
        """Return the model's output, for other values of the sequence if they are given."""
        first = self.sequence if sequence is None else sequence
        with torch.random.fork_rng(devices=[]), self.interventions():
            torch.manual_seed(seed)
            return self.model(first, *self.inputs[1:])

    @torch.no_grad()
    def trace(self, sequence: Tensor | None = None, seed: int = 0) -> tuple[Tensor, list[Call]]:
        """Return the output tensor and all calls of submodules."""
        with self.named_calls([]) as calls:
            output = first_tensor(self.run(sequence, seed))
        return output, calls

    @cached_property
    def baseline(self) -> tuple[Tensor, list[Call]]:
        """Output and calls of an unchanged pass."""
        return self.trace()

    @property
    def output(self) -> Tensor:
        """The output tensor."""
        return self.baseline[0]

    @property
    def per_step(self) -> bool:
        """Whether there is an output for every step."""
        return self.output.dim() > 1 and self.step_axis(self.output) is not None

    # Changes of the inputs

    def replaced(self, mask: Tensor) -> Tensor:
        """Return the sequence with other values where `mask` (batch, time) is true."""
        x = self.sequence if self.batch_first else self.sequence.transpose(0, 1)
        generator = torch.Generator().manual_seed(1)
        if x.is_floating_point():
            scale = x.std().clamp(min=0.1)
            others = torch.randn(x.shape, generator=generator).to(x) * scale + x.mean()
        else:
            high = int(x.max()) + 1
            others = (x + torch.randint(1, max(2, high), x.shape, generator=generator)) % max(
                2, high
            )
        mask = mask.reshape(mask.shape + (1,) * (x.dim() - 2))
        result = torch.where(mask, others.to(x.dtype), x)
        return result if self.batch_first else result.transpose(0, 1)

    def mask(self, sequences: slice = slice(None), steps: slice = slice(None)) -> Tensor:
        """Return (batch, time), true for some sequences and steps."""
        mask = torch.zeros(self.batch, self.steps, dtype=torch.bool)
        mask[sequences, steps] = True
        return mask

    def difference(self, a: Tensor | None, b: Tensor | None) -> float:
        """Return the largest difference, relative to the largest value; 0 if there are none."""
        if a is None or b is None or a.shape != b.shape or not a.numel():
            return 0.0
        a, b = a.double(), b.double()
        scale = float(a.abs().nan_to_num().max()) + 1e-12
        return float((a - b).abs().nan_to_num(nan=0.0).max()) / scale

    def last(self, output: Tensor, sequence: int | None = None) -> Tensor:
        """Return the outputs at the last step, of all sequences or of one."""
        if self.per_step:
            axis = self.step_axis(output)
            assert axis is not None
            output = output.select(axis, self.steps - 1)
        axis = self.sequence_axis(output)
        return output if sequence is None or axis is None else output.select(axis, sequence)

    def locate(self, others: Sequence[Call], view: Callable[[Tensor], Tensor | None]) -> str | None:
        """Return the first submodule whose inputs agree with another pass and outputs do not.

        Args:
            others: Calls of the other pass.
            view: The part of a tensor that must agree; None if a tensor has no such part.
        """

        def differ(first: list[Tensor], second: list[Tensor], partial: bool) -> bool:
            for a, b in zip(first, second, strict=False):
                parts = view(a), view(b)
                if parts[0] is None and not partial:
                    parts = a, b  # it is not known which part must agree: all of it
                if self.difference(parts[0], parts[1]) > RELATIVE:
                    return True
            return False

        for before, after in zip(self.baseline[1], others, strict=False):
            if differ(before.outputs, after.outputs, True) and not differ(
                before.inputs, after.inputs, False
            ):
                return before.name
        return None

    # Gradients

    @cached_property
    def gradient(self) -> np.ndarray:
        """‖∂(last outputs)/∂x‖ of every step: the largest of all sequences."""
        with torch.enable_grad():
            leaf, output = self.with_leaf()
            readout = self.last(output)
            weights = torch.randn(readout.shape, generator=torch.Generator().manual_seed(2))
            total = (readout * weights.to(readout)).sum()
            if leaf is None or not total.requires_grad:
                return np.zeros(self.steps)
            (gradient,) = torch.autograd.grad(total, leaf, allow_unused=True)
        if gradient is None:
            return np.zeros(self.steps)
        gradient = gradient if self.batch_first else gradient.transpose(0, 1)
        return gradient.flatten(2).double().norm(dim=2).amax(0).numpy()

    def with_leaf(self) -> tuple[Tensor | None, Tensor]:
        """Return the sequence as a leaf with a gradient, and the output; symbols are embedded."""
        if self.sequence.is_floating_point():
            leaf = self.sequence.detach().clone().requires_grad_()
            return leaf, first_tensor(self.run(leaf))
        leaves: list[Tensor] = []

        def embed(_: nn.Module, __: Any, output: Tensor) -> Tensor:
            leaves.append(output.detach().requires_grad_())
            return leaves[-1]

        embedding = next((m for m in self.model.modules() if isinstance(m, nn.Embedding)), None)
        if embedding is None:
            return None, first_tensor(self.run())
        handle = embedding.register_forward_hook(embed)
        try:
            output = first_tensor(self.run())
        finally:
            handle.remove()
        sequences = [leaf for leaf in leaves if leaf.dim() == self.sequence.dim() + 1]
        return (sequences[0] if len(sequences) == 1 else None), output

    @cached_property
    def response(self) -> np.ndarray:
        """Change of the last output if all steps up to each of some steps change: (times, 2).

        Columns: the step, and the relative change of the last output of sequence 0 when all
        earlier steps and this one have other values.
        """
        times = sorted({*np.linspace(0, self.steps - 2, min(12, self.steps - 1)).astype(int)})
        rows = []
        for t in times:
            output, _ = self.trace(self.replaced(self.mask(steps=slice(0, t + 1))))
            rows.append((t, self.difference(self.last(self.output, 0), self.last(output, 0))))
        return np.array(rows).reshape(-1, 2)

    @cached_property
    def training_gradients(self) -> dict[str, Tensor | None]:
        """Gradient of the loss for every trained parameter."""
        self.model.zero_grad()
        with torch.enable_grad():
            self.loss_of(self.run()).backward()
        gradients = {n: p.grad for n, p in self.model.named_parameters() if p.requires_grad}
        self.model.zero_grad()
        return gradients

    def loss_of(self, output: Any) -> Tensor:
        """Return the loss, which must be a scalar."""
        value = self.loss(output)
        if not isinstance(value, Tensor) or value.numel() != 1:
            shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise ShapeError(f"The loss must return a scalar tensor, got {shape}. Average it.")
        return value.reshape(())

    def loss_with(self, tensor: Tensor) -> Tensor:
        """Return the loss of the model's output with another first tensor."""
        leaves, structure = tree_flatten(self.run())
        first = next(i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor))
        return self.loss_of(
            tree_unflatten([*leaves[:first], tensor, *leaves[first + 1 :]], structure)
        )

    # Activations

    @cached_property
    def operations(self) -> list[Operation]:
        """Activations of a pass, also inside recurrent layers, and of the loss."""
        stack: list[str] = []
        with torch.no_grad(), self.named_calls(stack), plain_loops():
            recorder = _Recorder(stack)
            with recorder:
                output = self.run()
                stack.append("loss")
                self.loss_of(output)
        return recorder.operations

    @cached_property
    def dropout_rates(self) -> dict[str, float]:
        """The largest rate of dropout that each module calls, whether active or not."""
        stack: list[str] = []
        rates: dict[str, float] = {}

        def record(function: Any, x: Tensor, p: float = 0.5, *args: Any, **options: Any) -> Tensor:
            rates[stack[-1]] = max(rates.get(stack[-1], 0.0), float(p))
            return function(x, p, *args, **options)

        functions = (F.dropout, F.dropout1d, F.dropout2d, F.alpha_dropout, torch.dropout)
        replacement = Replacement(dict.fromkeys(functions, record))
        with torch.no_grad(), self.named_calls(stack), replacement:
            self.run()
        return rates

    def losses(
        self, learning_rate: float, updates: int = 8, sequence: Tensor | None = None
    ) -> list[float]:
        """Return the losses of some updates of Adam on a copy of the model."""
        trial = self.changed(self.copy_model())
        optimiser = torch.optim.Adam(
            [p for p in trial.model.parameters() if p.requires_grad], lr=learning_rate
        )
        values = []
        with torch.enable_grad():
            for _ in range(updates):
                optimiser.zero_grad()
                loss = trial.loss_of(trial.run(sequence))
                values.append(float(loss.detach()))
                if not np.isfinite(values[-1]) or not loss.requires_grad:
                    break
                loss.backward()
                optimiser.step()
        return values


def gather(
    model: nn.Module,
    inputs: Any,
    loss: Loss | None,
    targets: Any,
    *,
    batch_first: bool,
    lengths: Tensor | None,
    **options: Any,
) -> Evidence:
    """Check the arguments, and return evidence about a copy of the model on some sequences.

    The batch is cut to few sequences, unless the loss has targets of all of them inside.
    """
    arguments = tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)
    first = _checked(model, arguments, batch_first)
    axis = 0 if batch_first else 1
    total, sizes = first.shape[axis], {first.shape[1 - axis], *first.shape[2:]}
    size = next((n for n in SEQUENCES if n <= total and n not in sizes), min(total, 5))
    if loss is not None and targets is None:
        size = total
    frozen = copy.deepcopy(model).eval()
    accelerate(frozen)
    sequences = [_cut(value, axis, total, size) for value in (*arguments, targets)]
    if lengths is not None:
        lengths = torch.as_tensor(lengths)[:size]
    loss_of = _loss_of(loss, sequences.pop())
    evidence = Evidence(frozen, tuple(sequences), loss_of, batch_first, lengths, **options)
    _try(evidence)
    return evidence


def _checked(model: nn.Module, arguments: tuple[Any, ...], batch_first: bool) -> Tensor:
    """Return the first argument if it is a batch of sequences."""
    first = arguments[0] if arguments else None
    if not isinstance(first, Tensor) or first.dim() < 2:
        shape = tuple(first.shape) if isinstance(first, Tensor) else type(first).__name__
        raise ShapeError(
            f"The first input must be sequences (batch, time, …) or (time, batch, …), got {shape}."
        )
    if any(isinstance(p, nn.parameter.UninitializedParameter) for p in model.parameters()):
        raise OptionError("The model has lazy modules. Call it once, which initialises them.")
    total, steps = first.shape[:2] if batch_first else (first.shape[1], first.shape[0])
    if steps < 3 or total < 2:
        raise ShapeError(f"At least 3 steps of 2 sequences are needed, got {steps} of {total}.")
    return first


def _cut(value: Any, axis: int, total: int, size: int) -> Any:
    """Return the first sequences of a tensor whose sequences lie along an axis, or the first."""
    if not isinstance(value, Tensor) or not value.dim():
        return value
    axes = [at for at in (axis, 0) if at < value.dim() and value.shape[at] == total]
    return value.narrow(axes[0], 0, size).detach().clone() if axes else value


def _axis(tensor: Tensor, size: int, preferred: int) -> int | None:
    """Return the axis with a size; the preferred one if it has that size."""
    axes = [axis for axis, length in enumerate(tensor.shape) if length == size]
    return preferred if preferred in axes else axes[0] if axes else None


def _loss_of(loss: Loss | None, targets: Any) -> Loss:
    """Return a function of the output alone; by default one that fits the targets."""
    if loss is not None:
        return loss if targets is None else lambda output: loss(output, targets)
    if targets is None:
        return lambda output: first_tensor(output).square().mean()

    def mean_square(output: Any) -> Tensor:
        values = first_tensor(output)
        same = values.numel() == targets.numel()
        return F.mse_loss(values.reshape(targets.shape) if same else values, targets)

    def cross_entropy(output: Any) -> Tensor:
        logits = first_tensor(output)
        if logits.shape[:-1] == targets.shape:
            return F.cross_entropy(logits.flatten(0, -2), targets.flatten())
        return F.cross_entropy(logits, targets)  # (batch, classes, time)

    return mean_square if targets.is_floating_point() else cross_entropy


def _try(evidence: Evidence) -> None:
    """Run the model once, and say what is wrong with the call where it fails."""
    name = type(evidence.model).__name__
    try:
        output = evidence.output
    except (TypeError, RuntimeError, ValueError, IndexError, AttributeError) as error:
        shape = tuple(evidence.sequence.shape)
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise OptionError(
            f"{name} cannot be called with inputs of shape {shape}: {text} Give all arguments of "
            "its forward as a tuple."
        ) from error
    if evidence.sequence_axis(output) is None and evidence.per_step is False:
        raise ShapeError(
            f"The output of {name}, {tuple(output.shape)}, has no axis of {evidence.batch} "
            "sequences. The doctor examines modules that return an output per sequence or step."
        )
    try:
        evidence.loss_of(evidence.run())
    except ShapeError:
        raise
    except Exception as error:  # code of the user, which may raise anything
        kind, shape = type(error).__name__, tuple(output.shape)
        text = str(error).splitlines()[0] if str(error) else ""
        raise OptionError(
            f"The loss of an output of shape {shape} cannot be computed: {kind}: {text} Give a "
            "loss, and targets, that fit the output."
        ) from error
