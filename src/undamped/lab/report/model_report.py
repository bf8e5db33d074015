"""What a page shows of one model: plain records, so that anything can be reported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from undamped.analysis.core.result import Result


@dataclass(frozen=True)
class Remedy:
    """What to change, by name, the command that does it (or none), and the setting it changes."""

    advice: str
    command: str = ""
    setting: str = ""


Tone = Literal["good", "bad", "neutral"]


@dataclass(frozen=True)
class Note:
    """A sentence below the verdict, without a full stop, and whether it is good news."""

    text: str
    tone: Tone = "neutral"


@dataclass(frozen=True)
class Score:
    """What a run reached: its metric on the test part, what a guess scores, and a trivial rule."""

    metric: str
    value: float
    chance: float | None = None
    higher_is_better: bool = True
    part: str = "test"
    baseline: tuple[float, str] | None = None
    """What the best trivial rule scores, and what it looks at."""

    @property
    def better(self) -> bool:
        """Whether it is better than a guess; true where nobody knows what that scores."""
        if self.chance is None:
            return True
        return self.value > self.chance if self.higher_is_better else self.value < self.chance

    @property
    def words(self) -> str:
        """The score beside that of a guess."""
        said = f"{self.part} {self.metric.replace('_', ' ')} {self.shown}"
        if self.chance is None:
            return said
        beside = "a guess" if self.better else "no better than a guess"
        rule = ""
        if self.baseline is not None:
            rule = f", {self.baseline[1]} alone {self.format(self.baseline[0])}"
        return f"{said}, {beside} {self.format(self.chance)}{rule}"

    @property
    def shown(self) -> str:
        """The value as text."""
        return self.format(self.value)

    def format(self, value: float) -> str:
        """Return a value of this metric as text."""
        return f"{100 * value:.1f} %" if self.metric.endswith("accuracy") else f"{value:.4g}"


@dataclass(frozen=True)
class ModelReport:
    """One model on a page.

    Args:
        name: What to call it; names on one page should differ.
        verdict: One sentence, with its numbers: of a trained run its score beside that of a guess.
        tone: Whether the verdict is good, bad or neither.
        notes: What else is worth knowing, the health of the gradients for example.
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
    tone: Tone = "neutral"
    notes: Sequence[Note] = ()
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
            "notes": [note.text for note in self.notes],
            "remedies": [{"advice": r.advice, "command": r.command} for r in self.remedies],
            **dict.fromkeys(self.left_out),
            **{name: result.to_dict() for name, result in self.results.items()},
            "left_out": dict(self.left_out),
        }
