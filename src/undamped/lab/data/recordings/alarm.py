"""From which probability on a class is said, so that a wanted share of it is found."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Alarm:
    """A class that is said earlier, or later, than when it is the likeliest.

    Args:
        positive: The class.
        threshold: It is said where its probability is at least this; elsewhere the likeliest of
            the others is.
        wanted: The share of its series that should be found.
        sensitivity: The share that was found where the threshold was chosen.
        specificity: The share of the other series that were not taken for it there.
        series: How many series of the class, and how many others, there were.

    Example:
        >>> Alarm.choose("ill", [0.9, 0.4, 0.3, 0.1], [True, True, False, False], 0.95).threshold
        0.4
    """

    positive: str
    threshold: float
    wanted: float
    sensitivity: float
    specificity: float
    series: tuple[int, int]

    @classmethod
    def choose(cls, positive: str, probabilities: Any, truth: Any, wanted: float) -> Alarm:
        """Take the highest threshold at which enough series of the class are found.

        Args:
            positive: The class.
            probabilities: (series,) how likely each is of the class, by a model that has not
                learnt from it.
            truth: (series,) which are.
            wanted: The share to be found.
        """
        likely, true = np.asarray(probabilities, dtype=np.float64), np.asarray(truth, dtype=bool)
        own = np.sort(likely[true])[::-1]
        threshold = float(own[math.ceil(wanted * len(own) - 1e-9) - 1])
        found, spared = cls.shares(likely >= threshold, true)
        return cls(
            positive, threshold, wanted, found, spared, (int(true.sum()), int((~true).sum()))
        )

    @staticmethod
    def shares(said: Any, truth: Any) -> tuple[float, float]:
        """Return sensitivity and specificity of what was said; NaN where there was nothing."""
        said, true = np.asarray(said, dtype=bool), np.asarray(truth, dtype=bool)
        found = float(said[true].mean()) if true.any() else math.nan
        return found, float((~said[~true]).mean()) if (~true).any() else math.nan

    def label(self, classes: list[str], probabilities: np.ndarray) -> str:
        """Return what is said to one series.

        Args:
            classes: All labels.
            probabilities: (classes,) how likely each is.
        """
        place = classes.index(self.positive)
        if probabilities[place] >= self.threshold:
            return self.positive
        others = probabilities.copy()
        others[place] = -1.0
        return classes[int(others.argmax())]

    @property
    def sentence(self) -> str:
        """What it is, in words."""
        own, others = self.series
        return (
            f"'{self.positive}' is said from a probability of {self.threshold:.3g} on, for a "
            f"sensitivity of {self.wanted:g}: on the validation part it was {self.sensitivity:.3g} "
            f"({own:,} series) with a specificity of {self.specificity:.3g} ({others:,})."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for run.json."""
        return {**asdict(self), "series": list(self.series)}
