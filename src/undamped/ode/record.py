"""The record of a solve: its run, its steps and counts, why it stopped, and the solution."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from undamped.ode.loop.norm import ErrorNorm
from undamped.ode.methods.solver import Number, SolverState

if TYPE_CHECKING:
    from undamped.ode.field import CountedField
    from undamped.ode.loop.dense import DenseOutput, SampleDenseOutput
    from undamped.ode.loop.events import EventFunction
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
    None for the end. `rows` are the samples that took the step; None means all.
    """

    t: Number
    h: Number
    outputs: tuple[tuple[int, float | None], ...] = ()
    rows: Tensor | None = None
    landed: Tensor | None = None


class Trace:
    """The accepted steps of a solve, and the states from which they can be repeated.

    A step takes sixteen bytes unless it has outputs or belongs to samples.

    Args:
        checkpoint_steps: Number of steps from one stored state to the next; None stores no states.
    """

    def __init__(self, checkpoint_steps: int | None = None) -> None:
        self._times, self._sizes = array("d"), array("d")
        self._special: dict[int, Step] = {}
        self._checkpoint_steps = checkpoint_steps
        self.checkpoints: list[SolverState] = []
        self.final: SolverState = ()

    def append(self, step: Step, state: SolverState) -> None:
        """Add a step that began in a state."""
        number = len(self._times)
        if self._checkpoint_steps is not None and number % self._checkpoint_steps == 0:
            self.checkpoints.append(state)
        plain = not (isinstance(step.h, Tensor) or step.outputs)
        if not plain:
            self._special[number] = step
        self._times.append(float(step.t) if plain else 0.0)
        self._sizes.append(float(step.h) if plain else 0.0)

    def cut(self, count: int, final: SolverState) -> None:
        """Keep the first steps, which ended in `final`."""
        del self._times[count:], self._sizes[count:]
        self._special = {index: step for index, step in self._special.items() if index < count}
        del self.checkpoints[-(-count // (self._checkpoint_steps or 1)) :]
        self.final = final

    def discard(self, failed: Tensor, output_steps: Tensor, t: Tensor, y: Tensor) -> None:
        """Turn the steps of failed samples after their last output into steps of size zero.

        No output depends on these steps, and no gradient may pass through them: zero times
        infinity is not zero.

        Args:
            failed: Whether each sample failed, (batch,).
            output_steps: Number of steps recorded when each sample last wrote an output, (batch,).
            t: Time of that output, (batch,).
            y: The state there, (batch, …).
        """
        every = self._checkpoint_steps or 1
        for number in range(int(output_steps[failed].min()), len(self)):
            after = failed & (output_steps <= number)
            if number % every == 0:
                (state,) = self.checkpoints[number // every]
                column = after.view(-1, *(1,) * (y.dim() - 1))
                self.checkpoints[number // every] = (torch.where(column, y, state),)
            step = self[number]
            if step.landed is None:
                assert isinstance(step.t, Tensor) and isinstance(step.h, Tensor)
                mask, times = (x if step.rows is None else x[step.rows] for x in (after, t))
                mask, times = mask.view(step.h.shape), times.view(step.h.shape)
                step.h.masked_fill_(mask, 0.0)
                step.t.copy_(torch.where(mask, times, step.t))

    def __len__(self) -> int:
        """Return the number of steps."""
        return len(self._times)

    def __getitem__(self, index: int) -> Step:
        """Return a step."""
        return self._special.get(index) or Step(self._times[index], self._sizes[index])


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
        values: States at the output times, (outputs, …), in the form of the start; NaN at times
            that a failed solve did not reach.
        times: The output times.
        status: How it ended, for each sample where samples have their own steps, else once.
        message: Why it stopped early; empty if it did not.
        statistics: Counts; those of the backward pass fill in when gradients are taken.
        event_time: Time of the event; for each sample where samples have their own steps, NaN for
            one without an event. All times, (events,), if the event did not end the solve.
        event_state: The state at that time, likewise.
        dense: The solution as a function of time, if requested.
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

    evaluations = property(lambda self: self.statistics.evaluations)
    """How often the field was evaluated in the forward pass (NFE)."""
    evaluations_backward = property(lambda self: self.statistics.evaluations_backward)
    """How often it was evaluated for gradients, so far."""
    accepted = property(lambda self: self.statistics.accepted)
    """Accepted steps, summed over samples where they have their own."""
    rejected = property(lambda self: self.statistics.rejected)
    """Rejected steps."""
    smallest_step = property(lambda self: self.statistics.smallest_step)
    """The smallest accepted step size."""
    stiffness = property(lambda self: self.statistics.stiffness)
    """Largest product of step size and fastest rate; NaN if the method has no estimate.

    An explicit method is limited by stability, not accuracy, when this stays near its stability
    limit, about 3.3 for dopri5.
    """

    def __str__(self) -> str:
        stiff = "" if math.isnan(self.stiffness) else f", stiffness {self.stiffness:.2g}"
        head = "solved" if self.success else self.message
        return (
            f"{head}: {self.evaluations} evaluations ({self.evaluations_backward} backward), "
            f"{self.accepted} steps, {self.rejected} rejected, smallest {self.smallest_step:.3g}"
            f"{stiff}"
        )


class EventResult(NamedTuple):
    """The outputs of a solve, and its event.

    Args:
        values: The outputs, (outputs, …).
        time: Time of the event, once or for each sample; None without one.
        state: The state at that time, packed.
    """

    values: Tensor
    time: Tensor | None = None
    state: Tensor | None = None


@dataclass(frozen=True)
class RunOptions:
    """What a solve does besides stepping from output to output.

    Args:
        first: f at the start, where it is available; on the side of a jump that the steps are on.
        checkpoint: Whether to store states from which steps can be repeated.
        record: Whether to record the steps, for repeating or undoing them.
        compact: Whether the field sees only unfinished samples, with a step size per sample.
        event: A function whose zero ends the solve, or the sample.
        watch: Called before a step is accepted, with (stepper, t, h, end); with a step size per
            sample after every attempt, with (rows, t, h, y, y1, stages), h zero where rejected.
        norm: Of errors; that of the settings by default.
        differentiated: Whether gradients are taken through the steps, so that their errors count.
        tensors: What gradients go to besides the start, where it is known.
    """

    first: Tensor | None = None
    checkpoint: bool = False
    record: bool = False
    compact: bool = False
    event: EventFunction | None = None
    watch: Callable[..., None] | None = None
    norm: ErrorNorm | None = None
    differentiated: bool = False
    tensors: Sequence[Tensor] | None = None


class Run(ABC):
    """One solve: `run` it to its end, then read its values.

    Args:
        field: The field, counted.
        solver: The method.
        y0: Start value.
        times: Output times, the first of which is the start; increasing or decreasing.
        settings: Tolerances and limits.
        options: What else to do.
    """

    def __init__(
        self,
        field: CountedField,
        solver: Any,
        y0: Tensor,
        times: Any,
        settings: Settings,
        options: RunOptions = RunOptions(),  # noqa: B008 it is frozen
    ) -> None:
        self.field, self.solver, self.y0, self.times = field, solver, y0, times
        self.settings, self.options = settings, options
        self.first, self.event, self.watch = options.first, options.event, options.watch
        self.norm = options.norm or ErrorNorm.of(settings, field.packing)
        self.values: list[Tensor] = [y0]
        self.trace = Trace(settings.checkpoint_steps if options.checkpoint else None)
        self.statistics = Statistics()
        self.failure: Failure | None = None
        self.next_step: float | None = None
        """The next step size of a solve with one adaptive step size."""
        self._prepare()

    @abstractmethod
    def _prepare(self) -> None:
        """Set what the loop needs besides."""

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
            values: The values of the run with a graph, (outputs, …), the event last.
            exact: Whether gradients of gradients are needed.
        """
