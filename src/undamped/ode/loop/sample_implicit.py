"""Implicit methods with a step size for every sample.

All samples solve the equations of their own steps at once. Each has its own derivative, factors and
corrections: one that converges waits for the others unchanged, one that fails takes a shorter step
while they go on.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from undamped.ode.loop.control import ControlMemory
from undamped.ode.loop.sample import PerSampleIntegration
from undamped.ode.methods.implicit.control import PredictiveMemory
from undamped.ode.methods.implicit.stepper import ImplicitStepper
from undamped.ode.record import Status


class ImplicitPerSample(PerSampleIntegration):
    """One solve by an implicit method; arguments as for `PerSampleIntegration`."""

    def _loop(self) -> None:
        solver: Any = self.solver
        assert solver.error_order is not None and self.event is None and self.watch is None
        h = self._first_steps(solver.error_order)
        stepper = ImplicitStepper(solver, self.field, self.y, self.first)
        memory = stepper.memory(self.settings.control, self.norm)
        if not isinstance(memory, PredictiveMemory):
            one, none = torch.ones_like(h), torch.zeros_like(h, dtype=torch.bool)
            memory = ControlMemory(self.settings.control, solver.error_order, one, one, none)
        last_output = self.times.shape[0] - 1
        everything = torch.arange(len(h), device=h.device)
        for attempts in range(self.settings.max_steps + 1):
            self._skip_empty_intervals()
            active = self.index <= last_output
            if not bool(active.any()):
                return
            if attempts == self.settings.max_steps:
                rows = active.nonzero().squeeze(1)
                self._fail(rows, [Status.MAX_STEPS] * len(rows), h)
                return
            target = self.times.gather(0, self.index.clamp_max(last_output).unsqueeze(0))[0]
            remaining = torch.where(active, (target - self.t).abs(), torch.zeros_like(h))
            landing = h >= remaining * (1 - 1e-12)
            size = torch.where(landing, remaining, h)
            signed = size * self.direction
            counted = self.field.count
            y1 = stepper.attempt(self.t.view(self.column), signed.view(self.column))
            ratio = stepper.error_norms(self.norm)
            if self.tangent is not None:
                attempt = self.t.view(self.column), signed.view(self.column)
                ratio = self.tangent.error_norms(everything, ratio, self.y, y1, attempt)
            self.statistics.sample_evaluations += (self.field.count - counted) * len(h)
            good = (ratio <= 1) & active
            stepper.accept_lanes(good.cpu().numpy())
            self._advance(everything, good, _finite(y1, self.y, good), signed, landing, target)
            if self.tangent is not None:
                self.tangent.accept_rows(everything, good)
            factor = memory.next_factor(ratio, good)
            h = self._resize(h, size, everything, factor, ratio, good, landing, active)
            stepper.state = (self.y,)


def _finite(new: Tensor, old: Tensor, good: Tensor) -> Tensor:
    """Return the new rows that are good, and the old ones for the others."""
    return torch.where(good.view(-1, *(1,) * (new.dim() - 1)), new, old)
