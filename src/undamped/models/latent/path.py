"""A latent flow on a grid of its own, and its values at anybody's times."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from undamped._base.errors import ShapeError, explain
from undamped.models.irregular.gap_flows import SolvedFlow
from undamped.models.stamped import refuse_before

UNITS = 5.0
"""Units of the flow's own time in the span of a task: a field that starts small does something."""

MOST_STEPS = 20_000
"""Steps of the grid that are taken: times beyond are a mistake, and would fill the memory."""


class LatentFlow(nn.Module):
    """An autonomous flow from time 0 on, solved once, on a grid that has nothing to do with data.

    Between the points of the grid values lie on the cubics that have the flow's own slopes there
    (an error of the fourth order, like that of rk4). So answers cost nothing, every sequence may
    ask for its own times, and no answer depends on what others ask for.

    Args:
        field: dz/dt, a module called with (t, z).
        span: How long sequences last.
        steps: Points of the grid in that time.
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
        place = times * (self.steps / self.span)
        path, slopes = self.path(z, max(1, math.ceil(float(place.max()) - 1e-9)))
        return cubic(path, slopes, place)

    def path(self, z: Tensor, steps: int) -> tuple[Tensor, Tensor]:
        """Return states and slopes per step, (grid, draws, batch, size), of `steps` steps."""
        if steps > MOST_STEPS:
            spans = f"{MOST_STEPS / self.steps:,.0f} spans of the task ({self.span:g} each)"
            raise ShapeError(
                explain(
                    "times",
                    expected=f"times of up to {spans} after time 0",
                    got=f"{steps * self.span / self.steps:,.0f}",
                    remedy="Count them from the start of each sequence.",
                )
            )
        size = UNITS / self.steps
        rows = z.flatten(0, 1)
        gap = rows.new_full((len(rows),), size)
        states = [rows]
        for _ in range(steps):
            states.append(self.step(states[-1], gap))
        path = torch.stack(states).unflatten(1, z.shape[:2])
        return path, self.step.field(0.0, path) * size

    def finely(self, z: Tensor, time: float) -> Tensor:
        """Return rows after a time, of the flow's own, solved with a small tolerance."""
        fine = SolvedFlow(self.step.field, method="dopri5", tolerance=1e-8)
        return fine(z, z.new_full((len(z),), time))


def integral(path: Tensor, slopes: Tensor, rate: Callable[[Tensor], Tensor], end: Tensor) -> Tensor:
    """Return ∫ rate(z) from the grid's first point to an end, (draws, batch, rates).

    Simpson's rule over the steps of the grid; the last, incomplete one lies on the cubic whose
    slopes are the rates themselves.

    Args:
        path: (grid, draws, batch, size).
        slopes: The derivatives there, per step of the grid.
        rate: From states (…, size) to rates (…, rates), per step of the grid.
        end: (batch,) up to where, in steps of the grid.
    """
    steps = len(path) - 1
    middles = torch.arange(steps, device=path.device) + 0.5
    between = cubic(path, slopes, middles.unsqueeze(1).expand(-1, path.shape[2]))
    at_points, at_middles = rate(path), rate(between).transpose(0, 1)
    each = (at_points[:-1] + 4 * at_middles + at_points[1:]) / 6
    total = torch.cat([torch.zeros_like(each[:1]), each.cumsum(0)])
    return cubic(total, at_points, end.unsqueeze(0)).squeeze(1)


def cubic(path: Tensor, slopes: Tensor, place: Tensor) -> Tensor:
    """Return values at places between the points of a grid, on cubics with given slopes.

    Args:
        path: (grid, draws, batch, size).
        slopes: The derivatives there, per step of the grid.
        place: (times, batch) where, in steps of the grid.

    Returns:
        (draws, times, batch, size).
    """
    low = place.floor().clamp(0, len(path) - 2).long()
    s = (place - low).to(path.dtype).view(1, *place.shape, 1)
    sequence = torch.arange(place.shape[1], device=place.device)

    def at(values: Tensor, index: Tensor) -> Tensor:
        # (grid, draws, batch, size) at (times, batch): advanced indices come first.
        return values.transpose(1, 2)[index, sequence].permute(2, 0, 1, 3)

    left, right = at(path, low), at(path, low + 1)
    rising, falling = at(slopes, low), at(slopes, low + 1)
    rest = 1 - s
    return rest * rest * ((1 + 2 * s) * left + s * rising) + s * s * (
        (3 - 2 * s) * right - rest * falling
    )
