"""What a solve did: its run, its steps and counts, why it stopped, and what it returns."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from torch import Tensor

from undamped.ode.methods.solver import Number, SolverState

if TYPE_CHECKING:
    from undamped.ode.field import CountedField
    from undamped.ode.loop.dense import DenseOutput, SampleDenseOutput
    from undamped.ode.settings import Settings


class Status(Enum):
    """How a solve, or one sample of it, ended."""

    DONE = "done"
    EVENT = "stopped at an event"
    MAX_STEPS = "gave up after max_steps"
    STEP_TOO_SMALL = "needed steps too small for the number format"
    NON_FINITE = "met a value that is not finite"


@dataclass(frozen=True, slots=True)
class Step:
    """One accepted step, with the outputs that fell in it.

    `outputs` pairs the number of an output with the fraction of the step at which it lies, or
    None for the end. `rows` says which samples took the step; None means all.
    """

    t: Number
    h: Number
    outputs: tuple[tuple[int, float | None], ...] = ()
    rows: Tensor | None = None
    landed: Tensor | None = None


class StepLog(Sequence[Step]):
    """The steps of a solve, sixteen bytes each unless there is more to say about one."""

    def __init__(self) -> None:
        self._times, self._sizes = array("d"), array("d")
        self._special: dict[int, Step] = {}

    def append(self, step: Step) -> None:
        """Add a step."""
        plain = not (isinstance(step.h, Tensor) or step.outputs)
        if not plain:
            self._special[len(self._times)] = step
        self._times.append(float(step.t) if plain else 0.0)
        self._sizes.append(float(step.h) if plain else 0.0)

    def cut(self, count: int) -> None:
        """Keep the first so many."""
        del self._times[count:], self._sizes[count:]
        self._special = {index: step for index, step in self._special.items() if index < count}

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._times)

    @overload
    def __getitem__(self, index: int) -> Step: ...

    @overload
    def __getitem__(self, index: slice) -> list[Step]: ...

    def __getitem__(self, index: int | slice) -> Step | list[Step]:
        """Return a step, or several."""
        if isinstance(index, slice):
            return [self[k] for k in range(*index.indices(len(self)))]
        special = self._special.get(index)
        return special or Step(self._times[index], self._sizes[index])


@dataclass
class Trace:
    """Everything needed to repeat the accepted steps of a solve."""

    steps: StepLog = field(default_factory=StepLog)
    checkpoints: list[SolverState] = field(default_factory=list)
    final: SolverState = ()

    def cut(self, count: int, checkpoint_steps: int, final: SolverState) -> None:
        """Forget the steps after the first so many, which ended in `final`."""
        self.steps.cut(count)
        del self.checkpoints[-(-count // checkpoint_steps) :]
        self.final = final


@dataclass
class Statistics:
    """Counts of one solve; those of the backward pass fill in when gradients are taken."""

    evaluations: int = 0
    evaluations_backward: int = 0
    accepted: int = 0
    rejected: int = 0
    smallest_step: float = math.inf
    stiffness: float = math.nan
    sample_evaluations: int = 0
    stored_bytes: int = 0

    def note_stiffness(self, estimate: float) -> None:
        """Take an estimate of step size times fastest rate into account; the largest counts."""
        largest = self.stiffness
        self.stiffness = estimate if math.isnan(largest) else max(largest, estimate)


@dataclass(frozen=True)
class Failure:
    """Why a solve stopped early."""

    status: Status
    message: str
    t: float
    sample: int | None = None


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
        """Integrate to the end, or until a failure."""

    @abstractmethod
    def statuses(self) -> tuple[Status, ...]:
        """Return how it ended, once or for each sample."""

    @abstractmethod
    def at_event(self, values: Tensor, *, exact: bool) -> EventResult:
        """Return the outputs, and time and state of the event as functions of what they depend on.

        Args:
            values: What the run reached, with a graph; (outputs, …), the event last.
            exact: Whether gradients of gradients are needed.
        """
