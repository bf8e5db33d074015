"""What a solve did: its steps, its counts, and why it stopped."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum

from torch import Tensor

from undamped.solvers.solver import Number, SolverState


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


@dataclass
class Trace:
    """Everything needed to repeat the accepted steps of a solve."""

    steps: list[Step] = field(default_factory=list)
    checkpoints: list[SolverState] = field(default_factory=list)
    final: SolverState = ()


@dataclass
class Statistics:
    """Counts of one solve; those of the way back fill in when gradients are taken."""

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
