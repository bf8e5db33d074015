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

from undamped.kernels.coupled_velocity import decaying_sum

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

    def sequence(
        self, u: Tensor, state: list[Tensor], lengths: Tensor | None
    ) -> tuple[Tensor, list[Tensor]]:
        """Filter all steps: u (time, batch, …); return the drive and the state at the end."""
        steps, batch = u.shape[:2]
        ends = torch.full((batch,), steps, device=u.device) if lengths is None else lengths
        at = (ends - 1, torch.arange(batch, device=u.device))
        if self.kind in ("momentum", "nesterov"):
            velocity = decaying_sum(self.step * u, self._decays(u, state), state[0])
            if self.kind == "momentum":
                return velocity, [velocity[at]]
            return velocity, [velocity[at], state[1] + ends.to(u).unsqueeze(-1)]
        decays = u.new_full((steps, batch), self.decay)
        moment = decaying_sum((1 - self.decay) * u * u, decays, state[-1])
        scale = torch.rsqrt(moment + self.softening)
        if self.kind == "rmsprop":
            return self.step * u * scale, [moment[at]]
        velocity = decaying_sum(self.step * u, self._decays(u, state), state[0])
        return velocity * scale, [velocity[at], moment[at]]

    def _decays(self, u: Tensor, state: list[Tensor]) -> Tensor:
        """What the velocity is multiplied with, (time, batch)."""
        if self.kind != "nesterov":
            return u.new_full(u.shape[:2], self.momentum)
        time = torch.arange(u.shape[0], device=u.device).unsqueeze(1)
        within = self._within(state[1]).squeeze(1)
        within = torch.remainder(within + time, self.restart)
        return within / (within + 3)

    def _within(self, count: Tensor) -> Tensor:
        """Return the steps since the last restart, (batch, 1): a whole number per sequence."""
        return torch.remainder(count[:, :1].detach().round(), self.restart)
