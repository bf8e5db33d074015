"""The clocks of samples that have a step size each: times, step sizes and next outputs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from undamped.ode.loop.route import AT_ZERO, LONG

RECENT = 8
"""Number of accepted steps over which the step size is averaged, approximately."""


@dataclass
class Attempt:
    """One step of some samples, all tensors with an entry for each of these rows.

    Args:
        rows: Indices of the samples, (rows,).
        active: Samples that have not finished; the others take a step of size zero.
        t: Times at the start of the step.
        size: Step sizes, without sign.
        h: The same with the sign of the direction of time.
        target: Next output times.
        landing: Samples whose step ends at the output.
        y: States at the start, (rows, …).
        y1: States at the end.
        stages: Stages of the step.
        ratio: Errors in units of the tolerance.
        accepted: Samples that accept the step.
    """

    rows: Tensor
    active: Tensor
    t: Tensor
    size: Tensor
    h: Tensor
    target: Tensor
    landing: Tensor
    y: Tensor
    y1: Tensor
    stages: list[Tensor]
    ratio: Tensor
    accepted: Tensor

    def column(self, value: Tensor) -> Tensor:
        """Return one number per row in a shape that broadcasts with the state."""
        return value.view(len(self.rows), *(1,) * (self.y.dim() - 1))

    @property
    def step(self) -> tuple[Tensor, Tensor]:
        """Times and signed step sizes, as columns."""
        return self.column(self.t), self.column(self.h)

    @property
    def accepted_h(self) -> Tensor:
        """Signed step sizes, zero where the step is rejected."""
        return torch.where(self.accepted, self.h, torch.zeros_like(self.h))


class Clocks:
    """Time, step size and next output of every sample.

    Args:
        times: Output times, (outputs, batch), each column increasing or decreasing.
    """

    def __init__(self, times: Tensor) -> None:
        batch, device = times.shape[1], times.device
        self.times, self.t = times, times[0].clone()
        self.direction = torch.sign(times[-1] - times[0])
        self.index = torch.ones(batch, dtype=torch.long, device=device)
        """Next output of every sample; the number of outputs for one that has finished."""
        self.h = torch.zeros_like(self.t)
        """Size of the next step, without sign."""
        self.pace = torch.full_like(self.t, math.nan)
        """Mean size of the last accepted steps."""

    @property
    def active(self) -> Tensor:
        """Samples that have not finished."""
        return self.index < len(self.times)

    @property
    def target(self) -> Tensor:
        """Time of the next output, or of the last one for samples that have finished."""
        last = len(self.times) - 1
        return self.times.gather(0, self.index.clamp_max(last).unsqueeze(0))[0]

    def attempt(self, rows: Tensor, y: Tensor) -> Attempt:
        """Return the next step of some samples, at most up to their next outputs.

        Args:
            rows: Indices of the samples.
            y: The states of all samples.
        """
        h, t, target, active = self.h[rows], self.t[rows], self.target[rows], self.active[rows]
        remaining = torch.where(active, (target - t).abs(), torch.zeros_like(h))
        landing = h >= remaining * (1 - 1e-12)
        size = torch.where(landing, remaining, h)
        start, signed = y[rows], size * self.direction[rows]
        return Attempt(
            rows, active, t, size, signed, target, landing, start, start, [], size, active
        )

    def accept(self, attempt: Attempt) -> None:
        """Advance the samples that accept their step."""
        time = torch.where(attempt.landing, attempt.target, attempt.t + attempt.h)
        time = torch.where(attempt.accepted, time, attempt.t)
        self.t = self.t.index_copy(0, attempt.rows, time)

    def resize(self, attempt: Attempt, factor: Tensor, largest: Tensor | None) -> Tensor:
        """Choose the next step sizes; return which rows cannot take a step so small.

        Args:
            attempt: The last step, accepted or rejected.
            factor: What the step sizes are multiplied by.
            largest: Upper bounds of the step sizes, or None.
        """
        rows, size, accepted = attempt.rows, attempt.size, attempt.accepted
        h, proposed = self.h[rows], size * factor
        # A step that was shortened to land on an output says little about the next size.
        cut = accepted & attempt.landing & (h > size)
        proposed = torch.where(cut, torch.maximum(h, proposed), proposed)
        if largest is not None:
            proposed = torch.minimum(proposed, largest)
        self.h = self.h.index_copy(0, rows, torch.where(attempt.active, proposed, h))
        pace = torch.where(self.pace[rows].isnan(), size, self.pace[rows])
        recent = torch.where(accepted, pace + (size - pace) / RECENT, self.pace[rows])
        self.pace = self.pace.index_copy(0, rows, recent)
        return self._stuck(attempt, proposed)

    def _stuck(self, attempt: Attempt, proposed: Tensor) -> Tensor:
        """Return which rows have a next step too small to change the time."""
        rows = attempt.rows
        now = self.t[rows]
        span = self.times[:, rows].abs().amax(0).clamp_max(LONG)
        smallest = 16 * 2.3e-16 * torch.maximum(now.abs(), AT_ZERO * span)
        # A size that is NaN is not large enough either, nor is one that moves no clock.
        stuck = ~attempt.accepted & ~(proposed >= smallest)
        stuck |= now + proposed * self.direction[rows] == now
        return stuck & attempt.active & self.active[rows]

    def finish(self, rows: Tensor) -> None:
        """Let samples take no further steps."""
        self.index = self.index.index_fill(0, rows, len(self.times))
