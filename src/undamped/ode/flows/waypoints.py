"""States along depth: a solve in segments, between which gradients can be computed.

Interpolated outputs of a solve depend on its start as the end does, and the end does not depend
on them. To compute ∂L/∂h(t), the solve has to pass through h(t).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from undamped.ode.settings import Gradient

State = tuple[Tensor, ...]
Time = float | Tensor


@dataclass(frozen=True)
class Waypoint:
    """A state that a solve passed through.

    Args:
        time: Its time; (batch,) where every sample has its own depth.
        state: Its tensors, on the graph of the solve.
        field: The field of the segment that starts there, or of the last one.
    """

    time: Time
    state: State
    field: Callable[[Any, Any], Any]

    def detached(self) -> State:
        """Return the state without its graph."""
        return tuple(part.detach() for part in self.state)

    def slope(self, state: Any = None) -> Any:
        """Return the field at this time and state, or at another state."""
        if state is None:
            state = self.state[0] if len(self.state) == 1 else self.state
        time = self.time
        if isinstance(time, Tensor) and time.dim():
            time = time.reshape(-1, *(1,) * (self.state[0].dim() - 1))
        return self.field(torch.as_tensor(time).to(self.state[0]), state)


class Waypoints(list[Waypoint]):
    """The states that a solve passes through.

    Args:
        segments: Number of segments into which a solve is divided.
        gradient: Gradient method of the segments; None for that of the solve.
    """

    def __init__(self, segments: int, gradient: Gradient | None = None) -> None:
        super().__init__()
        self.segments = segments
        self.gradient: Gradient | None = gradient

    def arrive(self, time: Time, state: Any, field: Callable[[Any, Any], Any]) -> Any:
        """Record a state, and return the tensors with which the solve continues."""
        parts = (state,) if isinstance(state, Tensor) else tuple(state)
        # Copies, since the field may also use the same tensor as a context.
        copies = tuple(
            part.clone() if part.requires_grad else part.detach().clone().requires_grad_()
            for part in parts
        )
        self.append(Waypoint(time, copies, field))
        return copies[0] if isinstance(state, Tensor) else copies

    def cuts(self, times: Any, step_size: float | None) -> list[Time]:
        """Return the times at which to divide a solve, its ends included.

        With a fixed step_size they lie between steps. Times are (times, batch) for one depth per
        sample.
        """
        if isinstance(times, Tensor):
            fractions = torch.linspace(0, 1, self.segments + 1).to(times)
            return [torch.lerp(times[0], times[-1], fraction) for fraction in fractions.unbind()]
        begin, end = float(times[0]), float(times[-1])
        segments = self.segments
        if step_size is not None:
            steps = max(1, math.ceil(abs(end - begin) / step_size - 1e-9))
            indices = sorted({round(steps * k / segments) for k in range(segments + 1)})
            return [*(begin + (end - begin) * k / steps for k in indices[:-1]), end]
        return [*(begin + (end - begin) * k / segments for k in range(segments)), end]
