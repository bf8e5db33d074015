"""A latent flow solved on a regular grid, and its values at any times."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from undamped._base.errors import ShapeError
from undamped.models.irregular.gap_flows import SolvedFlow
from undamped.models.timestamped import refuse_before

UNITS = 5.0
"""Units of the flow's time in the span of a task, so that a small initial field has an effect."""

MOST_STEPS = 20_000
"""Upper bound on the steps of the grid; later times are an error, and would fill the memory."""


class LatentFlow(nn.Module):
    """An autonomous flow from time 0 on, solved once on a grid that does not depend on the data.

    Between the points of the grid values are interpolated by cubics with the slopes of the flow (an
    error of the fourth order, as for rk4). So interpolation is cheap, every sequence has its own
    query times, and no value depends on the other query times.

    Args:
        field: dz/dt, a module called with (t, z).
        span: Duration of the sequences.
        steps: Steps of the grid in that time.
        method: The solver.
    """

    def __init__(self, field: nn.Module, *, span: float, steps: int, method: str = "rk4") -> None:
        super().__init__()
        self.span, self.steps = span, steps
        self.step = SolvedFlow(field, method=method)

    def forward(self, z: Tensor, times: Tensor) -> Tensor:
        """Return states (draws, times, batch, size) of starts (draws, batch, size).

        Args:
            z: The states at time 0.
            times: (times, batch) from 0 on, in any order.
        """
        refuse_before(times, 0.0)
        position = times * (self.steps / self.span)
        path, slopes = self.path_until(z, position)
        return cubic(path, slopes, position)

    def path_until(self, z: Tensor, position: Tensor) -> tuple[Tensor, Tensor]:
        """Return states and slopes up to the last of some positions, in steps of the grid."""
        return self.path(z, max(1, math.ceil(float(position.max()) - 1e-9)))

    def path(self, z: Tensor, steps: int) -> tuple[Tensor, Tensor]:
        """Return states and slopes per step, (grid, draws, batch, size), of `steps` steps."""
        if steps > MOST_STEPS:
            raise ShapeError(
                f"times must be at most {MOST_STEPS / self.steps:,.0f} spans of the task "
                f"({self.span:g} each), got {steps * self.span / self.steps:,.0f}. Count them from "
                "the start of each sequence."
            )
        size = UNITS / self.steps
        rows = z.flatten(0, 1)
        gap = rows.new_full((len(rows),), size)
        states = [rows]
        for _ in range(steps):
            states.append(self.step(states[-1], gap))
        path = torch.stack(states).unflatten(1, z.shape[:2])
        return path, self.step.field(0.0, path) * size


def integral(path: Tensor, slopes: Tensor, rate: Callable[[Tensor], Tensor], end: Tensor) -> Tensor:
    """Return ∫ rate(z) from the grid's first point to an end, (draws, batch, rates).

    Simpson's rule over the steps of the grid; the last, incomplete one lies on the cubic whose
    slopes are the rates themselves.

    Args:
        path: (grid, draws, batch, size).
        slopes: The derivatives there, per step of the grid.
        rate: From states (…, size) to rates (…, rates), per step of the grid.
        end: (batch,) the upper limit, in steps of the grid.
    """
    steps = len(path) - 1
    middles = torch.arange(steps, device=path.device) + 0.5
    between = cubic(path, slopes, middles.unsqueeze(1).expand(-1, path.shape[2]))
    at_points, at_middles = rate(path), rate(between).transpose(0, 1)
    each = (at_points[:-1] + 4 * at_middles + at_points[1:]) / 6
    total = torch.cat([torch.zeros_like(each[:1]), each.cumsum(0)])
    return cubic(total, at_points, end.unsqueeze(0)).squeeze(1)


def cubic(path: Tensor, slopes: Tensor, position: Tensor) -> Tensor:
    """Return values between the points of a grid, interpolated by cubics with given slopes.

    Args:
        path: (grid, draws, batch, size).
        slopes: The derivatives there, per step of the grid.
        position: (times, batch) in steps of the grid.

    Returns:
        (draws, times, batch, size).
    """
    low = position.floor().clamp(0, len(path) - 2).long()
    s = (position - low).to(path.dtype).view(1, *position.shape, 1)
    sequence = torch.arange(position.shape[1], device=position.device)

    def at(values: Tensor, index: Tensor) -> Tensor:
        # (grid, draws, batch, size) at (times, batch): advanced indices come first.
        return values.transpose(1, 2)[index, sequence].permute(2, 0, 1, 3)

    left, right = at(path, low), at(path, low + 1)
    rising, falling = at(slopes, low), at(slopes, low + 1)
    rest = 1 - s
    return rest * rest * ((1 + 2 * s) * left + s * rising) + s * s * (
        (3 - 2 * s) * right - rest * falling
    )
