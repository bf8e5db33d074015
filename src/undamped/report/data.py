"""What a page shows of one model: plain records, so that anything can be reported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from undamped.analysis.cost import Cost
from undamped.analysis.gradient_flow import GradientFlow
from undamped.analysis.jacobian import Spectrum
from undamped.analysis.ode_gradients import GradientComparison
from undamped.analysis.promises import Measurement
from undamped.analysis.recall import Recall


@dataclass(frozen=True)
class Remedy:
    """What to change, by name, and the command that does it (or none)."""

    advice: str
    command: str = ""


@dataclass(frozen=True)
class Score:
    """What a run reached: its metric on the test part, and what a guess would score."""

    metric: str
    value: float
    chance: float | None = None
    higher_is_better: bool = True


@dataclass(frozen=True)
class ModelReport:
    """One model on a page.

    Args:
        name: What to call it; names on one page should differ.
        verdict: One sentence, with its numbers.
        tone: Whether the verdict is good, bad or neither.
        remedies: What to change.
        gradient_flow: How far gradients travel.
        recall: What a linear readout remembers.
        spectrum: Eigenvalues of the Jacobian of one step.
        promises: Claims and measurements.
        cost: Parameters, flops and seconds.
        ode_gradients: The ways to the gradient of a model that solves ODEs.
        curve: Rows of the training curve, each with "step" and any of "train_loss",
            "valid_loss" and further numbers.
        score: The result of training.
        options: Settings by name.
        versions: Versions of the libraries.
        command: The command that made the run.
        path: Where the run lies.
    """

    name: str
    verdict: str = ""
    tone: Literal["good", "bad", "neutral"] = "neutral"
    remedies: Sequence[Remedy] = ()
    gradient_flow: GradientFlow | None = None
    recall: Recall | None = None
    spectrum: Spectrum | None = None
    promises: Sequence[Measurement] = ()
    cost: Cost | None = None
    ode_gradients: GradientComparison | None = None
    curve: Sequence[Mapping[str, float]] = ()
    score: Score | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    path: str = ""
