"""Stiffness and adjoints of first- and second-order neural ODEs: the lecture's analysis.

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

import torch
from torch import Tensor, nn

from undamped._base.errors import DataError, OptionError, explain
from undamped.analysis.core.layout import Layout
from undamped.analysis.core.result import Result
from undamped.analysis.core.style import Style, Trace


def stiffness(matrix: Tensor) -> float:
    """Return the largest |eigenvalue| of a matrix over its smallest."""
    sizes = torch.linalg.eigvals(matrix).abs()
    if float(sizes.min()) == 0:
        raise DataError(
            explain(
                "matrix",
                expected="no zero eigenvalue",
                got="a singular matrix",
                remedy="Stiffness is a ratio of rates; leave out directions that do not move.",
            )
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
        first_order: S(A).
        second_order: S(B) for each damping.
    """

    gammas: tuple[float, ...]
    first_order: float
    second_order: tuple[float, ...]

    @property
    def root(self) -> float:
        """√S(A)."""
        return self.first_order**0.5

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return {
            "gammas": list(self.gammas),
            "stiffness_first_order": self.first_order,
            "root": self.root,
            "stiffness_second_order": list(self.second_order),
        }

    @property
    def layout(self) -> Layout:
        """Stiffness over damping, beside S(A) and √S(A)."""
        return Layout(
            "Stiffness of ḣ = A h and of ḧ + γḣ = A h",
            "damping γ",
            "stiffness (ratio of rates)",
            "The second-order field is as stiff as the root of the first-order one, or stiffer.",
            log_y=True,
        )

    def traces(self, style: Style) -> list[Trace]:
        """S(B), and where A alone would be."""
        ends = [self.gammas[0], self.gammas[-1]]
        return [
            style.line(self.gammas, self.second_order, "S(B), second order", 0),
            style.line(ends, [self.first_order] * 2, "S(A), first order", 1),
            style.line(ends, [self.root] * 2, "√S(A)", 2),
        ]


def compare_stiffness(matrix: Tensor, gammas: list[float]) -> StiffnessComparison:
    """Compare the stiffness of ḣ = A h with that of ḧ + γḣ = A h.

    Args:
        matrix: A.
        gammas: Dampings to try.
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
    """How much of a gradient is left after going back a time.

    Args:
        times: T.
        first_order: ‖∂L/∂h(0)‖ / ‖∂L/∂h(T)‖ of ḣ = f(h).
        second_order: The same for the pair (h, m) of ḧ + γḣ = f(h).
    """

    times: tuple[float, ...]
    first_order: tuple[float, ...]
    second_order: tuple[float, ...]

    @property
    def layout(self) -> Layout:
        """What is left over T, in decades."""
        return Layout(
            "The adjoint over the time T it goes back",
            "time T",
            "gradient left at the start",
            "The adjoint of the first-order field vanishes; the heavy ball's does not.",
            log_y=True,
        )

    def traces(self, style: Style) -> list[Trace]:
        """Both fields."""
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
        times: The T to try.
        gamma: Damping of the heavy ball; any number from 0.
    """
    if not 0 <= gamma < math.inf:
        raise OptionError(
            explain(
                "gamma",
                expected="a number at least 0",
                got=gamma,
                remedy="A negative damping drives the ball.",
            )
        )
    heavy = _HeavyBall(force, gamma)
    resting = torch.cat((start, torch.zeros_like(start)), dim=-1)
    first = tuple(_left(force, start, end) for end in times)
    second = tuple(_left(heavy, resting, end) for end in times)
    return AdjointDecay(tuple(times), first, second)


class _HeavyBall(nn.Module):
    """ḣ = m, ṁ = f − γ m for a given γ, which the trained field keeps below its scale."""

    def __init__(self, force: nn.Module, gamma: float) -> None:
        super().__init__()
        self.force, self.gamma = force, gamma

    def forward(self, t: Any, state: Tensor) -> Tensor:
        position, momentum = state.chunk(2, dim=-1)
        return torch.cat((momentum, self.force(t, position) - self.gamma * momentum), dim=-1)


def _left(field: nn.Module, start: Tensor, end: float) -> float:
    from undamped.ode import solve

    leaf = start.detach().clone().requires_grad_()
    final = solve(field, leaf, [0.0, end], method="dopri8", rtol=1e-8, atol=1e-10).final
    pull = torch.ones_like(final)
    (back,) = torch.autograd.grad(final, leaf, pull)
    return float(torch.linalg.vector_norm(back) / torch.linalg.vector_norm(pull))
