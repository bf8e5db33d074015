"""Step control for differentiated solves: the error of a tangent counts where the state rests.

The error of a step says nothing about its derivative where the state hardly moves: at rest it is
zero for any step size, and the exact gradient of such steps has nothing to do with that of the
equation. The movement of the state in a step shows this for the price of a norm. Only where the
state rests, the error of one tangent must be within the tolerance too.

Equation:
    ẋ = (f(t, y + s x) − f(t, y − s x)) / (2 s) + p, from a random x in the first step, and from
    its last value in later ones

Symbols:
    y state, linear between the ends of a step; s a small fraction of its size, number by number;
    p random and constant, as the effect of a parameter, which remains where the flow contracts.

The gradient of a parameter is an integral along the step. Where the state rests, two quadrature
rules for it are compared: a force that is zero now has a derivative that may change faster than
anything else.

Equation:
    g = ∫ wᵀ ∂f/∂θ dt, w a random vector
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import torch
from torch import Tensor

from undamped._base.torch_internals import inside_functional_transform
from undamped.ode.dependencies import leaves_of
from undamped.ode.field import CountedField
from undamped.ode.loop.clocks import Attempt
from undamped.ode.loop.control import StepControl, larger
from undamped.ode.loop.norm import ErrorNorm
from undamped.ode.loop.stability import StabilityControl
from undamped.ode.methods.solver import Field, Solver, Stepper
from undamped.ode.settings import Settings

EVERY = 8
"""Accepted steps between two measurements of the movement, while the state moves."""
SLACK = 30.0
"""How much less accurate than the tolerance a tangent may be before its error is measured."""
COARSEST = 1e-3
"""Largest relative error of a tangent in a step, whatever the tolerance."""
PUSHED = 100.0
"""Number of first steps in which p moves a tangent by its initial length."""
BOOLE = (7 / 90, 32 / 90, 12 / 90, 32 / 90, 7 / 90)
SIMPSON, TRAPEZOID = (1 / 6, 0.0, 4 / 6, 0.0, 1 / 6), (0.5, 0.0, 0.0, 0.0, 0.5)
"""Quadrature rules, by their weights at the quarters of a step."""
BENT = 0.1
"""Largest relative difference between the field's change and twice that over half the distance."""


