"""Bodies in the plane that rods keep at a distance: Cartesian coordinates, explicit constraints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.errors import NonFiniteError, explain
from undamped.models.physics.fields.ports import times
from undamped.models.physics.fields.smooth_perceptron import SmoothActivation, SmoothPerceptron
from undamped.ode.methods.symplectic.phase import split


class RodField(nn.Module):
    """A learned potential and learned masses, with rods as constraints.

    The Hamiltonian field v = J ∇H is projected so that lengths and their rates stay as they are:
    f = v − J C (Cᵀ J C)⁻¹ Cᵀ v, with C the gradients of both. Written out, that takes two solves
    with one positive matrix of as many rows as there are rods.

    Equation:
        ẋ = v − M⁻¹Aᵀβ,  M v̇ = −∂V/∂x + Aᵀα + Bᵀβ
        β = G⁻¹ A v,  α = G⁻¹ ((BM⁻¹Aᵀ − AM⁻¹Bᵀ) β − B v + A M⁻¹ ∂V/∂x),  G = A M⁻¹ Aᵀ

    Symbols:
        x places, v velocities of the bodies, M masses, V a perceptron; of a rod r from body to
        body, ½|r|² is kept: A holds ∂(½|r|²)/∂x, B holds ∂(r·ṙ)/∂x. With lengths that rest, A v
        and so β are 0, and α are the forces in the rods.

    Args:
        bodies: Their number.
        rods: Pairs of bodies, numbered from 1; 0 is the origin.
        dimensions: Of the space they move in.
        hidden_size: Width of the hidden layers of V.
        hidden_layers: Their number.
        activation: Activation of V.

    Example:
        >>> field = RodField(2, [(0, 1), (1, 2)])
        >>> field(0.0, torch.randn(5, 8)).shape, field.energy(torch.randn(5, 8)).shape
        (torch.Size([5, 8]), torch.Size([5]))
    """

    separable = False
    incidence: Tensor

    def __init__(
        self,
        bodies: int,
        rods: Sequence[tuple[int, int]],
        dimensions: int = 2,
        hidden_size: int = 64,
        *,
        hidden_layers: int = 3,
        activation: SmoothActivation = "tanh",
    ) -> None:
        super().__init__()
        self.bodies, self.rods, self.dimensions = bodies, tuple(rods), dimensions
        incidence = torch.zeros(len(self.rods), bodies + 1)
        for row, (one, other) in enumerate(self.rods):
            incidence[row, one], incidence[row, other] = -1, 1
        self.register_buffer("incidence", incidence[:, 1:].clone(), persistent=False)
        self.log_masses = nn.Parameter(torch.zeros(bodies))
        self.of_positions = SmoothPerceptron(
            bodies * dimensions,
            1,
            hidden_size,
            hidden_layers=hidden_layers,
            activation=activation,
            orthogonal=True,
            readout_bias=False,
        )

    @property
    def size(self) -> int:
        """Numbers of a state."""
        return 2 * self.bodies * self.dimensions

    def potential(self, x: Tensor) -> Tensor:
        """Return V, (…,), of places (…, bodies × dimensions)."""
        return self.of_positions(x).squeeze(-1)

    def forward(self, t: Any, state: Tensor, u: Tensor | None = None) -> Tensor:
        """Return the rates of a state, (…, size)."""
        x, v = split(state)
        incidence = self.incidence.to(x.dtype)
        inverse = torch.exp(-self.log_masses).unsqueeze(-1)  # (bodies, 1)
        rod, rod_rate = (incidence @ self._each(part) for part in (x, v))  # (…, rods, dimensions)
        pull = inverse * self._each(self.of_positions.linearise(x).gradient())  # M⁻¹ ∂V/∂x
        tied = (incidence * inverse.squeeze(-1)) @ incidence.T  # how rods share bodies
        chol = self._factor(tied * (rod @ rod.mT))
        length_rate = (rod * rod_rate).sum(-1)  # A v
        beta = _solve(chol, length_rate)
        turned = tied * (rod_rate @ rod.mT)  # B M⁻¹ Aᵀ
        free = rod_rate.square().sum(-1) - (rod * (incidence @ pull)).sum(-1)  # B v − A M⁻¹ ∂V/∂x
        alpha = _solve(chol, times(turned - turned.mT, beta) - free)
        along = beta.unsqueeze(-1) * rod
        held = alpha.unsqueeze(-1) * rod + beta.unsqueeze(-1) * rod_rate
        places = v - (inverse * (incidence.T @ along)).flatten(-2)
        rates = inverse * (incidence.T @ held) - pull
        return torch.cat((places, rates.flatten(-2)), dim=-1)

    def energy(self, state: Tensor) -> Tensor:
        """Return ½ vᵀ M v + V of states, (…,)."""
        x, v = split(state)
        kinetic = (torch.exp(self.log_masses) * self._each(v).square().sum(-1)).sum(-1) / 2
        return kinetic + self.potential(x)

    def supplied(self, state: Tensor, u: Tensor | None) -> Tensor:
        """Return the power of inputs, of which there are none, (…,)."""
        return state.new_zeros(state.shape[:-1])

    def constraints(self, state: Tensor) -> Tensor:
        """Return ½|r|² and r·ṙ of the rods, (…, 2 × rods)."""
        incidence = self.incidence.to(state.dtype)
        rod, rate = (incidence @ self._each(part) for part in split(state))
        return torch.cat((rod.square().sum(-1) / 2, (rod * rate).sum(-1)), dim=-1)

    def _each(self, numbers: Tensor) -> Tensor:
        return numbers.unflatten(-1, (self.bodies, self.dimensions))

    def _factor(self, matrix: Tensor) -> Tensor:
        """Return the Cholesky factor of G, or say at which sample rods say the same thing twice."""
        factor, info = torch.linalg.cholesky_ex(matrix)
        failed = (info != 0).flatten()
        if bool(failed.any()):
            raise NonFiniteError(
                explain(
                    "the rods",
                    expected="lengths above zero, and no rod that follows from the others",
                    got=f"others at sample {int(failed.nonzero()[0])} of {len(failed)}",
                    remedy="Leave out rods that are not needed, and samples where bodies meet.",
                )
            )
        return factor


def _solve(factor: Tensor, right: Tensor) -> Tensor:
    return torch.cholesky_solve(right.unsqueeze(-1), factor).squeeze(-1)
