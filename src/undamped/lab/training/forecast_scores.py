"""Scores of forecasts with bands: absolute errors, scaled errors, pinball loss, coverage."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Forecasts:
    """Forecasts from several origins, in the units of the recordings.

    Args:
        origins: (forecasts, 2) the index of the series, and of the first step of the forecast.
        values: (forecasts, horizon, channels).
        bounds: (forecasts, horizon, channels, levels) quantiles.
        truth: (forecasts, horizon, channels), NaN where a value is missing.
        levels: The levels of the quantiles, increasing.
        unit: (channels,) the mean change over a season in the training split, the unit of scaled
            errors.
    """

    origins: np.ndarray
    values: np.ndarray
    bounds: np.ndarray
    truth: np.ndarray
    levels: tuple[float, ...]
    unit: np.ndarray

    def scores(self, steps: slice = slice(None)) -> dict[str, float | None]:
        """Return mean scores over some steps of the horizon; None without true values.

        Returns:
            "mae"; "mase", absolute errors divided by `unit`, so that 1 is about the error of the
            last season in the training split; "pinball", the mean over the quantiles; "coverage",
            the fraction of values between the lowest and the highest quantile.
        """
        truth, bounds = self.truth[:, steps], self.bounds[:, steps]
        mask = ~np.isnan(truth)
        errors = np.abs(truth - self.values[:, steps])
        levels, over = np.array(self.levels), truth[..., None] - bounds
        pinball = np.maximum(levels * over, (levels - 1) * over).mean(-1)
        inside = (truth >= bounds[..., 0]) & (truth <= bounds[..., -1])
        scaled = errors / np.where(self.unit > 0, self.unit, np.nan)
        return {
            "mae": _mean(errors[mask]),
            "mase": _mean(scaled[mask]),
            "pinball": _mean(pinball[mask]),
            "coverage": _mean(inside[mask]),
        }


def concatenate(parts: list[Forecasts]) -> Forecasts:
    """Return the forecasts of several folds as one; the unit is that of the first fold."""
    return Forecasts(
        np.concatenate([part.origins for part in parts]),
        np.concatenate([part.values for part in parts]),
        np.concatenate([part.bounds for part in parts]),
        np.concatenate([part.truth for part in parts]),
        parts[0].levels,
        parts[0].unit,
    )


def seasonal_change(series: list[np.ndarray], season: int) -> np.ndarray:
    """Return the mean absolute change over a season, per channel; NaN if there is none.

    Args:
        series: Each (time, channels).
        season: Steps of a season.
    """
    changes = [
        np.abs(values[season:] - values[:-season]) for values in series if len(values) > season
    ]
    if not changes:
        return np.full(series[0].shape[1], np.nan)
    joined = np.concatenate(changes)
    count = (~np.isnan(joined)).sum(0)
    return np.where(count > 0, np.nansum(joined, 0) / np.maximum(count, 1), np.nan)


def _mean(values: np.ndarray) -> float | None:
    values = values[~np.isnan(values.astype(float))]
    return float(values.mean()) if len(values) else None
