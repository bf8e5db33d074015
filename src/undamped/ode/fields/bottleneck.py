"""A field through few features, whose trace takes noise of few dimensions."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.options import PositiveInt
from undamped.ode.fields.perceptron import with_time


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
