"""Whether a field still has the values of the forward pass when it is evaluated again.

A field may read more than its arguments: a loop variable, an attribute, a buffer. If that changes
between the forward and the backward pass, a gradient that evaluates the field again would be that
of another solve. Where steps are repeated, their ends are compared with those of the forward pass;
where they are not, some evaluations of the forward pass are stored and repeated.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from undamped._base.errors import OptionError
from undamped.ode.field import CountedField, all_finite
from undamped.ode.methods.solver import SolverState

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
