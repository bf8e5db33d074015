"""What a solve did: its steps, its counts, and why it stopped."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import overload

from torch import Tensor

from undamped.ode.methods.solver import Number, SolverState


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

    def cut(self, count: int, piece: int, final: SolverState) -> None:
        """Forget the steps after the first so many, which ended in `final`."""
        self.steps.cut(count)
        del self.checkpoints[-(-count // piece) :]
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
    kept_bytes: int = 0


@dataclass(frozen=True)
class Failure:
    """Why a solve stopped early."""

    status: Status
    message: str
    t: float
    sample: int | None = None
