"""A decision threshold for one class, so that it reaches a required sensitivity."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Alarm:
    """A class that is predicted by a threshold, and not where it is the most probable.

    Args:
        positive: The class.
        threshold: It is predicted where its probability is at least this; elsewhere the most
            probable of the other classes is.
        target: The required sensitivity.
        sensitivity: The sensitivity on the series on which the threshold was selected.
        specificity: The specificity on them.
        series: How many of them are of the class, and how many are not.

    Example:
        >>> Alarm.choose("ill", [0.9, 0.4, 0.3, 0.1], [True, True, False, False], 0.95).threshold
        0.4
    """

    positive: str
    threshold: float
    target: float
    sensitivity: float
    specificity: float
    series: tuple[int, int]

    @classmethod
    def choose(cls, positive: str, probabilities: Any, truth: Any, target: float) -> Alarm:
        """Return the highest threshold that reaches a sensitivity.

        Args:
            positive: The class.
            probabilities: (series,) the probability of the class, by a model that was not trained
                on these series.
            truth: (series,) which of them are of the class.
            target: The required sensitivity.
        """
        scores, true = np.asarray(probabilities, dtype=np.float64), np.asarray(truth, dtype=bool)
        positives = np.sort(scores[true])[::-1]
        threshold = float(positives[math.ceil(target * len(positives) - 1e-9) - 1])
        counts = int(true.sum()), int((~true).sum())
        return cls(positive, threshold, target, *cls.rates(scores >= threshold, true), counts)

    @staticmethod
    def rates(predicted: Any, truth: Any) -> tuple[float, float]:
        """Return sensitivity and specificity of predictions; NaN without such series."""
        predicted, true = np.asarray(predicted, dtype=bool), np.asarray(truth, dtype=bool)
        sensitivity = float(predicted[true].mean()) if true.any() else math.nan
        return sensitivity, float((~predicted[~true]).mean()) if (~true).any() else math.nan

    def label(self, classes: list[str], probabilities: np.ndarray) -> str:
        """Return the predicted class of a series.

        Args:
            classes: All labels.
            probabilities: (classes,) their probabilities.
        """
        index = classes.index(self.positive)
        if probabilities[index] >= self.threshold:
            return self.positive
        others = probabilities.copy()
        others[index] = -1.0
        return classes[int(others.argmax())]

    @property
    def sentence(self) -> str:
        """A description of the threshold."""
        positives, negatives = self.series
        return (
            f"'{self.positive}' is predicted from a probability of {self.threshold:.3g}, for a "
            f"sensitivity of {self.target:g}: on the validation split it was "
            f"{self.sensitivity:.3g} ({positives:,} series) with a specificity of "
            f"{self.specificity:.3g} ({negatives:,})."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for run.json."""
        return {**asdict(self), "series": list(self.series)}

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> Alarm:
        """Return the alarm that `to_dict` describes."""
        # Earlier versions wrote "wanted" for the target.
        values = {"target" if name == "wanted" else name: value for name, value in stored.items()}
        return cls(**{**values, "series": tuple(stored["series"])})
