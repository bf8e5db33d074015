"""When a stream has seen enough of a series to decide on its class.

At checkpoints, which are fractions of the typical length of a series, a rule compares the
probability of the most likely class with a threshold. The threshold, the first checkpoint that may
decide and the number of equal answers in a row are those with the largest harmonic mean of accuracy
and earliness (1 − fraction of the series) on series that the model was not fitted to, among those
that lose at most two points of accuracy.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from undamped._base.errors import RunError
from undamped.lab.files import read_tensors, write_tensors

CHECKPOINTS = 20
MOST_LOSS = 0.02
"""The accuracy that an early decision may cost."""
_THRESHOLDS = (0.0, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.925, 0.95, 0.97, 0.98, 0.99, 0.995)
_REPEATS = (1, 2)


class EarlyAnswers(NamedTuple):
    """What a model answers for series that it was not fitted to, before they are over.

    Args:
        checkpoints: (checkpoints,) numbers of samples, the last of which is the typical length.
        probabilities: (series, checkpoints, classes); of the whole series where it is shorter.
        final: (series,) the class after the whole series.
        targets: (series,) the true class.
        lengths: (series,) numbers of samples.
    """

    checkpoints: np.ndarray
    probabilities: np.ndarray
    final: np.ndarray
    targets: np.ndarray
    lengths: np.ndarray


class Scores(NamedTuple):
    """Scores of a rule.

    Args:
        accuracy: Accuracy of the decisions.
        full_accuracy: Accuracy of the answers after the whole series.
        fraction: Mean fraction of a series before its decision.
        harmonic_mean: That of `accuracy` and 1 − `fraction`.
        series: The number of series.
    """

    accuracy: float
    full_accuracy: float
    fraction: float
    harmonic_mean: float
    series: int


class StoppingRule(NamedTuple):
    """A rule that ends the observation of a series.

    Args:
        checkpoints: Numbers of samples after which it may decide; after the last one it does.
        first: Index of the first checkpoint that may decide.
        threshold: The least probability of the most likely class.
        repeats: How many checkpoints in a row must have the same class: 1 or 2.
    """

    checkpoints: tuple[int, ...]
    first: int
    threshold: float
    repeats: int

    def decided_at(self, probabilities: np.ndarray) -> np.ndarray:
        """Return the index of the checkpoint that decides, for every series.

        Args:
            probabilities: (series, checkpoints, classes).
        """
        best = probabilities.argmax(-1)
        decides = probabilities.max(-1) >= self.threshold
        if self.repeats > 1:
            decides[:, 0] = False
            decides[:, 1:] &= best[:, 1:] == best[:, :-1]
        decides[:, : self.first] = False
        decides[:, -1] = True
        return decides.argmax(1)

    def score(self, answers: EarlyAnswers) -> Scores:
        """Return the scores of the rule on series.

        Args:
            answers: The answers at the checkpoints of the rule.
        """
        right, fraction = self._outcomes(answers)
        accuracy, mean_fraction = float(right.mean()), float(fraction.mean())
        earliness = 1 - mean_fraction
        harmonic = 2 * accuracy * earliness / max(accuracy + earliness, 1e-12)
        full = float((answers.final == answers.targets).mean())
        return Scores(accuracy, full, mean_fraction, harmonic, len(right))

    def loss(self, answers: EarlyAnswers) -> float:
        """Return the loss of accuracy by deciding early, plus its standard error."""
        right, _ = self._outcomes(answers)
        change = (answers.final == answers.targets).astype(float) - right
        return float(change.mean() + change.std() / len(change) ** 0.5)

    def _outcomes(self, answers: EarlyAnswers) -> tuple[np.ndarray, np.ndarray]:
        """Return which decisions are right, and the fraction of each series before its decision."""
        index = self.decided_at(answers.probabilities)
        rows = np.arange(len(index))
        right = answers.probabilities[rows, index].argmax(-1) == answers.targets
        fraction = np.minimum(answers.checkpoints[index] / answers.lengths, 1.0)
        return right, fraction


class Decisions:
    """Applies a rule to one series after the other.

    Args:
        rule: The rule.
    """

    def __init__(self, rule: StoppingRule) -> None:
        self.rule = rule
        self.reset()

    def reset(self) -> None:
        """Begin a new series."""
        self.sample: int | None = None
        """The number of samples before the decision; None while it is too early."""
        self.label, self.probability = -1, 0.0
        self._last = -1  # the class at the last checkpoint

    def remaining(self, samples: int) -> int | None:
        """Return how many samples are missing to the next checkpoint; None after the decision."""
        if self.sample is not None:
            return None
        return next((c - samples for c in self.rule.checkpoints if c > samples), 1)

    def take(self, samples: int, probabilities: np.ndarray) -> None:
        """Decide or not, after a number of samples.

        Args:
            samples: The number of samples, which is that of a checkpoint, or more than the last.
            probabilities: (classes,).
        """
        rule, best = self.rule, int(probabilities.argmax())
        highest = float(probabilities[best])
        speaks = highest >= rule.threshold and samples >= rule.checkpoints[rule.first]
        speaks = speaks and (rule.repeats == 1 or best == self._last)
        self._last = best
        if speaks or samples >= rule.checkpoints[-1]:
            self.sample, self.label, self.probability = samples, best, highest

    def state(self) -> list[Any]:
        """Return what continues a series, as plain values."""
        return [self.sample, self.label, self.probability, self._last]

    def restore(self, state: list[Any]) -> None:
        """Continue from what `state` returned."""
        self.sample, self.label, self.probability, self._last = state


def checkpoints_of(length: int) -> np.ndarray:
    """Return the numbers of samples at which series of a typical length are examined.

    Args:
        length: The typical number of samples.
    """
    return np.unique(np.ceil(np.arange(1, CHECKPOINTS + 1) / CHECKPOINTS * length).astype(int))


def choose_rule(answers: EarlyAnswers) -> StoppingRule:
    """Return the rule with the largest harmonic mean among those that lose little accuracy.

    The loss of accuracy plus its standard error must be at most `MOST_LOSS`, since the best of many
    rules looks better than it is. If none is, the rule decides after the typical length.

    Args:
        answers: Answers for series that the model was not fitted to.
    """
    checkpoints = tuple(int(count) for count in answers.checkpoints)
    best = StoppingRule(checkpoints, len(checkpoints) - 1, 1.0, 1)
    highest = best.score(answers).harmonic_mean
    grid = itertools.product(range(len(checkpoints) - 1), _THRESHOLDS, _REPEATS)
    for first, threshold, repeats in grid:
        rule = StoppingRule(checkpoints, first, threshold, repeats)
        harmonic_mean = rule.score(answers).harmonic_mean
        if harmonic_mean > highest and rule.loss(answers) <= MOST_LOSS:
            best, highest = rule, harmonic_mean
    return best


class ChosenRule(NamedTuple):
    """A rule and how it did on the series that it was chosen on.

    Args:
        rule: The rule.
        scores: Its scores.
        accuracy: (checkpoints,) accuracy of the most likely class at every checkpoint.
        confidence: (checkpoints,) its mean probability.
    """

    rule: StoppingRule
    scores: Scores
    accuracy: np.ndarray
    confidence: np.ndarray

    @classmethod
    def of(cls, rule: StoppingRule, answers: EarlyAnswers) -> ChosenRule:
        """Return a rule with its scores on series."""
        right = answers.probabilities.argmax(-1) == answers.targets[:, None]
        confidence = answers.probabilities.max(-1).mean(0)
        return cls(rule, rule.score(answers), right.mean(0), confidence)

    def calibration(self) -> list[tuple[float, float, float]]:
        """Return fraction, accuracy and mean confidence at about 10, 25, 50 and 100 %."""
        fractions = np.array(self.rule.checkpoints) / self.rule.checkpoints[-1]
        indices = [int(np.abs(fractions - fraction).argmin()) for fraction in (0.1, 0.25, 0.5, 1.0)]
        columns = fractions, self.accuracy, self.confidence
        return [tuple(float(column[at]) for column in columns) for at in dict.fromkeys(indices)]  # type: ignore[misc]

    def save(self, path: Path, model: str) -> None:
        """Write the rule into a file, atomically.

        Args:
            path: The file.
            model: The fingerprint of its model.
        """
        tensors = {
            "checkpoints": torch.tensor(self.rule.checkpoints),
            "accuracy": torch.from_numpy(self.accuracy),
            "confidence": torch.from_numpy(self.confidence),
        }
        plain = [*self.rule[1:], *self.scores]
        write_tensors(path, tensors, {"model": model, "rule": json.dumps(plain)})

    @classmethod
    def load(cls, path: Path, model: str) -> ChosenRule | None:
        """Return the rule in a file; None if there is no file, or for another model.

        Args:
            path: The file.
            model: The fingerprint of the model.
        """
        if not path.exists():
            return None
        tensors, metadata = read_tensors(path)
        if metadata.get("model") != model:
            return None
        try:
            first, threshold, repeats, *scores = json.loads(metadata["rule"])
            checkpoints = tuple(tensors["checkpoints"].tolist())
            rule = StoppingRule(checkpoints, first, threshold, repeats)
            columns = (tensors[name].numpy() for name in ("accuracy", "confidence"))
            return cls(rule, Scores(*scores), *columns)
        except (LookupError, TypeError, ValueError, RecursionError):
            raise RunError(
                f"{path} has no complete stopping rule. Delete it, and --decide chooses one again."
            ) from None
