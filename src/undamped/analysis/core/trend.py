"""The rate of growth or decay of a positive series, with its confidence interval."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from undamped.analysis.core.result import Record


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
