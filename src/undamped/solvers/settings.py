"""The settings of a solve: tolerances, step sizes, limits."""

from __future__ import annotations

from dataclasses import dataclass, field

from undamped.options import NonNegativeFloat, PositiveFloat, PositiveInt
from undamped.solvers.loop.control import StepControl


@dataclass(frozen=True)
class Settings:
    """How a solve is to be done.

    Args:
        rtol: Relative tolerance of a step.
        atol: Absolute tolerance of a step.
        step_size: Fixed step size; None lets an adaptive method choose.
        first_step: First step size of an adaptive solve; None chooses it.
        max_step: Largest step size of an adaptive solve; None sets no limit.
        max_steps: Steps, accepted and rejected, after which to give up.
        control: Step control.
        piece: Steps recomputed at a time when gradients are taken from checkpoints.
        norm_size: How many leading numbers of the state count in the error; None counts all.
    """

    rtol: NonNegativeFloat = 1e-7
    atol: NonNegativeFloat = 1e-9
    step_size: PositiveFloat | None = None
    first_step: PositiveFloat | None = None
    max_step: PositiveFloat | None = None
    max_steps: PositiveInt = 100_000
    control: StepControl = field(default_factory=StepControl)
    piece: PositiveInt = 1
    norm_size: PositiveInt | None = None
