"""The baseline: a perceptron that is told nothing about physics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from undamped.models.physics.fields.angles import PositionFeatures
from undamped.models.physics.fields.smooth_perceptron import SmoothActivation, SmoothPerceptron


class PlainField(nn.Module):
    """A perceptron as dz/dt; or as d²q/dt² alone, where the state holds velocities.

    Equation:
        ż = f([z, u]);  of second order: q̇ = v, v̇ = f([q, v, u])

    Args:
        size: Numbers of a state.
        inputs: Inputs u.
        hidden_size: Width of the hidden layers.
        hidden_layers: Their number.
        activation: σ.
        second_order: Whether the second half of a state is the rate of the first.
        angles: Which numbers of a state are seen by cosine and sine.
    """

    separable = False

    def __init__(
        self,
        size: int,
        inputs: int = 0,
        hidden_size: int = 200,
        *,
        hidden_layers: int = 2,
        activation: SmoothActivation = "tanh",
        second_order: bool = False,
        angles: Sequence[int] = (),
    ) -> None:
        super().__init__()
        self.size, self.inputs, self.second_order = size, inputs, second_order
        self.features = PositionFeatures(size, angles)
        self.net = SmoothPerceptron(
            self.features.size + inputs,
            size // 2 if second_order else size,
            hidden_size,
            hidden_layers=hidden_layers,
            activation=activation,
            orthogonal=True,
        )

    def forward(self, t: Any, state: Tensor, u: Tensor | None = None) -> Tensor:
        """Return dz/dt, (…, size)."""
        seen = self.features(state)
        if self.inputs:
            given = state.new_zeros(*state.shape[:-1], self.inputs) if u is None else u
            seen = torch.cat((seen, given), dim=-1)
        rate = self.net(seen)
        if not self.second_order:
            return rate
        return torch.cat((state[..., self.size // 2 :], rate), dim=-1)