class TangentControl:
    """Bounds the error of a tangent where the error of the state does not.

    Args:
        field: The field.
        solver: The method, which chooses its steps.
        settings: Tolerances.
        norm: Of errors.
        y: Start value.
    """

    each = False
    """Whether every sample has its own tangent and step size."""

    def __init__(
        self, field: CountedField, solver: Solver, settings: Settings, norm: ErrorNorm, y: Tensor
    ) -> None:
        assert solver.error_order is not None
        self.field, self.solver, self.norm, self.jumps = field, solver, norm, settings.jumps
        self.tensors: Sequence[Tensor] | None = None
        """What gradients go to besides the start; None stands for the leaves of the field."""
        self._stability = StabilityControl(field, self.jumps)
        self._power = 1 / (solver.error_order + 1)
        eps = torch.finfo(y.dtype).eps
        relative, absolute = settings.tightest
        self._rtol = max(relative, min(absolute, COARSEST))
        self._threshold = (SLACK * self._rtol) ** (1 - self._power)
        self._distance = eps**0.2
        # Rounding of the field, which is divided by the distance.
        rounding = eps / self._distance
        self._allowed = max(min(self._rtol, COARSEST), 16 * rounding)
        # The residual of equations must not look like an error.
        self._solved = max(0.01 * self._allowed, 4 * rounding)
        self._movement: Any = 0.0
        self._resting: Any = False
        self._pause = 0
        """Accepted steps before the movement is measured again."""
        self._started = False
        """Whether a step was accepted."""
        self._tangent: Tensor | None = None
        self._next: Tensor | None = None
        self._push = y.new_zeros(())
        self._weights: Tensor | None = None
        self._total = self._added = 0.0
        """Size of the gradients of parameters so far, and in the last attempt."""

    def error_norm(
        self, stepper: Stepper, ratio: float, y1: Tensor, step: tuple[float, float]
    ) -> float:
        """Return the error of an attempt, or that of its tangent where it counts and is larger.

        Args:
            stepper: The method, after the attempt.
            ratio: Error of the attempt in units of the tolerance.
            y1: State at its end.
            step: Its time and size.
        """
        if self._pause or not ratio <= 1:
            return ratio
        movement = stepper.movement(self.norm, y1)
        self._resting = self._rests(ratio, movement, self._movement)
        self._movement = movement
        if not self._resting:
            return ratio
        window = self.jumps.window(*step)
        with self.field.within(window):
            fresh = window is not None or not self._started
            return self._tangent_norm(stepper, ratio, y1, step, fresh)

    def _tangent_norm(
        self, stepper: Stepper, ratio: float, y1: Tensor, step: tuple[float, float], fresh: bool
    ) -> float:
        """Return the larger of both errors; `fresh` at the start and after a jump of the field."""
        y, method = stepper.state[0].detach(), stepper.active.solver
        ends = y, y1.detach()
        if self._tangent is None or fresh:
            self._tangent = self._draw(y, 0)
            self._push = self._draw(y, 1) / (PUSHED * abs(step[1]))
            if method.implicit and not fresh:
                # In mid-course the fast parts of a tangent decayed long ago.
                self._tangent = self._step(method, step, ends, self._tangent)[1]
        sources = self._sources(step, ends)
        if sources > 1:
            return max(ratio, sources)
        error, self._next, rate = self._step(method, step, ends, self._tangent)
        if method.implicit and not bool(error.isfinite()):
            # Equations that were not solved have no meaning.
            self._tangent = self._next = None
            return max(ratio, sources)
        stepper.note_rate(rate)
        return max(ratio, sources, error.item())

    def accept(self, stepper: Stepper, t: float, h: float) -> float:
        """Continue with the tangent of the last attempt; return how large the next step may be."""
        self._started = True
        if self._pause:
            self._pause -= 1
        elif not self._resting:
            self._pause = EVERY - 1
        if self._next is not None:
            self._tangent, self._next = self._next, None
        self._total, self._added = self._total + self._added, 0.0
        return self._stability.largest_step(stepper, t, h)

    def _rests(self, ratio: Any, movement: Any, before: Any) -> Any:
        """Whether the error of a step leaves its tangent free.

        The relative error of the movement in a step whose error is as large as the tolerance says
        how accurate a tangent is; it does not depend on the size of the step.

        Args:
            ratio: Error of the step in units of the tolerance.
            movement: Size of the step's change, likewise.
            before: That of the step before: at a turning point a single step moves little.
        """
        free = ratio**self._power > self._threshold * larger(movement, before)
        return (movement < 1) | free

    def _sources(self, step: tuple[float, float], ends: tuple[Tensor, Tensor]) -> float:
        """Return the error of the gradients of parameters in a step, in allowed units."""
        if inside_functional_transform() or self.tensors == []:
            return 0.0
        (t, h), (y, y1) = step, ends
        times = [t + part * h for part in (0.0, 0.25, 0.5, 0.75, 1.0)]
        if self._weights is None:
            seeded = torch.Generator().manual_seed(2)
            self._weights = torch.randn(y.shape, generator=seeded, dtype=torch.float64).to(y)
        rows: list[tuple[Tensor, ...]] = []
        for number, time in enumerate(times):
            moment = torch.full((), time, dtype=y.dtype, device=y.device)
            with torch.enable_grad():
                slope = self.field(moment, torch.lerp(y, y1, number / 4))
            if self.tensors is None:
                self.tensors = leaves_of([slope])
            if not slope.requires_grad or not self.tensors:
                return 0.0
            row = torch.autograd.grad(
                slope,
                self.tensors,
                self._weights.to(slope.dtype),
                materialize_grads=True,
                retain_graph=True,
            )
            rows.append(row)
        rules = (BOOLE, SIMPSON) if self.solver.order > 3 else (SIMPSON, TRAPEZOID)
        difference = [fine - coarse for fine, coarse in zip(*rules, strict=True)]
        size = error = 0.0
        for parts in zip(*rows, strict=True):
            stack = torch.stack([part.abs() if part.is_complex() else part for part in parts])
            weights = stack.new_tensor(difference)
            size = max(size, stack.abs().amax().item())
            error = max(error, torch.tensordot(weights, stack, 1).abs().amax().item())
        self._added = abs(h) * size
        total = self._total + self._added
        return abs(h) * error / (self._allowed * total) if total > 0 else 0.0

    def _draw(self, y: Tensor, seed: int) -> Tensor:
        seeded = torch.Generator().manual_seed(seed)
        shape = (1, *y.shape[1:]) if self.each else y.shape
        x = torch.randn(shape, generator=seeded, dtype=torch.float64).to(y)
        return x * self._scale(y)

    def _scale(self, y: Tensor) -> Tensor:
        """Return the distance of a difference: a fraction of the scale of the tolerance."""
        size = 1 / (self._rtol * self.norm.ratio(torch.ones_like(y), y, y))
        floor = 1e-3 * self._largest(size)
        floor = torch.where(floor < 1e-30, 1.0, floor)
        return self._distance * torch.maximum(size, floor)

    @torch.no_grad()
    def _step(
        self, method: Solver, step: tuple[Any, Any], ends: tuple[Tensor, Tensor], tangent: Tensor
    ) -> tuple[Tensor, Tensor, float | None]:
        """Take a step with a tangent.

        Args:
            method: The method.
            step: Time and size.
            ends: States at the start and at the end.
            tangent: The tangent at the start.

        Returns:
            Its error in units of the allowed error, its end, and the fastest rate of its field.
        """
        (t, h), y, change = step, ends[0], ends[1] - ends[0]
        scale = self._scale(y)

        def change_of(time: Tensor, x: Tensor) -> Tensor:
            part = ((time - t) / h).nan_to_num(0.0).clamp(0.0, 1.0).to(y.dtype)
            state, distance = y + part * change, scale * x
            upper, lower = self.field(time, state + distance), self.field(time, state - distance)
            return (upper - lower) / (2 * scale)

        length = self._positive(self._largest(tangent / scale))
        x, push = tangent / scale / length, self._push / scale / length
        x1, error, rate = self._attempt(method, lambda t, x: change_of(t, x) + push, step, x)
        largest = torch.maximum(self._largest(x), self._largest(x1))
        ratio = self._largest(error) / (self._allowed * self._positive(largest))
        ratio = ratio.double().nan_to_num(nan=torch.inf)
        if bool((ratio > 1).any()):
            # Where the field jumps or bends within the difference, there is no tangent to follow.
            time = torch.as_tensor(t, dtype=torch.float64, device=y.device).to(y.dtype)
            full, half = change_of(time, x), change_of(time, x / 2)
            straight = self._largest(full - 2 * half) <= BENT * self._largest(full)
            ratio = torch.where(straight, ratio, 0.0)
        return ratio, x1 * scale * length, rate

    def _attempt(
        self, method: Solver, field: Field, step: tuple[Any, Any], x: Tensor
    ) -> tuple[Tensor, Tensor, float | None]:
        if self.each and not method.implicit:
            (x1,), error = method.step(field, *step, (x,))
            assert error is not None
            return x1, error, None
        stepper = method.stepper(field, step[0], x, None)
        stepper.memory(StepControl(), ErrorNorm(self._solved, self._solved))
        x1 = stepper.attempt(*step)
        return x1, stepper.error(), stepper.fastest_rate()

    def _positive(self, value: Tensor) -> Tensor:
        return torch.where((value > 0) & value.isfinite(), value, 1.0)

    def _largest(self, value: Tensor) -> Tensor:
        """Return the largest number, or that of every sample as a column."""
        if not self.each:
            return value.abs().amax()
        return value.abs().flatten(1).amax(1).view(-1, *(1,) * (value.dim() - 1))


