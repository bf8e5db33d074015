"""What an energy sees of positions: angles by cosine and sine, so that 2π is no edge."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class PositionFeatures(nn.Module):
    """Positions as an energy sees them, and derivatives through that.

    Equation:
        φ(q) = [positions, cos angles, sin angles]

    Args:
        freedoms: Number of positions.
        angles: Which of them are angles to be seen by cosine and sine.

    Example:
        >>> PositionFeatures(2, [1])(torch.zeros(1, 2))
        tensor([[0., 1., 0.]])
    """

    straight: Tensor
    turning: Tensor

    def __init__(self, freedoms: int, angles: Sequence[int] = ()) -> None:
        super().__init__()
        straight = [k for k in range(freedoms) if k not in angles]
        self.register_buffer("straight", torch.tensor(straight, dtype=torch.long), persistent=False)
        turning = torch.tensor(sorted(angles), dtype=torch.long)
        self.register_buffer("turning", turning, persistent=False)
        self.size = freedoms + len(angles)
        self.plain = not angles

    def forward(self, q: Tensor) -> Tensor:
        """Return (…, size)."""
        if self.plain:
            return q
        angle = q[..., self.turning]
        return torch.cat((q[..., self.straight], torch.cos(angle), torch.sin(angle)), dim=-1)

    def pull(self, features: Tensor, cotangent: Tensor) -> Tensor:
        """Return cotangent · ∂φ/∂q, (…, freedoms).

        Args:
            features: φ(q).
            cotangent: (…, size).
        """
        if self.plain:
            return cotangent
        _, cosine, sine = self._parts(features)
        along, by_cosine, by_sine = self._parts(cotangent)
        return self._merge(along, cosine * by_sine - sine * by_cosine)

    def push(self, features: Tensor, velocity: Tensor) -> Tensor:
        """Return ∂φ/∂q · velocity, (…, size).

        Args:
            features: φ(q).
            velocity: (…, freedoms).
        """
        if self.plain:
            return velocity
        _, cosine, sine = self._parts(features)
        rate = velocity[..., self.turning]
        return torch.cat((velocity[..., self.straight], -sine * rate, cosine * rate), dim=-1)

    def _parts(self, features: Tensor) -> tuple[Tensor, ...]:
        few, turns = len(self.straight), len(self.turning)
        return features.split((few, turns, turns), dim=-1)

    def _merge(self, along: Tensor, turned: Tensor) -> Tensor:
        whole = torch.cat((along, turned), dim=-1)
        return whole[..., torch.argsort(torch.cat((self.straight, self.turning)))]
