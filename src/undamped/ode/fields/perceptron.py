"""The plain field of this literature: a small perceptron, with or without time as an input."""

from __future__ import annotations

import itertools
from typing import Any, Literal

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.options import PositiveInt

Activation = Literal["tanh", "softplus", "relu", "elu"]
ACTIVATIONS = {
    "tanh": torch.tanh,
    "softplus": nn.functional.softplus,
    "relu": torch.relu,
    "elu": nn.functional.elu,
}


def with_time(t: Any, y: Tensor) -> Tensor:
    """Append time as one more feature to (…, features)."""
    column = y[..., :1]
    return torch.cat((y, torch.zeros_like(column) + t), dim=-1)


class PerceptronField(nn.Module):
    """A perceptron with one or more hidden layers as dy/dt.

    Equation:
        f(t, y) = θ₂ σ(θ₁ [y, t])

    Args:
        size: Features of the state.
        hidden_size: Width of the hidden layers.
        input_size: Features the field sees; the state's own number by default.
        hidden_layers: Number of hidden layers.
        activation: σ.
        time: Whether time is an input.

    Example:
        >>> field = PerceptronField(2, 32)
        >>> field(torch.tensor(0.0), torch.randn(5, 2)).shape
        torch.Size([5, 2])
    """

    @checked
    def __init__(
        self,
        size: PositiveInt,
        hidden_size: PositiveInt = 32,
        *,
        input_size: PositiveInt | None = None,
        hidden_layers: PositiveInt = 1,
        activation: Activation = "tanh",
        time: bool = True,
    ) -> None:
        super().__init__()
        self.size = size
        self.time = time
        first = (size if input_size is None else input_size) + time
        widths = [first] + [hidden_size] * hidden_layers
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(widths))
        self.readout = nn.Linear(hidden_size, size)
        self.activation = activation

    def forward(self, t: Any, y: Tensor) -> Tensor:
        """Return dy/dt, (…, size)."""
        y = with_time(t, y) if self.time else y
        act = ACTIVATIONS[self.activation]
        for layer in self.hidden:
            y = act(layer(y))
        return self.readout(y)


class BottleneckField(nn.Module):
    """A field through few features, for the bottleneck trace.

    Equation:
        f = g ∘ h, h: ℝ^D → ℝ^H with H < D

    Args:
        size: D.
        bottleneck_size: H.
        hidden_size: Width of the hidden layers on both sides.
    """

    context_size = 0

    @checked
    def __init__(
        self, size: PositiveInt, bottleneck_size: PositiveInt, hidden_size: PositiveInt = 64
    ) -> None:
        super().__init__()
        self.bottleneck_size = bottleneck_size
        self.inner = nn.Sequential(
            nn.Linear(size + 1, hidden_size), nn.Tanh(), nn.Linear(hidden_size, bottleneck_size)
        )
        self.outer = nn.Sequential(
            nn.Tanh(),
            nn.Linear(bottleneck_size, hidden_size),
            nn.Tanh(),
            nn.Linear(hidden_size, size),
        )

    def narrow(self, t: Any, z: Tensor) -> Tensor:
        """Return h(t, z)."""
        return self.inner(with_time(t, z))

    def widen(self, t: Any, few: Tensor) -> Tensor:
        """Return g(h)."""
        return self.outer(few)

    def forward(self, t: Any, z: Tensor) -> Tensor:
        """Return dz/dt."""
        return self.widen(t, self.narrow(t, z))
