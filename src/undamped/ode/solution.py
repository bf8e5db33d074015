"""What a solve returns: the values, and what it took to get them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from undamped.ode.loop.dense import DenseOutput
from undamped.ode.loop.sample_dense import SampleDenseOutput
from undamped.ode.record import Statistics, Status


@dataclass(frozen=True)
class Solution:
    """A solution and its history.

    Args:
        values: States at the output times, (outputs, …), in the form the start had; NaN where a
            solve that had to stop did not get to.
        times: The output times.
        status: How it ended, for each sample where samples have their own steps, else once.
        message: Why it stopped early; empty if it did not.
        statistics: Counts; those of the backward pass fill in when gradients are taken.
        event_time: When the event happened; for each sample where samples have their own steps,
            NaN for one that never met it. All times, (events,), if it did not end the solve.
        event_state: The state then, likewise.
        dense: The solution as a function of time, if asked for.
    """

    values: Any
    times: Tensor
    status: tuple[Status, ...]
    message: str
    statistics: Statistics
    event_time: Tensor | None = None
    event_state: Any = None
    dense: DenseOutput | SampleDenseOutput | None = None

    @property
    def success(self) -> bool:
        """Whether every sample reached its end or its event."""
        return all(status in (Status.DONE, Status.EVENT) for status in self.status)

    @property
    def final(self) -> Any:
        """The state at the last output time."""
        if isinstance(self.values, Tensor):
            return self.values[-1]
        return tuple(value[-1] for value in self.values)

    @property
    def evaluations(self) -> int:
        """How often the field was evaluated in the forward pass (NFE)."""
        return self.statistics.evaluations

    @property
    def evaluations_backward(self) -> int:
        """How often it was evaluated for gradients, so far."""
        return self.statistics.evaluations_backward

    @property
    def accepted(self) -> int:
        """Accepted steps, summed over samples where they have their own."""
        return self.statistics.accepted

    @property
    def rejected(self) -> int:
        """Refused steps."""
        return self.statistics.rejected

    @property
    def smallest_step(self) -> float:
        """The smallest accepted step size."""
        return self.statistics.smallest_step

    @property
    def stiffness(self) -> float:
        """Largest step size times fastest rate that was seen; NaN if the method cannot tell.

        An explicit method is limited by stability, not accuracy, when this stays near its
        stability limit, about 3.3 for dopri5.
        """
        return self.statistics.stiffness

    def __str__(self) -> str:
        stiff = "" if math.isnan(self.stiffness) else f", stiffness {self.stiffness:.2g}"
        head = "solved" if self.success else self.message
        return (
            f"{head}: {self.evaluations} evaluations ({self.evaluations_backward} backward), "
            f"{self.accepted} steps, {self.rejected} refused, smallest {self.smallest_step:.3g}"
            f"{stiff}"
        )
