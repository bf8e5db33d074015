"""Energies by perceptrons, whose gradients are written out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from undamped.models.physics.fields.angles import PositionFeatures
from undamped.models.physics.fields.hamiltonian import HamiltonianField, PairField
from undamped.models.physics.fields.ports import Ports
from undamped.models.physics.fields.smooth_perceptron import SmoothActivation, SmoothPerceptron


class PerceptronHamiltonian(HamiltonianField):
    """H(q, p) by one perceptron.

    Equation:
        H = w σ(W₂ σ(W₁ [φ(q), p] + b₁) + b₂)

    Args:
        freedoms: Positions; as many momenta.
        hidden_size: Width of the hidden layers.
        hidden_layers: Their number.
        activation: σ.
        angles: Positions that are seen by cosine and sine.
        ports: Inputs and friction.

    Example:
        >>> field = PerceptronHamiltonian(2)
        >>> field(0.0, torch.randn(5, 4)).shape, field.energy(torch.randn(5, 4)).shape
        (torch.Size([5, 4]), torch.Size([5]))
    """

    def __init__(
        self,
        freedoms: int,
        hidden_size: int = 200,
        *,
        hidden_layers: int = 2,
        activation: SmoothActivation = "tanh",
        angles: Sequence[int] = (),
        ports: Ports | None = None,
    ) -> None:
        super().__init__(freedoms, ports)
        self.features = PositionFeatures(freedoms, angles)
        self.net = SmoothPerceptron(
            self.features.size + freedoms,
            1,
            hidden_size,
            hidden_layers=hidden_layers,
            activation=activation,
            orthogonal=True,
            readout_bias=False,
        )

    def hamiltonian(self, t: Any, q: Tensor, p: Tensor) -> Tensor:
        """Return H, (…,)."""
        return self.net(torch.cat((self.features(q), p), dim=-1)).squeeze(-1)

    def gradient(self, t: Any, q: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
        """Return ∂H/∂q and ∂H/∂p in closed form."""
        features = self.features(q)
        slope = self.net.linearise(torch.cat((features, p), dim=-1)).gradient()
        by_features, by_p = slope.split((self.features.size, self.freedoms), dim=-1)
        return self.features.pull(features, by_features), by_p


class PerceptronPotential(nn.Module):
    """An energy of positions alone, or of momenta alone, by a perceptron.

    Equation:
        V = w σ(W₂ σ(W₁ φ(q) + b₁) + b₂)

    Args:
        freedoms: Positions.
        hidden_size: Width of the hidden layers.
        hidden_layers: Their number.
        activation: σ.
        angles: Positions that are seen by cosine and sine.
    """

    def __init__(
        self,
        freedoms: int,
        hidden_size: int = 64,
        *,
        hidden_layers: int = 2,
        activation: SmoothActivation = "tanh",
        angles: Sequence[int] = (),
    ) -> None:
        super().__init__()
        self.features = PositionFeatures(freedoms, angles)
        self.net = SmoothPerceptron(
            self.features.size,
            1,
            hidden_size,
            hidden_layers=hidden_layers,
            activation=activation,
            orthogonal=True,
            readout_bias=False,
        )

    def forward(self, q: Tensor) -> Tensor:
        """Return V, (…,)."""
        return self.net(self.features(q)).squeeze(-1)

    def gradient(self, q: Tensor) -> Tensor:
        """Return ∂V/∂q in closed form, (…, freedoms)."""
        features = self.features(q)
        return self.features.pull(features, self.net.linearise(features).gradient())


class PerceptronSeparable(PairField):
    """T(p) + V(q), a perceptron each.

    Equation:
        H = T(p) + V(φ(q))

    Args:
        freedoms: Positions; as many momenta.
        angles: Positions that are seen by cosine and sine.
        ports: Inputs and friction.
        hidden_size: Width of the hidden layers.
        options: Further ones of `PerceptronPotential`: hidden_layers, activation.
    """

    def __init__(
        self,
        freedoms: int,
        hidden_size: int = 64,
        *,
        angles: Sequence[int] = (),
        ports: Ports | None = None,
        **options: Any,
    ) -> None:
        super().__init__(
            freedoms,
            PerceptronPotential(freedoms, hidden_size, **options),
            PerceptronPotential(freedoms, hidden_size, angles=angles, **options),
            ports,
        )
