"""Newton's method with Krylov solves, and gradients by the implicit function theorem.

Derivatives of the field are applied to vectors by forward differentiation; the largest thing
kept is a handful of vectors per sample. Going back, the equations are not unrolled: one solve
with the transposed derivative gives the gradient at the solution.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from undamped.solvers.implicit.krylov import gmres
from undamped.solvers.solver import Field


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


@cache
def _load_forward_mode() -> None:
    """Let PyTorch load forward differentiation, which warns about its own insides once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        with forward_ad.dual_level():
            forward_ad.make_dual(torch.zeros(1), torch.zeros(1))


def forward_product(field: Field, t: Tensor, y: Tensor, v: Tensor) -> Tensor:
    """Return (∂f/∂y) v."""
    _load_forward_mode()
    with forward_ad.dual_level():
        value = field(t, forward_ad.make_dual(y, v))
        tangent = forward_ad.unpack_dual(value).tangent
    return torch.zeros_like(v) if tangent is None else tangent


def backward_product(field: Field, t: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """Return (∂f/∂y)ᵀ w."""
    with torch.enable_grad():
        leaf = y.detach().requires_grad_()
        value = field(t, leaf)
        if not value.requires_grad:
            return torch.zeros_like(w)
        (product,) = torch.autograd.grad(value, leaf, w, allow_unused=True)
    return torch.zeros_like(w) if product is None else product


def newton(equations: Equations, guess: Tensor, *, iterations: int, dimension: int) -> Tensor:
    """Solve the equations from a guess; NaN throughout means that Newton did not converge.

    Args:
        equations: The equations.
        guess: Where to start, (samples, size).
        iterations: How many Newton steps to try.
        dimension: Largest Krylov space of each linear solve.
    """
    z = guess
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


class _AtSolution(torch.autograd.Function):
    """The solution as a function of everything in G but z: dz = −(∂G/∂z)⁻¹ dG."""

    @staticmethod
    def forward(ctx: Any, solution: Tensor, residual: Tensor, equations: Equations) -> Tensor:
        ctx.equations = equations
        ctx.save_for_backward(solution)
        return solution.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[None, Tensor, None]:
        (solution,) = ctx.saved_tensors
        w = gmres(
            lambda v: ctx.equations.transposed(solution, v),
            gradients[0],
            tolerance=torch.finfo(solution.dtype).eps ** 0.9,
            dimension=max(50, solution.shape[1]) if solution.shape[1] <= 200 else 200,
        )
        return None, -w, None


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
