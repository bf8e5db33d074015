"""A linear probe: what a ridge regression reads from features, scored on series it never saw.

Classes are regressed as one column each, and the largest answer counts. The penalty is the one
with the smallest leave-one-out error on the series the probe is fitted on, which ridge regression
gives in closed form; the held-out series have no say in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

PENALTIES = 10.0 ** np.arange(-6, 3)
"""Penalties that are tried, for features of variance one and as a share of the series."""


@dataclass(frozen=True)
class Answers:
    """What is to be read, one row per series.

    Args:
        values: (series, columns): numbers, or one column for each class with a one in it.
        classes: Whether the columns are classes.
    """

    values: Array
    classes: bool

    def score(self, predicted: Array, held_out: Array, fitted: Array) -> float:
        """Return the share of right classes, or the explained share of the variance.

        Args:
            predicted: Answers to the held-out series.
            held_out: Which series they are.
            fitted: Which series the probe was fitted on.
        """
        wanted = self.values[held_out]
        if self.classes:
            return float((predicted.argmax(1) == wanted.argmax(1)).mean())
        missed = ((wanted - predicted) ** 2).sum(0)
        spread = ((wanted - self.values[fitted].mean(0)) ** 2).sum(0)
        return float((1 - missed / np.where(spread > 0, spread, 1.0)).mean())

    def guess(self, held_out: Array, fitted: Array) -> float:
        """Return the score of the best answer that does not look at the series."""
        best = self.values[fitted].mean(0)
        return self.score(np.tile(best, (len(held_out), 1)), held_out, fitted)


def answers_of(targets: Array) -> Answers:
    """Take classes (series,) as whole numbers, or numbers (series,) or (series, columns)."""
    if np.issubdtype(targets.dtype, np.floating):
        columns = targets.reshape(len(targets), -1).astype(np.float64)
        scale = columns.std(0)
        return Answers((columns - columns.mean(0)) / np.where(scale > 0, scale, 1.0), False)
    found, number = np.unique(targets.reshape(len(targets)), return_inverse=True)
    return Answers(np.eye(len(found))[number.reshape(-1)], True)


Split = tuple[Array, Array]
"""Which series to fit on, and which to score on."""


def probe_scores(features: Array, answers: Answers, splits: list[Split]) -> Array:
    """Return the score of a probe for each split.

    Where no series is ever scored on that another split fits on, the penalty is chosen once, on
    all that is fitted on; otherwise each split chooses its own.

    Args:
        features: (series, features), any scale.
        answers: What is to be read.
        splits: For each probe, which series to fit on, and which to score on.
    """
    known = np.unique(np.concatenate([fitted for fitted, _ in splits]))
    if any(np.isin(held, known).any() for _, held in splits):
        scores = [_scores_of(features, answers, [split], split[0])[0] for split in splits]
        return np.array(scores)
    return np.array(_scores_of(features, answers, splits, known))


def _scores_of(features: Array, answers: Answers, splits: list[Split], known: Array) -> list[float]:
    """Standardise and choose the penalty on the known series; fit and score each split."""
    centre, scale = features[known].mean(0), features[known].std(0)
    moving = scale > 0
    if not moving.any():
        return [answers.guess(held, fitted) for fitted, held in splits]
    x = (features[:, moving] - centre[moving]) / scale[moving]
    y = answers.values
    penalty = best_penalty(x[known], y[known] - y[known].mean(0))
    scores = []
    for fitted, held in splits:
        middle, average = x[fitted].mean(0), y[fitted].mean(0)
        weights = ridge(x[fitted] - middle, y[fitted] - average, penalty)
        scores.append(answers.score((x[held] - middle) @ weights + average, held, fitted))
    return scores


def ridge(x: Array, y: Array, penalty: float) -> Array:
    """Return the weights that make ‖x w − y‖² + series · penalty · ‖w‖² small."""
    series, width = x.shape
    if width <= series:
        gram = x.T @ x
        gram[np.diag_indices(width)] += series * penalty
        return np.linalg.solve(gram, x.T @ y)
    gram = x @ x.T
    gram[np.diag_indices(series)] += series * penalty
    return x.T @ np.linalg.solve(gram, y)


def best_penalty(x: Array, y: Array) -> float:
    """Return the penalty with the smallest leave-one-out error.

    Args:
        x: Features with mean zero and variance one.
        y: Answers with mean zero.
    """
    if x.shape[1] <= len(x):
        power, directions = np.linalg.eigh(x.T @ x)
        coordinates = x @ directions
    else:  # the same directions from the smaller product
        power, sides = np.linalg.eigh(x @ x.T)
        coordinates = sides * np.sqrt(np.maximum(power, 0))
    power, squares = np.maximum(power, 0.0), coordinates**2
    along = coordinates.T @ y
    errors = []
    for penalty in PENALTIES * len(x):
        shrunk = 1 / (power + penalty)
        fit = coordinates @ (shrunk[:, None] * along)
        # The mean that was taken off has its share in every answer too.
        leverage = np.minimum(squares @ shrunk + 1 / len(x), 1 - 1e-9)
        errors.append((((y - fit) / (1 - leverage)[:, None]) ** 2).mean())
    return float(PENALTIES[int(np.argmin(errors))])
