"""What pushes the state of a momentum network: the input, filtered as an optimiser would.

u is the projected input of a step, read as a gradient; the drive p is what enters the state.
All filters are linear in time and see nothing of the state, so a whole sequence is filtered at
once, before the recurrence begins.

    momentum   v' = μ v + s u,               p = v'
    Nesterov   v' = k/(k + 3) v + s u,       p = v', k steps since the last restart, below F
    RMSProp    m' = β m + (1 − β) u²,        p = s u/√(m' + δ)
    Adam       both v and m,                 p = v'/√(m' + δ)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from undamped.kernels.coupled import projections

DriveKind = Literal["momentum", "nesterov", "rmsprop", "adam"]


@dataclass(frozen=True)
class Drive:
    """One of the four filters.

    Args:
        kind: Which one.
        momentum: The number μ.
        step: The number s.
        decay: The number β.
        softening: The number δ.
        restart: The number F of steps after which Nesterov's count starts again.
    """

    kind: DriveKind
    momentum: float = 0.0
    step: float = 1.0
    decay: float = 0.0
    softening: float = 1e-6
    restart: int = 1

    def forward(self, u: Tensor, state: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Filter one step: u (batch, …) and the filter's state."""
        if self.kind == "momentum":
            (velocity,) = state
            velocity = self.momentum * velocity + self.step * u
            return velocity, [velocity]
        if self.kind == "nesterov":
            velocity, count = state
            within = self._within(count)
            velocity = within / (within + 3) * velocity + self.step * u
            return velocity, [velocity, count + 1]
        moment = self.decay * state[-1] + (1 - self.decay) * u * u
        scale = torch.rsqrt(moment + self.softening)
        if self.kind == "rmsprop":
            return self.step * u * scale, [moment]
        velocity = self.momentum * state[0] + self.step * u
        return velocity * scale, [velocity, moment]

    def projection(self, steps: int, state: list[Tensor]) -> projections.Filtered:
        """Return the kernel that projects and filters `steps` steps from a state of the filter."""
        return projections.Filtered(
            self._decays(steps, state),
            (self.step, self.decay, self.softening),
            has_velocity=self.kind != "rmsprop",
            has_moment=self.kind in ("rmsprop", "adam"),
        )

    @property
    def counts(self) -> bool:
        """Whether the last tensor of the state is a count of steps, which no kernel needs."""
        return self.kind == "nesterov"

    def _decays(self, steps: int, state: list[Tensor]) -> Tensor:
        """What the velocity is multiplied with, (time, batch)."""
        if not self.counts:
            return state[0].new_full((steps, state[0].shape[0]), self.momentum)
        time = torch.arange(steps, device=state[1].device).unsqueeze(1)
        within = self._within(state[1]).squeeze(1)
        within = torch.remainder(within + time, self.restart)
        return within / (within + 3)

    def _within(self, count: Tensor) -> Tensor:
        """Return the steps since the last restart, (batch, 1): a whole number per sequence."""
        return torch.remainder(count[:, :1].detach().round(), self.restart)
