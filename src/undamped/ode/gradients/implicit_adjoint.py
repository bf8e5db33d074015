"""The adjoint method for implicit solvers, whose steps need the derivative of what they solve.

State and adjoint go back in time side by side, a sample to a row, so that samples stay systems of
their own. Their derivative holds second derivatives of the field. The parameters take no part in
the equations of a step: what reaches them is added up over accepted steps, at the points by whose
weights the method itself integrates.

Equation:
    g = −Σ_steps Σ_i b_i h a_iᵀ ∂f/∂θ(t_i, y_i)
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from undamped.ode.callbacks import pass_on
from undamped.ode.dependencies import next_node
from undamped.ode.field import CountedField
from undamped.ode.gradients.batch_adjoint import BatchAdjoint, add_gradients, refuse_failure
from undamped.ode.loop.norm import ErrorNorm, largest
from undamped.ode.methods.implicit.method import ImplicitMethod
from undamped.ode.methods.implicit.rodas import RosenbrockStepper
from undamped.ode.methods.implicit.stepper import ImplicitStepper
from undamped.ode.methods.solver import Stepper
from undamped.ode.state.packing import Packing


class ImplicitAdjoint(BatchAdjoint):
    """The adjoint solve of an implicit method; arguments as for `BatchAdjoint`."""

    def solve(self, gradients: Tensor) -> tuple[Tensor, list[Tensor | None]]:
        """Return the gradients with respect to y0 and the tensors."""
        from undamped.ode.loop.batch import Integration

        self.shape = self.values[0].shape
        self.totals: list[Tensor | None] = [None] * len(self.tensors)
        settings = replace(self.settings, first_step=self.first_step)
        adjoint, norm = gradients[-1], self._norm_of_both()
        solver = self.solver
        if isinstance(solver, ImplicitMethod):
            solver = solver.for_another_field()

        def both_slopes(t: Tensor, state: Tensor) -> Tensor:
            return self._both_slopes(t, state)

        pass_on(self.field.function, both_slopes)
        for number in range(len(self.times) - 1, 0, -1):
            start = self._join(self.values[number], adjoint)
            field = CountedField(both_slopes, Packing.of(start))
            times = self.times[number], self.times[number - 1]
            first = self._first(field, times, start)
            watch = self._add_up if self.tensors else None
            run = Integration(
                field, solver, start, times, settings, first=first, watch=watch, norm=norm
            )
            run.run()
            if run.next_step is not None:
                settings = replace(settings, first_step=run.next_step)
            refuse_failure(run)
            state, adjoint = self._halves(run.y)
            self._refuse_drift(number, state)
            adjoint = adjoint + gradients[number - 1]
        self.late.refuse()
        return adjoint, self.totals

    def _norm_of_both(self) -> ErrorNorm:
        """Return the norm of state and adjoint, which both count."""
        inner = ErrorNorm.of(self.settings, self.field.packing)
        if inner.compiled:
            return inner

        def both(tolerance: float | Tensor) -> float | Tensor:
            return self._join(tolerance, tolerance) if isinstance(tolerance, Tensor) else tolerance

        def function(ratio: Tensor) -> float:
            return largest(inner.reduce(half) for half in self._halves(ratio))

        return ErrorNorm(both(inner.rtol), both(inner.atol), None, function)

    def _join(self, y: Tensor, adjoint: Tensor) -> Tensor:
        if y.dim() > 1:
            return torch.cat((y.flatten(1), adjoint.flatten(1)), dim=1)
        return torch.cat((y.reshape(-1), adjoint.reshape(-1)))

    def _halves(self, state: Tensor) -> tuple[Tensor, Tensor]:
        y, adjoint = state.chunk(2, dim=-1)
        return y.reshape(self.shape), adjoint.reshape(self.shape)

    def _both_slopes(self, t: Tensor, state: Tensor) -> Tensor:
        """Return the slopes of both, with a graph where one is being built."""
        create_graph = torch.is_grad_enabled() and state.requires_grad
        with torch.enable_grad():
            begun = next_node()
            y, adjoint = self._halves(state)
            if not create_graph:
                y = y.detach().requires_grad_()
            slope = self.field(t, y)
            if not create_graph:
                self.late.look([slope], [y], begun)
            vjp = None
            if slope.requires_grad:
                (vjp,) = torch.autograd.grad(
                    slope, [y], -adjoint, allow_unused=True, create_graph=create_graph
                )
            vjp = torch.zeros_like(y) if vjp is None else vjp
        slope = slope if create_graph else slope.detach()
        return self._join(slope.to(state.dtype), vjp.to(state.dtype))

    def _add_up(self, stepper: Stepper, t: float, h: float, end: float) -> None:
        """Add what a step that is about to be accepted contributes to the tensors."""
        assert isinstance(stepper, ImplicitStepper | RosenbrockStepper)
        slopes, cotangents = [], []
        window = self.settings.jumps.window(t, h)
        for weight, node, state in stepper.points:
            y, adjoint = self._halves(state.detach())
            with torch.enable_grad(), self.field.within(window):
                slope = self.field(y.new_tensor(t + node * h), y)
            if slope.requires_grad:
                slopes.append(slope)
                cotangents.append((-weight * h * adjoint).to(slope.dtype))
        if not slopes:
            return
        gradients = torch.autograd.grad(slopes, self.tensors, cotangents, allow_unused=True)
        add_gradients(self.totals, gradients)
