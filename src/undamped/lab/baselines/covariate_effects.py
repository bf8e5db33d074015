"""Effects of covariates with known future values: a regression with autocorrelated errors.

    y_t = z_t β + n_t,    n_t = c + φ n_{t−1} + ψ n_{t−s} + ε_t

z are the covariates, s is the season, and β and (φ, ψ) are estimated in turns (Cochrane, Orcutt).
Effects whose t value is below 2 are set to zero. If all values are positive, y may be their
logarithm, so that effects are factors; the larger likelihood decides.

Reference:
    D. Cochrane, G. H. Orcutt. Application of least squares regression to relationships containing
    auto-correlated error terms. Journal of the American Statistical Association, 1949.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

_TURNS = 10
_LEAST_T = 2.0
_FEWEST = 10  # equations, and as many for every covariate
_LARGEST = 50.0  # exponent of a factor


class Effects(NamedTuple):
    """The effects of covariates on the predicted channels.

    Args:
        slopes: (covariates, channels) β, per unit of the covariates.
        factors: (channels,) whether effects are on logarithms.
    """

    slopes: np.ndarray
    factors: np.ndarray

    def remove(self, values: np.ndarray, covariates: np.ndarray) -> np.ndarray:
        """Return values (…, time, channels) without the effects of covariates (…, time, k)."""
        change = covariates @ self.slopes
        return np.where(self.factors, values / _exponential(change), values - change)

    def restore(self, values: np.ndarray, covariates: np.ndarray) -> np.ndarray:
        """Invert `remove`."""
        change = covariates @ self.slopes
        return np.where(self.factors, values * _exponential(change), values + change)


def _exponential(change: np.ndarray) -> np.ndarray:
    return np.exp(np.clip(change, -_LARGEST, _LARGEST))


def fit_effects(
    values: Sequence[np.ndarray], covariates: Sequence[np.ndarray], season: int, recent: int
) -> Effects:
    """Estimate the effects from windows, which may overlap.

    Args:
        values: Each (time, channels).
        covariates: Each (time, covariates).
        season: Steps of a season; 1 for none.
        recent: How many steps at the end of each window are used.
    """
    shortest = min(map(len, values))
    lags = [1, season] if 1 < season < shortest else [1]
    width = values[0].shape[1]
    rows = []
    for y, z in zip(values, covariates, strict=True):
        steps = np.arange(max(lags[-1], len(y) - recent), len(y))
        rows.append(np.stack([np.hstack([y, z])[steps - lag] for lag in (0, *lags)], axis=1))
    # (equations, lags, variables); windows overlap, and repeat equations.
    table = np.unique(np.concatenate(rows), axis=0) if rows else np.empty((0, 1, width))
    count, size = len(table), table.shape[2] - width
    slopes, factors = np.zeros((size, width)), np.zeros(width, bool)
    if count < _FEWEST * (1 + size):
        return Effects(slopes, factors)
    for channel in range(width):
        y, z = table[:, :, channel], table[:, :, width:]
        slopes[:, channel], error = _regress(y, z)
        if y.min() > 0:
            logarithmic, log_error = _regress(np.log(y), z)
            # The density of y from that of its logarithm has a factor 1 / y.
            if log_error + np.log(y[:, 0]).mean() < error:
                slopes[:, channel], factors[channel] = logarithmic, True
    return Effects(slopes, factors)


def _regress(y: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, float]:
    """Return β, and the logarithm of the standard deviation of ε.

    Args:
        y: (equations, lags) values; the first lag is 0.
        z: (equations, lags, covariates).
    """
    beta, t, error = _alternate(y, z)
    used = np.abs(t) >= _LEAST_T
    if not used.all():
        beta[~used] = 0
        beta[used], _, error = _alternate(y, z[..., used])
    return beta, error


def _alternate(y: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Return β, its t values, and the logarithm of the standard deviation of ε."""
    count, _, size = z.shape
    beta, inverse = np.zeros(size), np.eye(size)
    target, filtered = y[:, 0], z[:, 0]
    for _ in range(_TURNS):
        noise = y - z @ beta
        lagged = np.column_stack([np.ones(count), noise[:, 1:]])
        phi = np.linalg.lstsq(lagged, noise[:, 0], rcond=None)[0][1:]
        target = y[:, 0] - y[:, 1:] @ phi
        filtered = z[:, 0] - np.einsum("nlk,l->nk", z[:, 1:], phi)
        target, filtered = target - target.mean(), filtered - filtered.mean(0)
        inverse = np.linalg.pinv(filtered.T @ filtered)
        beta = inverse @ (filtered.T @ target)
    variance = np.square(target - filtered @ beta).sum() / max(1, count - size - y.shape[1])
    deviation = np.sqrt(np.maximum(variance * np.diag(inverse), 1e-300))
    return beta, beta / deviation, 0.5 * float(np.log(max(variance, 1e-300)))
