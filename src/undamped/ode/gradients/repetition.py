"""A field that is evaluated again in a backward pass: its context, and whether it has changed.

Such a pass differentiates what it evaluates: with the parameters of the forward pass, in its
precision, and without random numbers. A field may also read more than its arguments: a loop
variable, an attribute, a buffer. If that changes between the forward and the backward pass, the
gradient would be that of another solve. Where steps are repeated, their ends are compared with
those of the forward pass; where they are not, some evaluations of the forward pass are stored and
repeated.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from undamped._base.errors import OptionError
from undamped.ode.dependencies import NeedsGraphError
from undamped.ode.field import CountedField, all_finite
from undamped.ode.methods.solver import SolverState


@dataclass(frozen=True)
class FieldContext:
    """The precision of a solve, and the parameters its field had.

    Args:
        device: Kind of device.
        mixed: Whether operations chose their precision.
        precision: The shorter one they chose.
        parameters: Those of a field that is a module, by name.
    """

    device: str
    mixed: bool
    precision: torch.dtype
    parameters: Mapping[str, Tensor]

    @classmethod
    def of(cls, function: Callable[..., Any], y: Tensor) -> FieldContext:
        """Return the present context."""
        device = y.device.type
        parameters = dict(function.named_parameters()) if isinstance(function, nn.Module) else {}
        precision = torch.get_autocast_dtype(device)
        return cls(device, torch.is_autocast_enabled(device), precision, parameters)

    @contextmanager
    def restored(self, field: CountedField) -> Iterator[None]:
        """Let the field be evaluated as in the forward pass."""
        function = field.function
        module = function if isinstance(function, nn.Module) else None
        named = () if module is None else module.named_parameters()
        if module is not None and any(self.parameters.get(name) is not p for name, p in named):
            # `torch.func.functional_call` lends a module other parameters for one pass.
            field.function = lambda t, y: torch.func.functional_call(
                module, dict(self.parameters), (t, y)
            )
        try:
            with self.precisely():
                yield
        finally:
            field.function = function

    def precisely(self) -> AbstractContextManager[Any]:
        """Evaluate in the precision of the forward pass, converting parameters each time.

        Converted parameters in PyTorch's cache would belong to the graph that needed them first.
        """
        return torch.autocast(
            self.device, dtype=self.precision, enabled=self.mixed, cache_enabled=False
        )

    def rounding(self, dtype: torch.dtype) -> float:
        """Return the relative rounding of evaluations on states of a type."""
        eps = torch.finfo(dtype).eps
        return max(eps, torch.finfo(self.precision).eps) if self.mixed else eps


@contextmanager
def normalizations(function: Callable[..., Any], into: list[nn.Module]) -> Iterator[None]:
    """Collect the modules with running statistics that evaluations in this context update.

    Args:
        function: The field.
        into: The list that they are appended to.
    """

    def collect(module: nn.Module, _: Any) -> None:
        if module.training and isinstance(getattr(module, "running_mean", None), Tensor):
            into.append(module)

    if isinstance(function, nn.Module):
        for module in function.modules():
            collect(module, None)
        yield
        return
    hook = register_module_forward_pre_hook(collect)
    try:
        with warnings.catch_warnings():
            # A compiled module calls it twice, which does no harm.
            warnings.filterwarnings("ignore", message="Using `torch.compile", category=UserWarning)
            yield
    finally:
        hook.remove()


@contextmanager
def frozen_statistics(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Let modules update copies of their buffers, since only the forward pass counts."""
    before = [(module, dict(module.named_buffers(recurse=False))) for module in set(modules)]
    for module, buffers in before:
        for name, buffer in buffers.items():
            setattr(module, name, buffer.clone())
    try:
        yield
    finally:
        for module, buffers in before:
            for name, buffer in buffers.items():
                setattr(module, name, buffer)


def refuse_randomness(before: Tensor, y: Tensor, gradient: str) -> None:
    """Refuse an evaluation that drew random numbers: evaluated again, it would draw others.

    Args:
        before: `random_state` before it.
        y: The state.
        gradient: The gradient method.
    """
    if not torch.equal(before, random_state(y)):
        raise NeedsGraphError(
            f"The field draws random numbers, as dropout does, but gradient='{gradient}' evaluates "
            "it again and needs the same values. Draw them before the solve and store them, call "
            "eval(), or choose gradient='backprop'."
        )


def random_state(y: Tensor) -> Tensor:
    """Return the state of the generator that fields draw from where y is."""
    return torch.cuda.get_rng_state(y.device) if y.is_cuda else torch.get_rng_state()


ROUNDING = 32.0
"""How many roundings a repeated step may differ from the first, before it is checked exactly."""
REPEATED = 3
"""How many of the segments with the largest distances are repeated exactly."""
UNDONE = 1e-2
"""Allowed distance from the start, relative to the state, after undoing all steps."""


