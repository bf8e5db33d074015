"""An implicit method during one solve.

The derivative of the field is kept over steps and taken anew only when corrections shrink slowly;
its factors are kept while the step size stays; corrections stop at a part of the step's tolerance.
Where there is no tolerance, with fixed steps or when a step is repeated for its gradient, they go
on to rounding.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from undamped.ode.loop.control import ControlMemory, StepControl
from undamped.ode.loop.norm import ErrorNorm
from undamped.ode.methods.implicit.control import PredictiveMemory
from undamped.ode.methods.implicit.convergence import allowed
from undamped.ode.methods.implicit.lanes import every, some
from undamped.ode.methods.implicit.linearization import Linearization
from undamped.ode.methods.implicit.method import Attempt, ImplicitMethod
from undamped.ode.methods.solver import Field, Number, Stepper
from undamped.ode.methods.stage_times import stage_times

ROUNDS = 6
"""Times that the derivative is taken anew for a step that has to be solved to rounding."""
PATIENCE = 40
"""Corrections allowed between two derivatives there."""
SLOW = 1e-3
"""A rate of corrections above which a new derivative pays."""


class ImplicitStepper(Stepper):
    """Derivative, factors and stages from step to step.

    Args:
        solver: The method.
        field: The field.
        y: State at the start.
        first: f at the start, where it is known.
    """

    solver: ImplicitMethod

    def __init__(
        self, solver: ImplicitMethod, field: Field, y: Tensor, first: Tensor | None
    ) -> None:
        self.solver, self.field, self.state, self.proposed = solver, field, (y,), (y,)
        self.norm: ErrorNorm | None = None
        self.line: Linearization | None = None
        self.made: Attempt | None = None
        self._trusted = np.zeros(1, dtype=bool)
        """Lanes whose last attempt was accepted: a second look at an error is not worth it then."""
        self._slope = None if first is None else first.detach()
        """f where the next step begins, once it is known; evaluated once however often that is
        attempted."""
        self.stages = y.new_zeros(0)
        self._last: Tensor | None = None
        self.sizes = np.full(1, np.nan)
        """Step sizes of the last attempt, one for each lane."""
        self.wanted = np.ones(1, dtype=bool)
        """Lanes whose next attempt takes the derivative anew, and so needs new factors anyway."""
        self._known = self._sizes_before = np.zeros(1)
        self._kappa = 0.0
        """Part of the tolerance that the equations may leave, once there is one."""

    def memory(self, control: StepControl, norm: ErrorNorm) -> ControlMemory:
        """Take the tolerance from here on, and return what chooses step sizes."""
        self.norm, self._kappa = norm, allowed(norm, self.state[0])
        assert self.solver.error_order is not None
        if control != StepControl():
            return ControlMemory(control, self.solver.error_order)
        return PredictiveMemory(control, self.solver.error_order, stepper=self)

    @property
    def jacobians(self) -> int:
        """How often the derivative was taken."""
        return 0 if self.line is None else self.line.count

    @property
    def points(self) -> list[tuple[float, float, Tensor]]:
        """Weights, nodes and states by which the method integrates along the last attempt."""
        return self.solver.points(self.state[0], self.stages)

    def attempt(self, t: Number, h: Number) -> Tensor:
        """Attempt a step."""
        y = self.state[0]
        if not y.numel():
            self.made = self._begin(t, h, y.detach(), self._linearization(y, 1))
            self.proposed = (y.clone(),)
            return self.proposed[0]
        with torch.no_grad():
            made, stages = self._solve(t, h, y.detach())
        self.made, self.stages = made, stages.reshape(len(stages), *y.shape)
        if not some(made.ok):
            y1 = torch.full_like(y, math.nan)
        else:
            lost = None
            if not every(made.ok):
                # What did not converge must not be in the graph: zero times infinity is not
                # zero.
                lost = torch.from_numpy(~made.ok).to(y.device).view(-1, *(1,) * (y.dim() - 1))
                self.stages = self.stages.masked_fill(lost, 0.0)
            y1 = self.solver.end(self.field, t, h, y, self.stages, made.line.band)
            if lost is not None:
                y1 = y1.masked_fill(lost, math.nan)
        self.proposed = (y1,)
        return y1

    def _solve(self, t: Number, h: Number, y: Tensor) -> tuple[Attempt, Tensor]:
        """Solve the stages; take the derivative anew where that may help."""
        if isinstance(h, Tensor):
            sizes = h.detach().double().reshape(-1).cpu().numpy()
        else:
            sizes = np.array([h])
        line = self._linearization(y, len(sizes))
        if some(self.wanted):
            self._take(t, h, y, self.wanted)
        self.sizes = sizes
        start: Tensor | None = None
        rounds = ROUNDS if self.norm is None else 2
        while True:
            rounds -= 1
            made = self._begin(t, h, y, line)
            line.met = True
            line.prepare(made.row_h, sizes)
            stages = self.solver.solve_stages(made, start)
            self._slope = made.initial
            if not line.met:
                made.ok[:] = False
            self._known = made.known
            if every(made.ok) or not rounds:
                return made, stages
            stale = ~made.ok & ~line.fresh
            if self.norm is None:
                # Whatever it takes: the derivative where the solution seems to be, and on from it.
                start = torch.nan_to_num(stages, nan=0.0, posinf=0.0, neginf=0.0)
                near = line.systems.state(made.rows + start[-1])
                line.take(stage_times(t, h, self.solver.nodes[-1:], y)[0], near, ~made.ok)
                line.fresh[:] = False
                start = start.reshape(len(start), line.systems.count, line.systems.size)
            elif stale.any():
                self._take(t, h, y, stale)
            else:
                return made, stages

    def _linearization(self, y: Tensor, lanes: int) -> Linearization:
        if self.line is None or self.line.lanes != lanes:
            self.line = Linearization(self.field, y, self.solver.shifts, self.solver.algebra, lanes)
            self.wanted = np.ones(lanes, dtype=bool)
            self._known = np.ones(lanes)
            self._last = None
        return self.line

    def _take(self, t: Number, h: Number, y: Tensor, lanes: np.ndarray) -> None:
        assert self.line is not None
        value = self.line.take(stage_times(t, h, (0.0,), y)[0], y, lanes)
        if self._slope is None:
            self._slope = value
        self.wanted = np.zeros_like(lanes)

    def _begin(self, t: Number, h: Number, y: Tensor, line: Linearization) -> Attempt:
        rows = line.systems.rows(y)
        if self.norm is None:
            # Simplified corrections shrink by a factor each: their rounding is not to be reached.
            weights = 1 / (1 + rows.abs())
            kappa, most = torch.finfo(y.dtype).eps ** 0.75, PATIENCE
        else:
            weights = line.systems.rows(self.norm.weights(y))
            kappa, most = self._kappa, self.solver.newton_iterations
        last = ratio = None
        if self._last is not None:
            last = self._last.reshape(len(self._last), *rows.shape)
            ratio = np.zeros_like(self.sizes)
            np.divide(self.sizes, self._sizes_before, out=ratio, where=self._sizes_before != 0)
        return Attempt(t, h, y, line, weights, kappa, most, self._known, self._slope, last, ratio)

    @torch.no_grad()
    def error(self, change: Tensor | None = None) -> Tensor:
        """Return the error estimate of the last attempt."""
        made = self.made
        assert made is not None
        y = made.y
        if not y.numel():
            return torch.zeros_like(y)
        if not some(made.ok):
            return torch.full_like(y, math.nan)
        systems = made.line.systems
        stages = self.stages.reshape(-1, systems.count, systems.size)
        again = None if change is None else systems.rows(change)
        found = self.solver.estimate(made, stages, again)
        assert found is not None
        self._slope = made.initial
        return systems.state(found)

    def error_norm(self, norm: ErrorNorm) -> float:
        """Return the error in units of the tolerance."""
        before, after = self.state[0].detach(), self.proposed[0].detach()
        error = self.error()
        found = norm(error, before, after)
        if found > 1 and self.solver.looks_twice and not every(self._trusted):
            # A fast transient looks like an error unless it is damped twice (Hairer and Wanner).
            found = norm(self.error(error), before, after)
        self._trusted = np.array([found <= 1])
        return found

    def error_norms(self, norm: ErrorNorm) -> Tensor:
        """Return the same for every lane, in double precision."""
        before, after = self.state[0].detach(), self.proposed[0].detach()
        error = self.error()
        found = norm.each(error, before, after)
        if self.solver.looks_twice:
            doubted = found > 1
            if len(self._trusted) == len(found):
                doubted &= ~torch.from_numpy(self._trusted).to(found.device)
            if bool(doubted.any()):
                found = torch.where(doubted, norm.each(self.error(error), before, after), found)
        self._trusted = (found <= 1).cpu().numpy()
        return found

    def accept(self) -> None:
        """Keep the attempt."""
        self.accept_lanes(np.ones(len(self.sizes), dtype=bool))

    def accept_lanes(self, lanes: np.ndarray) -> None:
        """Keep the attempt of some lanes."""
        made, line = self.made, self.line
        assert made is not None
        if not some(lanes) or line is None or not made.y.numel():
            self.state = self.proposed
            return
        slow = (made.used > 2) & (made.rate > SLOW)
        self._slope = self._next_slope(made, lanes)
        if every(lanes):
            self.wanted = slow
            line.fresh[:] = False
            self.state, self._last, self._sizes_before = self.proposed, self.stages, self.sizes
            return
        self.wanted = np.where(lanes, slow, self.wanted)
        line.fresh &= ~lanes
        mask = torch.from_numpy(lanes).to(made.y.device)
        column = mask.view(-1, *(1,) * (made.y.dim() - 1))
        self.state = (torch.where(column, self.proposed[0], self.state[0]),)
        known = torch.zeros_like(self.stages) if self._last is None else self._last
        self._last = torch.where(column, self.stages, known)
        self._sizes_before = np.where(lanes, self.sizes, self._sizes_before)

    @torch.no_grad()
    def _next_slope(self, made: Attempt, lanes: np.ndarray) -> Tensor | None:
        """Return f where the next step begins, if the stages of this one say what it is."""
        systems = made.line.systems
        stages = self.stages.reshape(-1, systems.count, systems.size)
        found = self.solver.last_slope(made, stages)
        if found is None:
            return None
        if every(lanes):
            return systems.state(found / made.row_h)
        mask = torch.from_numpy(lanes).to(found.device).unsqueeze(1)
        return systems.state(torch.where(mask, found / made.row_h, made.first_slope()))
