"""Newton's method with Krylov solves, and gradients by the implicit function theorem.

Derivatives of the field are applied to vectors by forward differentiation; the largest thing
kept is a handful of vectors per sample. Going back, the equations are not unrolled: one solve
with the transposed derivative gives the gradient at the solution.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from undamped.errors import explain
from undamped.solvers.gradients.first_order_only import first_order_only
from undamped.solvers.methods.implicit.krylov import gmres


class Equations(ABC):
    """Equations G(z) = 0 for the unknowns of one step, one row per sample."""

    @abstractmethod
    def residual(self, z: Tensor) -> Tensor:
        """Return G(z)."""

    @abstractmethod
    def derivative(self, z: Tensor, v: Tensor) -> Tensor:
        """Return (∂G/∂z) v."""

    @abstractmethod
    def transposed(self, z: Tensor, w: Tensor) -> Tensor:
        """Return (∂G/∂z)ᵀ w."""


def newton(equations: Equations, guess: Tensor, *, iterations: int, dimension: int) -> Tensor:
    """Solve the equations from a guess; NaN throughout means that Newton did not converge.

    Args:
        equations: The equations.
        guess: Where to start, (samples, size).
        iterations: How many Newton steps to try.
        dimension: Largest Krylov space of each linear solve.
    """
    z = guess
    if not z.numel():
        return z
    goal = torch.finfo(z.dtype).eps ** (2 / 3)
    for _ in range(iterations):
        change = gmres(
            lambda v, z=z: equations.derivative(z, v),
            -equations.residual(z),
            tolerance=1e-5,
            dimension=dimension,
        )
        z = z + change
        left = float((change.abs() / (1 + z.abs())).max())
        if left <= goal:
            return z
        if left != left:
            break
    return torch.full_like(z, float("nan"))


_TWICE = explain(
    "gradients of gradients of a solve",
    expected="an explicit method",
    got="an implicit one, whose gradients can be taken once",
    remedy="Choose 'dopri5' or another explicit method with gradient='backprop'.",
)


class _AtSolution(torch.autograd.Function):
    """The solution as a function of everything in G but z: dz = −(∂G/∂z)⁻¹ dG."""

    @staticmethod
    def forward(ctx: Any, solution: Tensor, residual: Tensor, equations: Equations) -> Tensor:
        ctx.equations = equations
        ctx.save_for_backward(solution, residual)
        return solution.clone()

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[None, Tensor | None, None]:
        solution, residual = ctx.saved_tensors
        with torch.no_grad():
            w = gmres(
                lambda v: ctx.equations.transposed(solution, v),
                gradients[0],
                tolerance=torch.finfo(solution.dtype).eps ** 0.9,
                dimension=max(50, solution.shape[1]) if solution.shape[1] <= 200 else 200,
            )
        (found,) = first_order_only([-w], [*gradients, residual], _TWICE)
        return None, found, None


def solve_equations(
    equations: Equations, guess: Tensor, *, iterations: int, dimension: int
) -> Tensor:
    """Solve the equations; with gradients enabled the result is differentiable.

    Args:
        equations: The equations; their residual must be differentiable in what they hold.
        guess: Where to start, (samples, size).
        iterations: How many Newton steps to try.
        dimension: Largest Krylov space of each linear solve.
    """
    with torch.no_grad():
        z = newton(equations, guess.detach(), iterations=iterations, dimension=dimension)
    if not torch.is_grad_enabled():
        return z
    return _AtSolution.apply(z, equations.residual(z), equations)


def rows(y: Tensor) -> tuple[int, int]:
    """Return how many samples a state has, and how many numbers each."""
    samples = y.shape[0] if y.dim() > 1 else 1
    return samples, y.numel() // max(samples, 1)
