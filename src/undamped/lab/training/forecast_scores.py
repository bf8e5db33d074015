"""Scores of forecasts with bands: errors, beside a plain forecast too, pinball loss, coverage."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Ahead:
    """Forecasts from several origins, in the units of the recordings.

    Args:
        origins: (forecasts, 2) the number of the series, and of the first step that is predicted.
        said: (forecasts, horizon, channels) the values.
        bounds: (forecasts, horizon, channels, levels) their quantiles.
        truth: (forecasts, horizon, channels), NaN where nobody knows.
        levels: The quantiles, rising.
        unit: (channels,) the mean change over a season in the training part, by which errors are
            scaled.
    """

    origins: np.ndarray
    said: np.ndarray
    bounds: np.ndarray
    truth: np.ndarray
    levels: tuple[float, ...]
    unit: np.ndarray

    def scores(self, steps: slice = slice(None)) -> dict[str, float | None]:
        """Return mean scores over some steps ahead; None where nothing is known.

        Returns:
            "mae"; "mase", absolute errors divided by `unit`, so that 1 is about what the last
            season has in the training part; "pinball", the mean over the quantiles; "coverage", the
            share of values between the lowest and the highest quantile.
        """
        truth, bounds = self.truth[:, steps], self.bounds[:, steps]
        known = ~np.isnan(truth)
        errors = np.abs(truth - self.said[:, steps])
        levels, over = np.array(self.levels), truth[..., None] - bounds
        pinball = np.maximum(levels * over, (levels - 1) * over).mean(-1)
        inside = (truth >= bounds[..., 0]) & (truth <= bounds[..., -1])
        scaled = errors / np.where(self.unit > 0, self.unit, np.nan)
        return {
            "mae": _mean(errors[known]),
            "mase": _mean(scaled[known]),
            "pinball": _mean(pinball[known]),
            "coverage": _mean(inside[known]),
        }


def together(parts: list[Ahead]) -> Ahead:
    """Return forecasts of several folds as one; errors are scaled by the first fold's unit."""
    first = parts[0]
    return Ahead(
        np.concatenate([one.origins for one in parts]),
        np.concatenate([one.said for one in parts]),
        np.concatenate([one.bounds for one in parts]),
        np.concatenate([one.truth for one in parts]),
        first.levels,
        first.unit,
    )


def seasonal_change(series: list[np.ndarray], season: int) -> np.ndarray:
    """Return the mean absolute change over a season, per channel; NaN where there is none.

    Args:
        series: Each (time, channels).
        season: Steps.
    """
    changes = [np.abs(one[season:] - one[:-season]) for one in series if len(one) > season]
    if not changes:
        return np.full(series[0].shape[1], np.nan)
    whole = np.concatenate(changes)
    known = (~np.isnan(whole)).sum(0)
    return np.where(known > 0, np.nansum(whole, 0) / np.maximum(known, 1), np.nan)


def _mean(values: np.ndarray) -> float | None:
    found = values[~np.isnan(values.astype(float))]
    return float(found.mean()) if len(found) else None