class SampleTangentControl(TangentControl):
    """The same for every sample; whether one rests, and its tangent, do not depend on others."""

    each = True

    def __init__(
        self, field: CountedField, solver: Solver, settings: Settings, norm: ErrorNorm, y: Tensor
    ) -> None:
        super().__init__(field, solver, settings, norm, y)
        self._movement = torch.zeros(len(y), dtype=torch.float64, device=y.device)
        self._tangent = self._draw(y.detach(), 0)
        self._push, self._pushed = self._draw(y.detach(), 1), False

    def error_norms(self, attempt: Attempt) -> Tensor:
        """Return the errors of attempts, or those of their tangents where they count."""
        assert self._tangent is not None
        rows, ratio, step = attempt.rows, attempt.ratio, attempt.step
        y, y1 = attempt.y.detach(), attempt.y1.detach()
        norm = self.norm.of_rows(rows)
        movement = norm.each(y1 - y, y, y1)
        active = (step[1] != 0).reshape(-1) & (ratio <= 1)
        resting = active & self._rests(ratio, movement, self._movement[rows])
        self._movement = self._movement.index_copy(0, rows, movement)
        self._resting, self._next = resting, None
        if not bool(resting.any()):
            return ratio
        if not self._pushed:
            size = step[1].abs().new_ones(len(self._tangent), *step[1].shape[1:])
            size = size.index_copy(0, rows, self._positive(step[1].abs())).to(y.dtype)
            self._push, self._pushed = self._push / (PUSHED * size), True
        part = copy(self)
        part.norm, part._push = norm, self._push[rows]
        errors, self._next, _ = part._step(self.solver, step, (y, y1), self._tangent[rows])
        errors = errors.reshape(-1)
        if self.solver.implicit:
            errors = errors.nan_to_num(posinf=0.0)
        return torch.where(resting, torch.maximum(ratio, errors), ratio)

    def accept_rows(self, attempt: Attempt) -> None:
        """Continue with the tangents of the samples that accepted their attempts."""
        if self._next is None:
            return
        assert self._tangent is not None
        column = attempt.column(attempt.accepted & self._resting)
        new = torch.where(column & self._next.isfinite(), self._next, self._tangent[attempt.rows])
        self._tangent, self._next = self._tangent.index_copy(0, attempt.rows, new), None
