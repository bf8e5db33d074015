"""The equations of a step's stages, and gradients by the implicit function theorem.

Equation:
    z_i = base_i + h Σ_j a_ij f(t_j, origin + z_j)

However the z were found, their derivative is that of the equations at the solution: nothing is
unrolled. One solve with the transposed derivative pulls a gradient back, and whether that system
was really solved is looked at with products of the field itself. The field is evaluated once, at
the solution: going back meets the graph that was kept, not what the field may have become since.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from undamped._base.errors import SolveError, explain
from undamped.ode.dependencies import leaves_of
from undamped.ode.gradients.refused import refuse_gradients
from undamped.ode.methods.implicit.band import Band, solve_stages
from undamped.ode.methods.implicit.krylov import gmres
from undamped.ode.methods.implicit.linearization import LinearAlgebra
from undamped.ode.methods.implicit.local_field import CoupledError, LocalField
from undamped.ode.methods.implicit.systems import Systems
from undamped.ode.methods.solver import Field, Number

_TWICE = explain(
    "gradients of gradients of a solve",
    expected="an explicit method, or 'rodas5p'",
    got="an implicit one, whose gradients can be taken once",
    remedy="Choose 'dopri5' or another explicit method with gradient='backprop'.",
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
        algebra: How linear systems are solved.
        band: The diagonals of ∂f/∂y that the step was solved with, if it was.
    """

    field: Field
    times: Sequence[Tensor]
    h: Number
    matrix: tuple[tuple[float, ...], ...]
    base: Tensor | None
    origin: Tensor
    algebra: LinearAlgebra
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

    def pull(self, states: Sequence[Tensor], values: Sequence[Tensor], gradient: Tensor) -> Tensor:
        """Return the w for which (∂rest/∂z)ᵀ w is the gradient, (stages, …).

        Args:
            states: Where the field was evaluated, one for each stage.
            values: The field there, with a graph to the states.
            gradient: Of whatever depends on the z.
        """
        places = [
            LocalField(self.field, time, state, value=value)
            for time, state, value in zip(self.times, states, values, strict=True)
        ]
        weights = self._weights(gradient)

        def transposed(w: Tensor) -> Tensor:
            mixed = self.h * torch.tensordot(weights.T, w, 1)
            pulled = [place.pull(part) for place, part in zip(places, mixed.unbind(), strict=True)]
            return w - torch.stack(pulled)

        goal = torch.finfo(gradient.dtype).eps ** 0.6
        systems = Systems.by_row(gradient[0], len(self.h) if isinstance(self.h, Tensor) else 1)
        whole = systems.together()
        for one in (systems, whole) if systems.count > 1 else (whole,):
            found = self._directly(places, one, gradient)
            if found is not None:
                return self._checked(transposed, found, gradient, goal)
        # One Krylov space for all systems would need more vectors, and be right however they are
        # coupled: it is what is left to try where one for each does not get there.
        found, left = self._by_products(transposed, systems, gradient, goal)
        if left > goal and systems.count > 1:
            found, left = self._by_products(transposed, whole, gradient, goal)
        if left <= goal:
            return found
        raise _not_met(left, goal)

    def _directly(
        self, places: list[LocalField], systems: Systems, gradient: Tensor
    ) -> Tensor | None:
        """Solve with a matrix for each system; None if they are coupled, or too large for that."""
        stages, count, size = len(places), systems.count, systems.size
        h = self.h.reshape(-1, 1, 1).to(gradient.dtype) if isinstance(self.h, Tensor) else self.h
        right = gradient.reshape(stages, count, size)
        found = None
        if self.band is not None:
            stored = [place.band(systems, self.band) for place in places]
            there = [part.to(gradient.dtype) for part in stored if part is not None]
            if len(there) == stages:
                found = solve_stages(there, h, self.matrix, self.band, right)
        if found is None and self.algebra.forms_full(systems):
            with contextlib.suppress(CoupledError):
                found = self._in_full([place.jacobian(systems) for place in places], h, right)
        return None if found is None else found.reshape(gradient.shape)

    def _in_full(self, jacobians: list[Tensor], h: Number, right: Tensor) -> Tensor:
        """Solve with full matrices, all stages of a system in one; (stages, systems, size)."""
        stages, count, size = right.shape
        whole = right.new_zeros(count, stages, size, stages, size)
        for j, jacobian in enumerate(jacobians):
            scaled = h * jacobian.to(right.dtype)
            for i in range(stages):
                whole[:, i, :, j, :] -= self.matrix[i][j] * scaled
        whole = whole.view(count, stages * size, stages * size)
        whole.diagonal(dim1=1, dim2=2).add_(1.0)
        columns = right.transpose(0, 1).reshape(count, -1, 1)
        found = torch.linalg.solve_ex(whole.mT, columns)[0]
        return found.view(count, stages, size).transpose(0, 1)

    @staticmethod
    def _checked(transposed: Any, found: Tensor, gradient: Tensor, goal: float) -> Tensor:
        """Look at the residual with products of the field itself."""
        rest = gradient - transposed(found)
        scale = torch.maximum(gradient.abs().amax(), found.abs().amax())
        left = float(rest.abs().amax() / scale.clamp_min(torch.finfo(scale.dtype).tiny))
        # What is not finite came in with the gradient, and goes out with it.
        if left <= max(1.0, float(len(gradient))) * goal or left != left:
            return found
        raise _not_met(left, goal)

    def _by_products(
        self, transposed: Any, systems: Systems, gradient: Tensor, goal: float
    ) -> tuple[Tensor, float]:
        stages, count, size = len(self.times), systems.count, systems.size

        def rows(w: Tensor) -> Tensor:
            return w.reshape(stages, count, size).transpose(0, 1).reshape(count, -1)

        def state(w: Tensor) -> Tensor:
            return w.view(count, stages, size).transpose(0, 1).reshape(gradient.shape)

        found, left = gmres(
            lambda w: rows(transposed(state(w))),
            rows(gradient),
            tolerance=goal,
            dimension=max(50, self.algebra.krylov_dimension),
        )
        return state(found), left


class _AtSolution(torch.autograd.Function):
    """The solution as a function of everything in the equations but z: dz = −(∂G/∂z)⁻¹ dG."""

    @staticmethod
    def forward(
        ctx: Any, solution: Tensor, rest: Tensor, equations: StageEquations, *places: Tensor
    ) -> Tensor:
        ctx.equations = equations
        ctx.save_for_backward(rest, *places)
        return solution.clone()

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Tensor | None, ...]:
        rest, *places = ctx.saved_tensors
        states, values = places[: len(places) // 2], places[len(places) // 2 :]
        with torch.no_grad():
            w = ctx.equations.pull(states, values, gradients[0])
        (grad_rest,) = refuse_gradients([-w], [*gradients, rest], _TWICE)
        return None, grad_rest, None, *(None for _ in places)


def _not_met(left: float, goal: float) -> SolveError:
    return SolveError(
        explain(
            "the gradient of an implicit step",
            expected=f"its linear equations solved to a residual of {goal:.0e}",
            got=f"{left:.1e}",
            remedy="Give the method a larger krylov_dimension or dense_size, such as "
            "Radau5(krylov_dimension=200), or take smaller steps.",
        )
    )