def changed(gradient: str, position: str) -> OptionError:
    """Return the error for a field whose values have changed.

    Args:
        gradient: The gradient method.
        position: When in the solve it was noticed.
    """
    return OptionError(
        f"With gradient='{gradient}' the field no longer has the values it had in the forward pass "
        f"{position}: something it reads has changed since, such as a loop variable, an attribute "
        "or a buffer filled in place. Bind what it reads when the field is made (lambda t, y, x=x: "
        "…), make it part of the state, or choose gradient='backprop', which evaluates nothing "
        "again."
    )


def _largest(value: Tensor) -> Tensor:
    """Return the largest number of every sample."""
    rows = value.reshape(len(value), -1) if value.dim() > 1 else value.reshape(1, -1)
    return torch.linalg.vector_norm(rows, torch.inf, 1)


def _distance(value: Tensor, reference: Tensor, scale: Tensor) -> Tensor:
    """Return the largest difference, relative to the scale of its sample."""
    scale = scale.clamp_min(torch.finfo(reference.dtype).tiny)
    return (_largest(value - reference) / scale).amax()


class SegmentComparison:
    """Compares the ends of repeated segments with the stored states.

    There is one number per segment, and none is read before all segments are done: reading waits
    for the device. Rounding differs where sums are compiled or not, and a field may magnify it:
    segments with a large distance are repeated as in the forward pass, bit for bit.

    Args:
        gradient: The gradient method, for the message.
        allowed: Allowed distance between repetitions, relative to the state.
    """

    def __init__(self, gradient: str, allowed: float) -> None:
        self.gradient, self.allowed = gradient, allowed
        self._distances: list[Tensor] = []
        self._sizes: list[Tensor] | None = None

    def add(self, before: SolverState, reached: SolverState, stored: SolverState) -> None:
        """Compare a segment, which came before the one compared last.

        Args:
            before: The state at its start.
            reached: The state at its end.
            stored: The state at its end in the forward pass.
        """
        if not stored[0].numel():
            return
        sizes = self._sizes or [_largest(part) for part in stored]
        self._sizes = [_largest(part) for part in before]
        for new, old, end, begin in zip(reached, stored, sizes, self._sizes, strict=True):
            self._distances.append(_distance(new, old, torch.maximum(end, begin)))

    def refuse(self, repeat: Callable[[int], tuple[SolverState, SolverState, str]]) -> None:
        """Raise an error if a segment does not end where it did.

        Args:
            repeat: From the number of a segment, in the order they were compared, to its end when
                it is repeated exactly, its end in the forward pass, and its position in words.
        """
        if not self._distances:
            return
        distances = torch.stack(self._distances).nan_to_num(nan=torch.inf)
        if float(distances.max()) <= self.allowed:
            return
        parts = len(self._sizes or [0])
        worst = distances.view(-1, parts).amax(1)
        for number in worst.topk(min(REPEATED, len(worst))).indices.tolist():
            reached, end, position = repeat(number)
            for new, old in zip(reached, end, strict=True):
                if not float(_distance(new, old, _largest(old))) <= self.allowed:
                    raise changed(self.gradient, position)


class FieldSamples:
    """Some evaluations of a forward pass, spread over it.

    There are four to eight of them: every n-th evaluation is stored, and when there are too many,
    every second one is dropped.
    """

    MOST = 8

    def __init__(self) -> None:
        self._calls: list[tuple[Tensor, Tensor, Tensor]] = []
        self._stride, self._count = 1, 0

    def offer(self, t: Tensor, y: Tensor, value: Tensor) -> None:
        """Take an evaluation into account."""
        if self._count % self._stride == 0:
            # A copy: the value may be a buffer of the field's own, which changes with it.
            self._calls.append((t, y.detach(), value.detach().clone()))
            if len(self._calls) > self.MOST:
                del self._calls[1::2]
                self._stride *= 2
        self._count += 1

    @torch.no_grad()
    def refuse(self, field: CountedField, gradient: str, eps: float) -> None:
        """Raise an error if the field has other values now.

        Args:
            field: The field.
            gradient: The gradient method, for the message.
            eps: Rounding of the numbers the field computes with.
        """
        # A rejected attempt may have values that are not finite.
        calls = [call for call in self._calls if call[2].numel() and all_finite(call[2])]
        distances = [_distance(field(t, y), value, _largest(value)) for t, y, value in calls]
        if not distances:
            return
        largest = torch.stack(distances).nan_to_num(nan=torch.inf)
        if float(largest.max()) > ROUNDING * eps:
            time = calls[int(largest.argmax())][0].detach().double().mean()
            raise changed(gradient, f"near t = {float(time):.6g}")


def refuse_wrong_start(y0: Tensor, reached: Tensor, final: Tensor) -> None:
    """Refuse steps that were undone and did not lead back to the start.

    Args:
        y0: The start.
        reached: The state after undoing all steps.
        final: The state at the end of the solve.
    """
    if not y0.numel():
        return
    distance = float(_distance(reached, y0, torch.maximum(_largest(y0), _largest(final))))
    if not distance <= UNDONE:
        raise OptionError(
            "Undoing the steps with gradient='reversible' did not lead back to the start, which is "
            f"off by {100 * distance:.2g} %. Undoing steps magnifies rounding: use float64, fewer "
            "or smaller steps, or gradient='checkpoint'. A field that reads what has changed since "
            "has the same effect."
        )
