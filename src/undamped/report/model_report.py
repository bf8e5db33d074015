"""What a page shows of one model: plain records, so that anything can be reported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from undamped.analysis.core.result import Result


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
        results: What each instrument found, by the instrument's name.
        left_out: Why an instrument has nothing to say about this model, by its name.
        curve: Rows of the training curve, each with "step" and any of "train_loss",
            "valid_loss" and further numbers.
        score: The result of training.
        options: Settings by name.
        versions: Versions of the libraries.
        command: The command that made the run.
        path: Where the run lies.
        found: What training found and the settings do not say, in sentences.
        tried: What was raced before the model was chosen, as run.json remembers it.
    """

    name: str
    verdict: str = ""
    tone: Literal["good", "bad", "neutral"] = "neutral"
    remedies: Sequence[Remedy] = ()
    results: Mapping[str, Result] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    curve: Sequence[Mapping[str, float]] = ()
    score: Score | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    path: str = ""
    found: Sequence[str] = ()
    tried: Sequence[Mapping[str, Any]] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return verdict, remedies and all results for JSON, each under its instrument's name."""
        return {
            "name": self.name,
            "verdict": self.verdict,
            "remedies": [{"advice": r.advice, "command": r.command} for r in self.remedies],
            **dict.fromkeys(self.left_out),
            **{name: result.to_dict() for name, result in self.results.items()},
            "left_out": dict(self.left_out),
        }
