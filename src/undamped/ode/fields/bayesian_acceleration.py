"""The field of ODE²VAE (Yıldız, Heinonen and Lähdesmäki, 2019): uncertain accelerations."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.options import PositiveInt

SHARP = math.log(0.01)
"""log λ at the start: weights are nearly certain, and learn how uncertain they are."""


class BayesianAcceleration(nn.Module):
    """s' = v, v' = f_W(s, v): a perceptron whose weights have a normal distribution.

    Equation:
        f_W(s, v) = W₂ tanh(W₁ [s, v] + b₁) + b₂,  W ~ N(m, λ²), p(W) = N(0, 1)

    Symbols:
        s positions, v velocities, W all weights and biases, m their means, λ a deviation for each.

    Weights are drawn by `draw`, once for a solve, and are their means after `settle`.

    Args:
        size: How many positions, and as many velocities.
        hidden_size: Width of the hidden layer.

    Example:
        >>> field = BayesianAcceleration(3, 16)
        >>> field(0.0, torch.randn(5, 6)).shape
        torch.Size([5, 6])
    """

    @checked
    def __init__(self, size: PositiveInt, hidden_size: PositiveInt = 32) -> None:
        super().__init__()
        self.size = size
        shapes = [(hidden_size, 2 * size), (hidden_size,), (size, hidden_size), (size,)]
        start = [nn.Linear(2 * size, hidden_size), nn.Linear(hidden_size, size)]
        values = [part for layer in start for part in (layer.weight, layer.bias)]
        self.means = nn.ParameterList([nn.Parameter(value.detach().clone()) for value in values])
        self.log_deviations = nn.ParameterList(
            [nn.Parameter(torch.full(shape, SHARP)) for shape in shapes]
        )
        self._weights: list[Tensor] | None = None

    def draw(self) -> None:
        """Draw the weights of the solves to come, differentiably."""
        self._weights = [
            mean + log_deviation.exp() * torch.randn_like(mean)
            for mean, log_deviation in zip(self.means, self.log_deviations, strict=True)
        ]

    def settle(self) -> None:
        """Set the weights to their means."""
        self._weights = None

    @property
    def weights(self) -> list[Tensor]:
        """W₁, b₁, W₂, b₂ as they are now."""
        return list(self.means) if self._weights is None else self._weights

    def forward(self, t: Any, y: Tensor) -> Tensor:
        """Return (v, f_W(s, v)), (…, 2 size)."""
        first, first_bias, second, second_bias = self.weights
        hidden = torch.tanh(nn.functional.linear(y, first, first_bias))
        moved = nn.functional.linear(hidden, second, second_bias)
        return torch.cat([y[..., self.size :], moved], -1)

    def trace(self, y: Tensor) -> Tensor:
        """Return tr ∂f/∂v, the rate at which the flow spreads volume, (…, 1)."""
        first, first_bias, second, _ = self.weights
        hidden = torch.tanh(nn.functional.linear(y, first, first_bias))
        # Σ_i Σ_j W₂[i, j] (1 − h_j²) W₁[j, size + i]
        shared = (second.mT * first[:, self.size :]).sum(-1)
        return ((1 - hidden.square()) @ shared).unsqueeze(-1)

    def divergence(self) -> Tensor:
        """Return KL(N(m, λ²) ‖ N(0, 1)) of all weights."""
        return torch.stack(
            [
                (0.5 * ((2 * log_std).exp() + mean.square() - 1) - log_std).sum()
                for mean, log_std in zip(self.means, self.log_deviations, strict=True)
            ]
        ).sum()
