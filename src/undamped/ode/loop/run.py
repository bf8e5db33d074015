"""What every run of a solve offers, whether samples share a step size or have their own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from torch import Tensor

from undamped.ode.field import CountedField
from undamped.ode.record import Failure, Statistics, Status, Trace
from undamped.ode.settings import Settings


class EventResult(NamedTuple):
    """The outputs of a solve apart from what belongs to its event.

    Args:
        values: The outputs, (outputs, …).
        time: When the event happened, once or for each sample; None without one.
        state: The state then, packed.
    """

    values: Tensor
    time: Tensor | None = None
    state: Tensor | None = None


class Run(ABC):
    """One solve under way: `run` it to its end, then read what it found."""

    field: CountedField
    settings: Settings
    times: Any
    values: list[Tensor]
    trace: Trace
    statistics: Statistics
    failure: Failure | None

    @abstractmethod
    def run(self) -> None:
        """Go to the end, or to where it cannot go on."""

    @abstractmethod
    def statuses(self) -> tuple[Status, ...]:
        """Return how it ended, once or for each sample."""

    @abstractmethod
    def at_event(self, values: Tensor, *, exact: bool) -> EventResult:
        """Return the outputs, and time and state of the event as functions of what they depend on.

        Args:
            values: What the run reached, with a graph; (outputs, …), the event last.
            exact: Whether gradients of gradients are wanted.
        """
