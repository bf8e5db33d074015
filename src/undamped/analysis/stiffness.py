"""Stability and stiffness of ODEs: forward Euler, and neural ODEs of first and second order.

Forward Euler with step h follows y' = f(y) without blowing up where |1 + hλ| ≤ 1 for every
eigenvalue λ of the Jacobian of f (Haber and Ruthotto, 2017). An undamped oscillator has imaginary
eigenvalues and never satisfies this, which is why oscillators are stepped symplectically.

For ḣ = A h and ḧ + γḣ = A h, written as a first-order system with matrix B, each eigenvalue λ of
A gives two of B, the roots of c² + γc = λ. Their product is −λ, so one is at least √|λ| in size
and the other at most that: **S(B) ≥ √S(A), with equality exactly when both roots of every pair
have the same size** — for γ = 0, or for a stable A (λ < 0) with γ ≤ 2√|λ|. The gain of the heavy
ball over √S(A) that the lecture states as "≤" is this equality; more damping only adds stiffness.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from undamped._base.errors import DataError, OptionError, ShapeError
from undamped.analysis.core import Layout, Result, Style, Trace
from undamped.analysis.core.figures import reference

Array = NDArray[Any]


def stiffness(matrix: Tensor) -> float:
    """Return the largest |eigenvalue| of a matrix over its smallest."""
    sizes = torch.linalg.eigvals(matrix).abs()
    if float(sizes.min()) == 0:
        raise DataError(
            "The stiffness of a singular matrix is infinite. Remove directions that do not move."
        )
    return float(sizes.max() / sizes.min())


def heavy_ball_matrix(matrix: Tensor, gamma: float) -> Tensor:
    """Return B = [[0, I], [A, −γI]] for A, (2n, 2n)."""
    eye = torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
    upper = torch.cat((torch.zeros_like(eye), eye), dim=1)
    return torch.cat((upper, torch.cat((matrix, -gamma * eye), dim=1)))


@dataclass(frozen=True)
class StiffnessComparison(Result):
    """Stiffness of A and of B over damping.

    Args:
        gammas: The dampings.
        stiffness_first_order: S(A).
        stiffness_second_order: S(B) for each damping.
    """

    derived = ("root",)
    gammas: tuple[float, ...]
    stiffness_first_order: float
    stiffness_second_order: tuple[float, ...]

    figure_layout = Layout(
        "Stiffness of ḣ = A h and of ḧ + γḣ = A h",
        "damping γ",
        "stiffness (ratio of rates)",
        "The second-order field is as stiff as the root of the first-order one, or stiffer.",
        log_y=True,
    )

    @property
    def root(self) -> float:
        """√S(A)."""
        return self.stiffness_first_order**0.5

    def traces(self, style: Style) -> list[Trace]:
        """S(B), and S(A) for comparison."""
        ends = [self.gammas[0], self.gammas[-1]]
        return [
            style.line(self.gammas, self.stiffness_second_order, "S(B), second order", 0),
            style.line(ends, [self.stiffness_first_order] * 2, "S(A), first order", 1),
            style.line(ends, [self.root] * 2, "√S(A)", 2),
        ]


def compare_stiffness(matrix: Tensor, gammas: list[float]) -> StiffnessComparison:
    """Compare the stiffness of ḣ = A h with that of ḧ + γḣ = A h.

    Args:
        matrix: A.
        gammas: The dampings.
    """
    second = tuple(stiffness(heavy_ball_matrix(matrix, gamma)) for gamma in gammas)
    return StiffnessComparison(tuple(gammas), stiffness(matrix), second)


def eigenvalue_pairs(jacobian: Tensor, gamma: float, span: float) -> Tensor:
    """Return the eigenvalues of −M in pairs, (n, 2), complex: proposition 1 of the lecture.

    M is the integral over time, from T back to t = T − span, of the heavy-ball Jacobian with the
    mean Jacobian of the force; each pair sums to (t − T)γ.

    Args:
        jacobian: Mean of ∂f/∂h over the span, (n, n).
        gamma: Damping γ.
        span: T − t, positive.
    """
    forces = torch.linalg.eigvals(jacobian)
    root = torch.sqrt(torch.tensor(gamma, dtype=forces.dtype) ** 2 + 4 * forces)
    rates = torch.stack(((-gamma + root) / 2, (-gamma - root) / 2), dim=1)
    return span * rates  # −M = (T − t) H


@dataclass(frozen=True)
class AdjointDecay(Result):
    """The ratio of gradients at the start and at the end of an integration.

    Args:
        times: T.
        first_order: ‖∂L/∂h(0)‖ / ‖∂L/∂h(T)‖ of ḣ = f(h).
        second_order: The same for the pair (h, m) of ḧ + γḣ = f(h).
    """

    times: tuple[float, ...]
    first_order: tuple[float, ...]
    second_order: tuple[float, ...]

    figure_layout = Layout(
        "The adjoint over the time T",
        "time T",
        "relative gradient at the start",
        "The adjoint of the first-order field vanishes; the heavy ball's does not.",
        log_y=True,
    )

    def traces(self, style: Style) -> list[Trace]:
        return [
            style.line(self.times, self.first_order, "NODE", 0),
            style.line(self.times, self.second_order, "HBNODE", 1),
        ]


def adjoint_decay(
    force: nn.Module, start: Tensor, times: list[float], *, gamma: float = 0.05
) -> AdjointDecay:
    """Measure the vanishing adjoint of a NODE and of an HBNODE with the same force.

    Args:
        force: f, called with (t, h).
        start: h(0), (batch, features); momenta start at zero.
        times: The times T.
        gamma: Damping of the heavy ball, at least 0.
    """
    if not 0 <= gamma < math.inf:
        raise OptionError(f"gamma must be ≥ 0, got {gamma}.")
    heavy = _HeavyBall(force, gamma)
    initial = torch.cat((start, torch.zeros_like(start)), dim=-1)
    first = tuple(_gradient_ratio(force, start, end) for end in times)
    second = tuple(_gradient_ratio(heavy, initial, end) for end in times)
    return AdjointDecay(tuple(times), first, second)


class _HeavyBall(nn.Module):
    """ḣ = m, ṁ = f − γ m with a fixed γ."""

    def __init__(self, force: nn.Module, gamma: float) -> None:
        super().__init__()
        self.force, self.gamma = force, gamma

    def forward(self, t: Any, state: Tensor) -> Tensor:
        position, momentum = state.chunk(2, dim=-1)
        return torch.cat((momentum, self.force(t, position) - self.gamma * momentum), dim=-1)


def _gradient_ratio(field: nn.Module, start: Tensor, end: float) -> float:
    from undamped.ode import solve

    leaf = start.detach().clone().requires_grad_()
    final = solve(field, leaf, [0.0, end], method="dopri8", rtol=1e-8, atol=1e-10).final
    grad_final = torch.ones_like(final)
    (grad_start,) = torch.autograd.grad(final, leaf, grad_final)
    return float(torch.linalg.vector_norm(grad_start) / torch.linalg.vector_norm(grad_final))


@dataclass(frozen=True)
class EulerStability(Result):
    """`amplification[t]` is max |1 + hλ| at point t of a trajectory.

    `largest_step[t]` is the largest h that would be stable there (0 if none is), `stiffness[t]`
    the ratio of the largest to the smallest |λ|.
    """

    step: float
    amplification: Array
    largest_step: Array
    stiffness: Array

    @property
    def stable(self) -> bool:
        """Whether the criterion holds at every point, up to rounding."""
        return bool((self.amplification <= 1 + 1e-12).all())

    @property
    def sentence(self) -> str:
        extent = "holds everywhere" if self.stable else "is violated where the line is above 1"
        return f"The criterion |1 + hλ| ≤ 1 {extent} (h = {self.step:g})."

    @property
    def layout(self) -> Layout:
        """Amplification along the trajectory, with its limit."""
        return Layout(
            "Forward-Euler stability",
            "point of the trajectory [steps]",
            "max |1 + hλ|",
            self.sentence,
            background=(reference([0, len(self.amplification) - 1], [1, 1], "limit"),),
        )

    def traces(self, style: Style) -> list[Trace]:
        points = range(len(self.amplification))
        return [style.line(points, self.amplification, "max |1 + hλ|")]


def _matrices(jacobians: ArrayLike) -> Array:
    matrices = np.asarray(jacobians, dtype=np.float64)
    if matrices.ndim == 2:
        matrices = matrices[None]
    if matrices.ndim != 3 or matrices.shape[1] != matrices.shape[2]:
        raise ShapeError(f"jacobians must be (n, n) or (points, n, n), got shape {matrices.shape}.")
    return matrices


def euler_stability(jacobians: ArrayLike, step: float) -> EulerStability:
    """Check |1 + hλ| ≤ 1 along a trajectory.

    Args:
        jacobians: Jacobians ∂f/∂y of the field, (n, n) or (points, n, n).
        step: The step h of forward Euler.
    """
    eigenvalues = np.linalg.eigvals(_matrices(jacobians))
    return EulerStability(
        step,
        np.abs(1 + step * eigenvalues).max(1),
        np.array([_largest_step(values) for values in eigenvalues]),
        np.array([_ratio(np.abs(values)) for values in eigenvalues]),
    )


def _largest_step(eigenvalues: NDArray[np.complex128]) -> float:
    # |1 + hλ|² = 1 + 2h Re λ + h²|λ|² ≤ 1 holds for 0 ≤ h ≤ −2 Re λ / |λ|².
    moving = eigenvalues[np.abs(eigenvalues) > 0]
    if not len(moving):
        return float("inf")
    return max(0.0, float((-2 * moving.real / np.abs(moving) ** 2).min()))


def _ratio(sizes: Array) -> float:
    return float(sizes.max() / sizes.min()) if sizes.min() > 0 else float("inf")
