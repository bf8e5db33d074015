"""The equations of a step's stages, and gradients by the implicit function theorem.

Equation:
    z_i = base_i + h Σ_j a_ij f(t_j, origin + z_j)

However the z were computed, their derivative is that of the equations at the solution: no
iteration is unrolled. A backward pass solves one system with the transposed derivative, and checks
the residual with products of the field itself. The field is evaluated once, at the solution: the
backward pass uses the graph of that evaluation, not what the field may have become since.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from undamped._base.errors import SolveError
from undamped.ode.dependencies import leaves_of
from undamped.ode.gradients.refused import refuse_gradients
from undamped.ode.methods.implicit.band import Band, solve_stages
from undamped.ode.methods.implicit.linear_solvers import gmres
from undamped.ode.methods.implicit.local_field import LocalField, Systems
from undamped.ode.methods.solver import Field, Number

if TYPE_CHECKING:
    from undamped.ode.methods.implicit.method import ImplicitMethod

_TWICE = (
    "Gradients of implicit steps can be taken once only. For gradients of gradients choose "
    "'rodas5p', or 'dopri5' or another explicit method with gradient='backprop'."
)


@dataclass(frozen=True)
class StageEquations:
    """The equations of some stages, all of a state's shape.

    Args:
        field: The field.
        times: Times of the stages.
        h: Step size; a column where samples have their own.
        matrix: The a, one row for each stage.
        base: What does not depend on the stages.
        origin: What is added to a stage where the field is evaluated.
        method: The method, which says how linear systems are solved.
        band: The diagonals of ∂f/∂y that the step was solved with, or None.
    """

    field: Field
    times: Sequence[Tensor]
    h: Number
    matrix: tuple[tuple[float, ...], ...]
    base: Tensor | None
    origin: Tensor
    method: ImplicitMethod
    band: Band | None = None

    def attach(self, solution: Tensor) -> Tensor:
        """Return the solution (stages, …) as a function of everything in the equations but it."""
        # The derivative is taken by the sum, not by z: autograd visits all that lies before what it
        # differentiates by if that is a leaf, and before the origin lie all earlier steps.
        states = [self.origin + z for z in solution.unbind()]
        if not self.origin.requires_grad:
            states = [state.requires_grad_() for state in states]
        values = [self.field(time, y) for time, y in zip(self.times, states, strict=True)]
        if not self._depend(states, values):
            return solution
        rest = solution - self.h * torch.tensordot(self._weights(solution), torch.stack(values), 1)
        if self.base is not None:
            rest = rest - self.base
        return _AtSolution.apply(solution, rest, self, *states, *values)

    def _depend(self, states: list[Tensor], values: list[Tensor]) -> bool:
        """Whether the equations have a graph to anything but the stages themselves."""
        if self.origin.requires_grad or (self.base is not None and self.base.requires_grad):
            return True
        return any(
            leaf is not state
            for state, value in zip(states, values, strict=True)
            for leaf in leaves_of([value])
        )

    def _weights(self, like: Tensor) -> Tensor:
        return torch.tensor(self.matrix, dtype=like.dtype, device=like.device)

    def solve_transposed(
        self, states: Sequence[Tensor], values: Sequence[Tensor], gradient: Tensor
    ) -> Tensor:
        """Return the w for which (∂rest/∂z)ᵀ w is the gradient, (stages, …).

        Args:
            states: Where the field was evaluated, one for each stage.
            values: The field there, with a graph to the states.
            gradient: Of whatever depends on the z.
        """
        fields = [
            LocalField(self.field, time, state, value=value)
            for time, state, value in zip(self.times, states, values, strict=True)
        ]
        weights = self._weights(gradient)

        def transposed(w: Tensor) -> Tensor:
            mixed = self.h * torch.tensordot(weights.T, w, 1)
            products = [local.vjp(x) for local, x in zip(fields, mixed.unbind(), strict=True)]
            return w - torch.stack(products)

        goal = torch.finfo(gradient.dtype).eps ** 0.6
        systems = Systems.by_row(gradient[0], len(self.h) if isinstance(self.h, Tensor) else 1)
        joined = systems.joined()
        for division in (systems, joined) if systems.count > 1 else (joined,):
            solution = self._directly(fields, division, gradient)
            if solution is not None:
                return self._checked(transposed, solution, gradient, goal)
        # One Krylov space for all systems would need more vectors, and be right however they are
        # coupled: it is tried last, where one for each does not converge.
        solution, residual = self._by_products(transposed, systems, gradient, goal)
        if residual > goal and systems.count > 1:
            solution, residual = self._by_products(transposed, joined, gradient, goal)
        if residual <= goal:
            return solution
        raise _not_converged(residual, goal)

    def _directly(
        self, fields: list[LocalField], systems: Systems, gradient: Tensor
    ) -> Tensor | None:
        """Solve with a matrix for each system; None if they are coupled, or too large for that."""
        stages, count, size = len(fields), systems.count, systems.size
        h = self.h.reshape(-1, 1, 1).to(gradient.dtype) if isinstance(self.h, Tensor) else self.h
        right = gradient.reshape(stages, count, size)
        for band in (self.band, None) if self.band is not None else (None,):
            if band is None and not self.method.forms_full(systems):
                continue
            jacobians = [local.jacobian(systems, band) for local in fields]
            matrices = [part.to(gradient.dtype) for part in jacobians if part is not None]
            if len(matrices) < stages:
                continue
            if band is None:
                return self._in_full(matrices, h, right).reshape(gradient.shape)
            return solve_stages(matrices, h, self.matrix, band, right).reshape(gradient.shape)
        return None

    def _in_full(self, jacobians: list[Tensor], h: Number, right: Tensor) -> Tensor:
        """Solve with full matrices, all stages of a system in one; (stages, systems, size)."""
        stages, count, size = right.shape
        matrix = right.new_zeros(count, stages, size, stages, size)
        for j, jacobian in enumerate(jacobians):
            scaled = h * jacobian
            for i in range(stages):
                matrix[:, i, :, j, :] -= self.matrix[i][j] * scaled
        matrix = matrix.view(count, stages * size, stages * size)
        matrix.diagonal(dim1=1, dim2=2).add_(1.0)
        columns = right.transpose(0, 1).reshape(count, -1, 1)
        solution = torch.linalg.solve_ex(matrix.mT, columns)[0]
        return solution.view(count, stages, size).transpose(0, 1)

    @staticmethod
    def _checked(transposed: Any, solution: Tensor, gradient: Tensor, goal: float) -> Tensor:
        """Return the solution if its residual, by products of the field itself, is small."""
        rest = gradient - transposed(solution)
        scale = torch.maximum(gradient.abs().amax(), solution.abs().amax())
        residual = float(rest.abs().amax() / scale.clamp_min(torch.finfo(scale.dtype).tiny))
        # A gradient that is not finite is returned unchanged.
        if residual <= max(1.0, float(len(gradient))) * goal or residual != residual:
            return solution
        raise _not_converged(residual, goal)

    def _by_products(
        self, transposed: Any, systems: Systems, gradient: Tensor, goal: float
    ) -> tuple[Tensor, float]:
        stages, count, size = len(self.times), systems.count, systems.size

        def rows(w: Tensor) -> Tensor:
            return w.reshape(stages, count, size).transpose(0, 1).reshape(count, -1)

        def state(w: Tensor) -> Tensor:
            return w.view(count, stages, size).transpose(0, 1).reshape(gradient.shape)

        solution, residual = gmres(
            lambda w: rows(transposed(state(w))),
            rows(gradient),
            tolerance=goal,
            dimension=max(50, self.method.krylov_dimension),
        )
        return state(solution), residual


class _AtSolution(torch.autograd.Function):
    """The solution as a function of everything in the equations but z: dz = −(∂G/∂z)⁻¹ dG."""

    @staticmethod
    def forward(
        ctx: Any, solution: Tensor, rest: Tensor, equations: StageEquations, *evaluations: Tensor
    ) -> Tensor:
        ctx.equations = equations
        ctx.save_for_backward(rest, *evaluations)
        return solution.clone()

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Tensor | None, ...]:
        rest, *evaluations = ctx.saved_tensors
        half = len(evaluations) // 2
        states, values = evaluations[:half], evaluations[half:]
        with torch.no_grad():
            w = ctx.equations.solve_transposed(states, values, gradients[0])
        (grad_rest,) = refuse_gradients([-w], [*gradients, rest], _TWICE)
        return None, grad_rest, None, *(None for _ in evaluations)


def _not_converged(residual: float, goal: float) -> SolveError:
    return SolveError(
        "The linear equations for the gradient of an implicit step were solved to a residual of "
        f"{residual:.1e} instead of {goal:.0e}. Give the method a larger krylov_dimension or "
        "dense_size, such as Radau5(krylov_dimension=200), or take smaller steps."
    )
