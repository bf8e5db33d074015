"""Statistics: trends with confidence intervals, and linear probes.

A linear probe is a ridge regression from features to targets, scored on held-out series. Classes
are regressed as one column each, and the largest prediction counts. The penalty is the one
with the smallest leave-one-out error on the series that the probe is fitted on, which has a closed
form for ridge regression; the held-out series are not used for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undamped.analysis.core.result import Record

Array = NDArray[Any]

PENALTIES = 10.0 ** np.arange(-6, 3)
"""Candidate penalties, for features of variance one and relative to the number of series."""


@dataclass(frozen=True)
class Answers:
    """The targets of a probe, one row per series.

    Args:
        values: (series, columns): numbers, or the one-hot encoding of classes.
        classes: Whether the columns are classes.
    """

    values: Array
    classes: bool

    def score(self, predicted: Array, held_out: Array, fitted: Array) -> float:
        """Return the accuracy, or the explained fraction of the variance.

        Args:
            predicted: Predictions for the held-out series.
            held_out: Indices of these series.
            fitted: Indices of the series that the probe was fitted on.
        """
        targets = self.values[held_out]
        if self.classes:
            return float((predicted.argmax(1) == targets.argmax(1)).mean())
        residual = ((targets - predicted) ** 2).sum(0)
        spread = ((targets - self.values[fitted].mean(0)) ** 2).sum(0)
        return float((1 - residual / np.where(spread > 0, spread, 1.0)).mean())

    def chance(self, held_out: Array, fitted: Array) -> float:
        """Return the score of the best constant prediction."""
        best = self.values[fitted].mean(0)
        return self.score(np.tile(best, (len(held_out), 1)), held_out, fitted)


def answers_of(targets: Array) -> Answers:
    """Return the targets of a probe: integers are classes, floats are numbers."""
    if np.issubdtype(targets.dtype, np.floating):
        columns = targets.reshape(len(targets), -1).astype(np.float64)
        scale = columns.std(0)
        return Answers((columns - columns.mean(0)) / np.where(scale > 0, scale, 1.0), False)
    classes, index = np.unique(targets.reshape(len(targets)), return_inverse=True)
    return Answers(np.eye(len(classes))[index.reshape(-1)], True)


Split = tuple[Array, Array]
"""Indices of the series to fit on, and of those to score on."""


def probe_scores(features: Array, answers: Answers, splits: list[Split]) -> Array:
    """Return the score of a probe for each split.

    If no series is both fitted and scored, the penalty is chosen once, on all fitted series;
    otherwise each split chooses its own.

    Args:
        features: (series, features), any scale.
        answers: The targets.
        splits: Indices of the series to fit on and to score on, for each probe.
    """
    all_fitted = np.unique(np.concatenate([fitted for fitted, _ in splits]))
    if any(np.isin(scored, all_fitted).any() for _, scored in splits):
        scores = [_scores_of(features, answers, [split], split[0])[0] for split in splits]
        return np.array(scores)
    return np.array(_scores_of(features, answers, splits, all_fitted))


def _scores_of(
    features: Array, answers: Answers, splits: list[Split], all_fitted: Array
) -> list[float]:
    """Standardise and choose the penalty on all fitted series; fit and score each split."""
    centre, scale = features[all_fitted].mean(0), features[all_fitted].std(0)
    moving = scale > 0
    if not moving.any():
        return [answers.chance(scored, fitted) for fitted, scored in splits]
    x = (features[:, moving] - centre[moving]) / scale[moving]
    y = answers.values
    penalty = best_penalty(x[all_fitted], y[all_fitted] - y[all_fitted].mean(0))
    scores = []
    for fitted, scored in splits:
        middle, average = x[fitted].mean(0), y[fitted].mean(0)
        weights = ridge(x[fitted] - middle, y[fitted] - average, penalty)
        scores.append(answers.score((x[scored] - middle) @ weights + average, scored, fitted))
    return scores


def ridge(x: Array, y: Array, penalty: float) -> Array:
    """Return the weights that minimise ‖x w − y‖² + series · penalty · ‖w‖²."""
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
        y: Targets with mean zero.
    """
    if x.shape[1] <= len(x):
        power, directions = np.linalg.eigh(x.T @ x)
        coordinates = x @ directions
    else:  # the smaller product has the same directions
        power, sides = np.linalg.eigh(x @ x.T)
        coordinates = sides * np.sqrt(np.maximum(power, 0))
    power, squares = np.maximum(power, 0.0), coordinates**2
    along = coordinates.T @ y
    errors = []
    for penalty in PENALTIES * len(x):
        shrunk = 1 / (power + penalty)
        fit = coordinates @ (shrunk[:, None] * along)
        # The mean that was subtracted contributes to the leverage of every series.
        leverage = np.minimum(squares @ shrunk + 1 / len(x), 1 - 1e-9)
        errors.append((((y - fit) / (1 - leverage)[:, None]) ** 2).mean())
    return float(PENALTIES[int(np.argmin(errors))])


@dataclass(frozen=True)
class Trend(Record):
    """The slope of log(series) per step with its 95 % confidence interval."""

    rate: float
    low: float
    high: float


def log_trend(series: NDArray[np.float64]) -> Trend:
    """Fit log(series) = a + rate·t by least squares.

    Residuals are autocorrelated, so the effective number of independent points is
    n (1 − ρ)/(1 + ρ), with ρ the autocorrelation of the residuals at lag one.

    Args:
        series: Values (time,); those that are zero or not finite are left out.
    """
    steps = np.flatnonzero(np.isfinite(series) & (series > 0))
    if len(steps) < 3:
        return Trend(float("nan"), float("-inf"), float("inf"))
    time, values = steps - steps.mean(), np.log(series[steps])
    spread = float(time @ time)
    rate = float(time @ values) / spread
    residual = values - values.mean() - rate * time
    power = float(residual @ residual)
    correlation = float(residual[1:] @ residual[:-1]) / power if power > 0 else 0.0
    correlation = min(max(correlation, 0.0), 0.999)
    independent = max(len(steps) * (1 - correlation) / (1 + correlation), 3.0)
    error = np.sqrt(power / (independent - 2) / spread)
    margin = student_quantile(0.975, independent - 2) * error
    return Trend(rate, rate - margin, rate + margin)


def student_quantile(probability: float, dof: float) -> float:
    """Return a quantile above ½ of Student's t distribution.

    With t = √dof tan θ the density of θ is proportional to cos(θ)^(dof − 1), which a Gauss rule
    integrates to rounding; bisection finds the angle.

    Args:
        probability: At least 0.5 and below 1.
        dof: Degrees of freedom.
    """
    nodes, weights = np.polynomial.legendre.leggauss(60)
    integral = (probability - 0.5) * math.sqrt(math.pi)
    integral *= math.exp(math.lgamma(dof / 2) - math.lgamma((dof + 1) / 2))
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        angle = (low + high) / 2
        density = np.cos(angle * (1 + nodes) / 2) ** (dof - 1)
        low, high = (angle, high) if angle / 2 * (weights @ density) < integral else (low, angle)
    return math.sqrt(dof) * math.tan(high)
