"""Whether a field is still the one of the forward pass, when it is evaluated again.

A field may read what is no argument of it: a loop variable, an attribute, a buffer. If that
changes between the forward and the backward pass, a gradient that evaluates the field again would
be that of another solve. Where steps are repeated, what they reach is compared with what they
reached before; where they are not, some evaluations of the forward pass are kept and made again.
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
LOOKED_AT = 3
"""How many of the segments that are farthest away are repeated exactly."""
UNDONE = 1e-2
"""How far from the start, relative to the state, undone steps may lead."""


def changed(gradient: str, where: str) -> OptionError:
    """Return the error for a field that is not what it was.

    Args:
        gradient: The gradient method.
        where: When in the solve it was noticed.
    """
    return OptionError(
        f"With gradient='{gradient}' the field no longer has the values it had in the forward pass "
        f"{where}: something it reads has changed since, such as a loop variable, an attribute or "
        "a buffer filled in place. Bind what it reads when the field is made (lambda t, y, x=x: "
        "…), make it part of the state, or choose gradient='backprop', which evaluates nothing "
        "again."
    )


def _rows(value: Tensor) -> Tensor:
    return value.reshape(len(value), -1) if value.dim() > 1 else value.reshape(1, -1)


def _largest(value: Tensor) -> Tensor:
    """Return the largest number of every sample."""
    return torch.linalg.vector_norm(_rows(value), torch.inf, 1)


class SegmentComparison:
    """Compares the ends of repeated segments with the states that were kept there.

    One number a segment, and nothing is read before all segments are done: reading waits for the
    device. Rounding is another where sums are compiled or not, and a field may magnify it: segments
    that are far away are repeated in the way of the forward pass, bit for bit.

    Args:
        gradient: The gradient method, for the message.
        allowed: How far apart repetitions may be, relative to the state.
    """

    def __init__(self, gradient: str, allowed: float) -> None:
        self.gradient, self.allowed = gradient, allowed
        self._distances: list[Tensor] = []
        self._sizes: list[Tensor] | None = None

    def add(self, before: SolverState, reached: SolverState, stored: SolverState) -> None:
        """Compare a segment, which came before the one compared last.

        Args:
            before: The state it began with.
            reached: What it reached.
            stored: What it reached in the forward pass.
        """
        if not stored[0].numel():
            return
        sizes = self._sizes or [_largest(part) for part in stored]
        self._sizes = [_largest(part) for part in before]
        for new, old, end, begin in zip(reached, stored, sizes, self._sizes, strict=True):
            scale = torch.maximum(end, begin).clamp_min_(torch.finfo(old.dtype).tiny)
            self._distances.append((_largest(new - old) / scale).amax())

    def refuse(self, repeat: Callable[[int], tuple[SolverState, SolverState, str]]) -> None:
        """Raise an error if a segment does not end where it did.

        Args:
            repeat: From the number of a segment, in the order they were compared, to what it
                reaches when repeated exactly, what it reached, and where that is in words.
        """
        if not self._distances:
            return
        distances = torch.stack(self._distances).nan_to_num(nan=torch.inf)
        if float(distances.max()) <= self.allowed:
            return
        parts = len(self._sizes or [0])
        worst = distances.view(-1, parts).amax(1)
        for number in worst.topk(min(LOOKED_AT, len(worst))).indices.tolist():
            reached, end, where = repeat(number)
            for new, old in zip(reached, end, strict=True):
                scale = _largest(old).clamp_min_(torch.finfo(old.dtype).tiny)
                distance = float((_largest(new - old) / scale).amax())
                if not distance <= self.allowed:
                    raise changed(self.gradient, where)


class FieldSamples:
    """Some evaluations of a forward pass, spread over it.

    Four to eight of them: every so many evaluations one is kept, and where there are too many
    every other one is dropped.
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
        # An attempt that was refused may have met what is not finite.
        calls = [call for call in self._calls if call[2].numel() and all_finite(call[2])]
        distances: list[Tensor] = []
        for t, y, value in calls:
            scale = _largest(value).clamp_min_(torch.finfo(value.dtype).tiny)
            distances.append((_largest(field(t, y) - value) / scale).amax())
        if not distances:
            return
        largest = torch.stack(distances).nan_to_num(nan=torch.inf)
        if float(largest.max()) > ROUNDING * eps:
            time = calls[int(largest.argmax())][0].detach().double().mean()
            raise changed(gradient, f"near t = {float(time):.6g}")


def undone(y0: Tensor, reached: Tensor, final: Tensor) -> None:
    """Refuse steps that were undone and did not lead back to the start.

    Args:
        y0: The start.
        reached: Where undoing the steps led.
        final: Where they had led.
    """
    if not y0.numel():
        return
    scale = torch.maximum(_largest(y0), _largest(final)).clamp_min_(torch.finfo(y0.dtype).tiny)
    distance = float((_largest(reached - y0) / scale).amax())
    if not distance <= UNDONE:
        raise OptionError(
            "Undoing the steps with gradient='reversible' did not lead back to the start, which is "
            f"off by {100 * distance:.2g} %. Undoing steps magnifies rounding: use float64, fewer "
            "or smaller steps, or gradient='checkpoint'. A field that reads what has changed since "
            "has the same effect."
        )
