"""Step control: how large an error counts, and how the next step size follows from it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from undamped.solvers.solver import Field


@dataclass(frozen=True)
class StepControl:
    """PID control of the step size (Söderlind); the derivative part is off by default.

    Equation:
        factor = safety · e_n^{−(I+P+D)/k} · e_{n−1}^{(P+2D)/k} · e_{n−2}^{−D/k}

    Symbols:
        e_n error of step n in units of the tolerance, k order of the estimate plus one.

    Args:
        integral: I.
        proportional: P.
        derivative: D.
        safety: Aim below the tolerance by this factor.
        shrink: A step shrinks at most to this fraction.
        grow: A step grows at most by this factor.
    """

    integral: float = 0.9
    proportional: float = 0.1
    derivative: float = 0.0
    safety: float = 0.9
    shrink: float = 0.2
    grow: float = 8.0


@dataclass
class ControlMemory:
    """The errors of the last accepted steps, for one step size."""

    control: StepControl
    order: int
    before: float = 1.0
    earlier: float = 1.0
    refused: bool = field(default=False)

    def after_accepting(self, error: float) -> float:
        """Return the factor for the next step."""
        control, k = self.control, self.order + 1
        error = max(error, 1e-10)
        p, i, d = control.proportional, control.integral, control.derivative
        factor = (
            control.safety
            * error ** (-(i + p + d) / k)
            * self.before ** ((p + 2 * d) / k)
            * self.earlier ** (-d / k)
        )
        self.earlier, self.before = self.before, error
        limit = 1.0 if self.refused else control.grow
        self.refused = False
        return min(limit, max(control.shrink, factor))

    def after_refusing(self, error: float) -> float:
        """Return the factor for the next attempt."""
        self.refused = True
        if not math.isfinite(error):
            return self.control.shrink
        factor = self.control.safety * error ** (-1 / (self.order + 1))
        return max(self.control.shrink, min(0.9, factor))


def scaled_norm(value: Tensor, scale: Tensor, size: int | None = None) -> float:
    """Return the root mean square of value / scale, over the first `size` numbers if given."""
    ratio = torch.div(value, scale)
    if size is not None:
        ratio = ratio.reshape(-1)[:size]
    return torch.linalg.vector_norm(ratio).item() / math.sqrt(max(ratio.numel(), 1))


class ErrorNorm:
    """The error of an attempt in units of the tolerance, in buffers made once a solve.

    Equation:
        ‖e / (atol + rtol max(|y|, |y'|))‖, root mean square

    Args:
        y: Value at the start.
        rtol: Relative tolerance.
        atol: Absolute tolerance.
        size: How many leading numbers of the state count; all by default.
    """

    def __init__(self, y: Tensor, rtol: float, atol: float, size: int | None) -> None:
        self.rtol, self.size = rtol, size
        self._atol = torch.full((), atol, dtype=y.dtype, device=y.device)
        with torch.no_grad():
            self._before = y.detach().abs()
            self._after, self.scale = torch.empty_like(self._before), torch.empty_like(self._before)
        self._root = math.sqrt(max(y.numel() if size is None else size, 1))

    def __call__(self, error: Tensor, y: Tensor) -> float:
        """Return the norm for an attempt that ended in y; neither may carry a graph."""
        torch.abs(y, out=self._after)
        torch.maximum(self._before, self._after, out=self.scale)
        torch.add(self._atol, self.scale, alpha=self.rtol, out=self.scale)
        ratio = torch.div(error, self.scale)
        if self.size is not None:
            ratio = ratio.reshape(-1)[: self.size]
        return torch.linalg.vector_norm(ratio).item() / self._root

    def accept(self) -> None:
        """Go on from the end of the attempt."""
        self._before, self._after = self._after, self._before


def initial_step(
    function: Field,
    t: float,
    y: Tensor,
    slope: Tensor,
    *,
    direction: float,
    order: int,
    rtol: float,
    atol: float,
    size: int | None = None,
) -> float:
    """Choose the first step size from two evaluations (Hairer, Nørsett, Wanner, II.4).

    Args:
        function: The field.
        t: Start time.
        y: Start value.
        slope: f(t, y).
        direction: 1 forwards in time, −1 backwards.
        order: Order of the error estimate.
        rtol: Relative tolerance.
        atol: Absolute tolerance.
        size: How many leading numbers of the state count; all by default.
    """
    scale = y.abs() * rtol + atol
    d0, d1 = scaled_norm(y, scale, size), scaled_norm(slope, scale, size)
    h0 = 1e-6 if d0 < 1e-5 or d1 < 1e-5 else 0.01 * d0 / d1
    time = torch.full((), t + direction * h0, dtype=y.dtype, device=y.device)
    moved = function(time, torch.add(y, slope, alpha=direction * h0))
    d2 = scaled_norm(moved - slope, scale, size) / h0
    if not math.isfinite(d2):
        return h0
    largest = max(d1, d2)
    h1 = max(1e-6, h0 * 1e-3) if largest <= 1e-15 else (0.01 / largest) ** (1 / (order + 1))
    return min(100 * h0, h1)
