"""An implicit method during one solve, and the control of its step sizes.

The derivative of the field is reused over steps and computed again only when corrections shrink
slowly; its factors are reused while the step size does not change; corrections stop at a fraction
of the step's tolerance. Where there is no tolerance, with fixed steps or when a step is repeated
for its gradient, they continue to rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from undamped.ode.loop.control import (
    SMALLEST_ERROR,
    ControlMemory,
    StepControl,
    choose,
    clip,
    finite,
)
from undamped.ode.loop.norm import ErrorNorm
from undamped.ode.methods.implicit.linearization import Linearization, every, some
from undamped.ode.methods.implicit.newton import Attempt
from undamped.ode.methods.solver import Field, Number, Stepper
from undamped.ode.methods.stages import stage_times

if TYPE_CHECKING:
    from undamped.ode.methods.implicit.method import ImplicitMethod

ROUNDS = 6
"""How often the derivative is computed for a step that has to be solved to rounding."""
SLOW = 1e-3
"""A rate of corrections above which a new derivative is computed."""
LEAST_GROWTH = 1.2
"""Growth below which new factors cost more than a longer step saves."""
GROW = 10.0


class ImplicitStepper(Stepper):
    """Derivative, factors and stages from step to step.

    Args:
        solver: The method.
        field: The field.
        y: State at the start.
        first: f at the start, where it is available.
    """

    solver: ImplicitMethod

    def __init__(
        self, solver: ImplicitMethod, field: Field, y: Tensor, first: Tensor | None
    ) -> None:
        self.solver, self.field, self.state, self.proposed = solver, field, (y,), (y,)
        self.norm: ErrorNorm | None = None
        self.line: Linearization | None = None
        self.current: Attempt | None = None
        self._trusted = np.zeros(1, dtype=bool)
        """Lanes whose last attempt was accepted: they need no second error estimate."""
        self.slope = None if first is None else first.detach()
        """f where the next step begins, once it was evaluated; reused when a step is rejected."""
        self.stages = y.new_zeros(0)
        self.last: Tensor | None = None
        self.sizes = np.full(1, np.nan)
        """Step sizes of the last attempt, one for each lane."""
        self.stale = np.ones(1, dtype=bool)
        """Lanes whose next attempt computes the derivative again and needs new factors anyway."""
        self.factor = self.sizes_before = np.zeros(1)
        self.kappa = 0.0
        """Fraction of the tolerance that the equations may leave, once there is one."""

    def memory(self, control: StepControl, norm: ErrorNorm) -> ControlMemory:
        """Use a tolerance from now on, and return what chooses step sizes."""
        eps = torch.finfo(self.state[0].dtype).eps
        rtol = max(float(torch.as_tensor(norm.rtol).min()), 1e-300)
        self.norm, self.kappa = norm, max(10 * eps / rtol, min(0.03, math.sqrt(rtol)))
        assert self.solver.error_order is not None
        if control != StepControl():
            return ControlMemory(control, self.solver.error_order)
        return PredictiveMemory(control, self.solver.error_order, stepper=self)

    @property
    def converged(self) -> bool:
        """Whether the equations of the last attempt were solved in all lanes."""
        return self.current is not None and bool(self.current.ok.all())

    @property
    def points(self) -> list[tuple[float, float, Tensor]]:
        """Weights, nodes and states by which the method integrates along the last attempt."""
        states = [self.state[0] + z for z in self.stages.unbind()]
        points = zip(self.solver.weights, self.solver.nodes, states, strict=True)
        return [point for point in points if point[0] != 0]

    def attempt(self, t: Number, h: Number) -> Tensor:
        y = self.state[0]
        if not y.numel():
            self.current = Attempt(self, t, h, y.detach(), self._linearization(y, 1))
            self.proposed = (y.clone(),)
            return self.proposed[0]
        with torch.no_grad():
            current, stages = self._solve(t, h, y.detach())
        self.current, self.stages = current, stages.reshape(len(stages), *y.shape)
        if not some(current.ok):
            y1 = torch.full_like(y, math.nan)
        else:
            failed = None
            if not every(current.ok):
                # What did not converge must not be in the graph: zero times infinity is not
                # zero.
                failed = torch.from_numpy(~current.ok).to(y.device).view(-1, *(1,) * (y.dim() - 1))
                self.stages = self.stages.masked_fill(failed, 0.0)
            y1 = self.solver.end(self.field, t, h, y, self.stages, current.line.band)
            if failed is not None:
                y1 = y1.masked_fill(failed, math.nan)
        self.proposed = (y1,)
        return y1

    def _solve(self, t: Number, h: Number, y: Tensor) -> tuple[Attempt, Tensor]:
        """Solve the stages; compute the derivative again where that may help."""
        if isinstance(h, Tensor):
            sizes = h.detach().double().reshape(-1).cpu().numpy()
        else:
            sizes = np.array([h])
        line = self._linearization(y, len(sizes))
        if some(self.stale):
            self._take(t, h, y, self.stale)
        self.sizes = sizes
        start: Tensor | None = None
        rounds = ROUNDS if self.norm is None else 2
        while True:
            rounds -= 1
            current = Attempt(self, t, h, y, line)
            line.converged = True
            line.prepare(current.row_h, sizes)
            stages = self.solver.solve_stages(current, start)
            self.slope = current.initial
            if not line.converged:
                current.ok[:] = False
            self.factor = current.factor
            if every(current.ok) or not rounds:
                return current, stages
            outdated = ~current.ok & ~line.fresh
            if self.norm is None:
                # The derivative near the solution, from which the corrections continue.
                start = torch.nan_to_num(stages, nan=0.0, posinf=0.0, neginf=0.0)
                near = line.systems.state(current.rows + start[-1])
                line.take(stage_times(t, h, self.solver.nodes[-1:], y)[0], near, ~current.ok)
                line.fresh[:] = False
                start = start.reshape(len(start), line.systems.count, line.systems.size)
            elif outdated.any():
                self._take(t, h, y, outdated)
            else:
                return current, stages

    def _linearization(self, y: Tensor, lanes: int) -> Linearization:
        if self.line is None or self.line.lanes != lanes:
            self.line = Linearization(self.field, y, self.solver, lanes)
            self.stale = np.ones(lanes, dtype=bool)
            self.factor = np.ones(lanes)
            self.last = None
        return self.line

    def _take(self, t: Number, h: Number, y: Tensor, lanes: np.ndarray) -> None:
        assert self.line is not None
        value = self.line.take(stage_times(t, h, (0.0,), y)[0], y, lanes)
        if self.slope is None:
            self.slope = value
        self.stale = np.zeros_like(lanes)

    @torch.no_grad()
    def error(self, change: Tensor | None = None) -> Tensor:
        current = self.current
        assert current is not None
        y = current.y
        if not y.numel():
            return torch.zeros_like(y)
        if not some(current.ok):
            return torch.full_like(y, math.nan)
        systems = current.line.systems
        stages = self.stages.reshape(-1, systems.count, systems.size)
        first = None if change is None else systems.rows(change)
        estimate = self.solver.estimate(current, stages, first)
        assert estimate is not None
        self.slope = current.initial
        return systems.state(estimate)

    def error_norm(self, norm: ErrorNorm) -> float:
        before, after = self.state[0].detach(), self.proposed[0].detach()
        error = self.error()
        ratio = norm(error, before, after)
        if ratio > 1 and self.solver.estimates_twice and not every(self._trusted):
            # A fast transient looks like an error unless it is damped twice (Hairer and Wanner).
            ratio = norm(self.error(error), before, after)
        self._trusted = np.array([ratio <= 1])
        return ratio

    def error_norms(self, norm: ErrorNorm) -> Tensor:
        """Return the error in units of the tolerance for every lane, in double precision."""
        before, after = self.state[0].detach(), self.proposed[0].detach()
        error = self.error()
        ratio = norm.each(error, before, after)
        if self.solver.estimates_twice:
            doubted = ratio > 1
            if len(self._trusted) == len(ratio):
                doubted &= ~torch.from_numpy(self._trusted).to(ratio.device)
            if bool(doubted.any()):
                ratio = torch.where(doubted, norm.each(self.error(error), before, after), ratio)
        self._trusted = (ratio <= 1).cpu().numpy()
        return ratio

    def accept(self) -> None:
        self.accept_lanes(np.ones(len(self.sizes), dtype=bool))

    def accept_lanes(self, lanes: np.ndarray) -> None:
        """Accept the attempt of some lanes."""
        current, line = self.current, self.line
        assert current is not None
        if not some(lanes) or line is None or not current.y.numel():
            self.state = self.proposed
            return
        slow = (current.used > 2) & (current.rate > SLOW)
        self.slope = self._next_slope(current, lanes)
        if every(lanes):
            self.stale = slow
            line.fresh[:] = False
            self.state, self.last, self.sizes_before = self.proposed, self.stages, self.sizes
            return
        self.stale = np.where(lanes, slow, self.stale)
        line.fresh &= ~lanes
        mask = torch.from_numpy(lanes).to(current.y.device)
        column = mask.view(-1, *(1,) * (current.y.dim() - 1))
        self.state = (torch.where(column, self.proposed[0], self.state[0]),)
        last = torch.zeros_like(self.stages) if self.last is None else self.last
        self.last = torch.where(column, self.stages, last)
        self.sizes_before = np.where(lanes, self.sizes, self.sizes_before)

    @torch.no_grad()
    def _next_slope(self, current: Attempt, lanes: np.ndarray) -> Tensor | None:
        """Return f where the next step begins, if the stages of this step determine it."""
        systems = current.line.systems
        stages = self.stages.reshape(-1, systems.count, systems.size)
        increment = self.solver.last_slope(current, stages)
        if increment is None:
            return None
        if every(lanes):
            return systems.state(increment / current.row_h)
        mask = torch.from_numpy(lanes).to(increment.device).unsqueeze(1)
        return systems.state(torch.where(mask, increment / current.row_h, current.first_slope()))


@dataclass
class PredictiveMemory(ControlMemory):
    """Predicts the step sizes of an implicit method from two errors, for one lane or for several.

    A size does not change where that saves new factors.

    Equation:
        factor = safety · e_n^{−1/k} · min(1, h_n/h_{n−1} · (e_{n−1}/e_n)^{1/k}),
        safety = s (2m + 1)/(2m + i)

    Symbols:
        e errors in units of the tolerance, h step sizes, k order of the estimate plus one, m
        corrections allowed, i corrections needed, s the usual safety.

    Reference:
        K. Gustafsson. Control-theoretic techniques for stepsize selection in implicit Runge–Kutta
        methods. ACM Transactions on Mathematical Software 20 (1994); E. Hairer, G. Wanner. Solving
        ordinary differential equations II, section IV.8.
    """

    stepper: ImplicitStepper | None = None
    size_before: Any = math.nan

    def next_factor(self, error: Any, accepted: Any) -> Any:
        """Return what step sizes are multiplied by: one where a change would save nothing."""
        stepper = self.stepper
        assert stepper is not None and stepper.current is not None
        current, control, k = stepper.current, self.control, self.order + 1
        parts = stepper.sizes, current.used, current.ok, stepper.stale
        if isinstance(error, Tensor):
            size, used, solved, stale = (torch.from_numpy(x).to(error.device) for x in parts)
        else:
            size, used, solved, stale = (x.item(0) for x in parts)
        size = abs(size)
        counted = choose(error > SMALLEST_ERROR, error, SMALLEST_ERROR)
        trend = size / self.size_before * (self.before / counted) ** (1 / k)
        trend = choose(trend < 1, trend, 1.0)
        safety = control.safety * (2 * current.iterations + 1) / (2 * current.iterations + used)
        factor = safety * counted ** (-1 / k) * trend
        onward = clip(factor, control.shrink, choose(self.rejected, 1.0, GROW))
        onward = choose(stale, onward, choose(onward < LEAST_GROWTH, 1.0, onward))
        retry = clip(factor, control.shrink, 0.9)
        retry = choose(solved, choose(finite(error), retry, 0.5), 0.5)
        self.before = choose(accepted, choose(counted > 1e-2, counted, 1e-2), self.before)
        self.size_before = choose(accepted, size, self.size_before)
        self.rejected = ~accepted if isinstance(accepted, Tensor) else not accepted
        return choose(accepted, onward, retry)
