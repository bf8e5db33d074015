"""The adjoint of samples that have a step size each.

State and adjoint of a sample go back in time together, with steps chosen for that sample. What
reaches the parameters is a sum over samples and so has no step size: it is added up by the
method's own weights over the accepted steps, all samples in one product.

Equation:
    g = −Σ_steps Σ_stages b_s Σ_i h_i a_i ∂f/∂θ

Symbols:
    b_s weights of the method, h_i step of sample i (negative: back in time), a_i its adjoint at
    the stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from undamped.ode.dependencies import LateTensors, next_node
from undamped.ode.field import CountedField
from undamped.ode.gradients.batch_adjoint import add_gradients, refuse_drift, refuse_failure
from undamped.ode.gradients.gradient import Gradients
from undamped.ode.loop.norm import ErrorNorm
from undamped.ode.methods.combine import combine_terms
from undamped.ode.methods.explicit.runge_kutta import RungeKutta
from undamped.ode.settings import Settings
from undamped.ode.state.packing import Packing, Part

if TYPE_CHECKING:
    from undamped.ode.problem import Problem


class SampleAdjoint:
    """The adjoint solve with a step size for every sample.

    Args:
        solver: The method.
        field: The field, counted.
        times: Output times of the solve, (outputs, batch).
        values: Its outputs, (outputs, batch, …).
        tensors: What the field depends on, besides the state.
        settings: Tolerances and limits of the backward solve.
    """

    def __init__(
        self,
        solver: RungeKutta,
        field: CountedField,
        times: Tensor,
        values: Tensor,
        tensors: Sequence[Tensor],
        settings: Settings,
    ) -> None:
        self.solver, self.field = solver, field
        self.tensors, self.settings = list(tensors), replace(settings, first_step=None)
        self.totals: list[Tensor | None] = [None] * len(self.tensors)
        self.late = LateTensors(self.tensors)
        self.shape = values[0].shape
        self.column = (self.shape[0],) + (1,) * (len(self.shape) - 1)
        # Outputs that a failed sample did not reach are no stops: all its later times are its last.
        unreached = ~torch.isfinite(values)
        self.unreached = unreached.flatten(2).any(2) if values.dim() > 2 else unreached
        last = (self.unreached.logical_not().long().cumsum(0)).argmax(0)
        sample = torch.arange(self.shape[0], device=values.device)
        self.times = torch.where(self.unreached, times[last, sample], times)
        self.values = torch.where(self._columns(self.unreached), values[last, sample], values)

    @classmethod
    def of(cls, problem: Problem, values: Tensor) -> SampleAdjoint:
        """Return the adjoint of every sample, from where that sample ended."""
        run = problem.run
        solver, settings = problem.backward or (problem.solver, problem.settings)
        assert run is not None and isinstance(solver, RungeKutta)
        times = run.times
        if run.event_times is not None:
            ends = torch.where(run.event_times.isnan(), times[-1], run.event_times)
            times = torch.cat((times, ends.unsqueeze(0)))
        return cls(solver, problem.field, times, values, problem.tensors, settings)

    def solve(self, gradients: Tensor) -> Gradients:
        """Return the gradients with respect to y0 and the tensors."""
        from undamped.ode.loop.sample import PerSampleIntegration

        batch = self.shape[0]
        if not self.values[0].numel():
            return gradients.sum(0), self.totals
        gradients = gradients.masked_fill(self._columns(self.unreached), 0.0)
        adjoint = gradients[-1].reshape(batch, -1)
        width = adjoint.shape[1]
        norm = self._norm(width)
        for number in range(len(self.times) - 1, 0, -1):
            start = torch.cat((self.values[number].reshape(batch, -1), adjoint), dim=1)
            field = CountedField(self._augmented, Packing.of(start))
            run = PerSampleIntegration(
                field,
                self.solver,
                start,
                torch.stack((self.times[number], self.times[number - 1])),
                self.settings,
                watch=self._add_up if self.tensors else None,
                norm=norm,
            )
            run.run()
            refuse_failure(run)
            state, before, after = run.y[:, :width], self.values[number - 1], self.values[number]
            refuse_drift(state.view(self.shape), before, after, self.settings)
            adjoint = run.y[:, width:] + gradients[number - 1].reshape(batch, -1)
        self.late.refuse()
        return adjoint.view(self.shape), self.totals

    def _norm(self, width: int) -> ErrorNorm:
        """Return the norm of state and adjoint, with tolerances and members of the state."""
        inner = ErrorNorm.of(self.settings, self.field.packing)

        def both(tolerance: float | Tensor) -> float | Tensor:
            if not isinstance(tolerance, Tensor):
                return tolerance
            return tolerance.reshape(self.shape[0], -1).repeat(1, 2)

        parts = inner.parts
        if parts is not None and self.field.packing.single:
            parts = (Part(0, 2 * width, parts[0].reals),)
        elif parts is not None:
            parts += tuple(Part(part.low + width, part.high + width, part.reals) for part in parts)
        return ErrorNorm(both(inner.rtol), both(inner.atol), parts)

    def _columns(self, mask: Tensor) -> Tensor:
        return mask.view(*mask.shape, *self.column[1:])

    def _halves(self, state: Tensor) -> tuple[Tensor, Tensor]:
        y, adjoint = state.chunk(2, dim=1)
        return y.reshape(self.shape), adjoint.reshape(self.shape)

    def _augmented(self, t: Tensor, state: Tensor) -> Tensor:
        y, adjoint = self._halves(state)
        with torch.enable_grad():
            begun = next_node()
            leaf = y.detach().requires_grad_()
            slope = self.field(t.reshape(self.column), leaf)
            self.late.look([slope], [leaf], begun)
        vjp = None
        if slope.requires_grad:
            (vjp,) = torch.autograd.grad(slope, [leaf], -adjoint, allow_unused=True)
        vjp = torch.zeros_like(y) if vjp is None else vjp
        return torch.cat((slope.detach().flatten(1), vjp.flatten(1)), dim=1)

    def _add_up(
        self, rows: Tensor, t: Tensor, h: Tensor, y: Tensor, y1: Tensor, stages: list[Tensor]
    ) -> None:
        """Add what an accepted step contributes to the gradients of the tensors."""
        tableau = self.solver.tableau
        size = h.view(-1, 1)
        slopes, cotangents = [], []
        for stage, weight in tableau.weight_terms:
            state = y
            if stage:
                state = combine_terms(y, size, tableau.row_terms[stage - 1], stages)
            value, adjoint = self._halves(state)
            time = (t + tableau.nodes[stage] * h).view(self.column).to(value.dtype)
            with torch.enable_grad():
                slope = self.field(time, value.detach())
            if slope.requires_grad:
                slopes.append(slope)
                cotangents.append(-weight * h.view(self.column).to(value.dtype) * adjoint)
        if not slopes:
            return
        gradients = torch.autograd.grad(slopes, self.tensors, cotangents, allow_unused=True)
        add_gradients(self.totals, gradients)
