"""Figures of forecasts: the past, the forecast with its band, and the true future."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from undamped.analysis.core.figures import PALETTE

if TYPE_CHECKING:
    from undamped.lab.training.backtest import Backtest

MAX_ORIGINS = 4
MAX_PANELS = 6


def draw_backtest(result: Backtest) -> Any:
    """Draw the last forecasts of every model, from origins that do not overlap.

    Args:
        result: The backtest.

    Returns:
        A matplotlib figure: one panel per model, for the first channel of the first series.
    """
    from matplotlib.figure import Figure

    models = [model for model in result.models if model.forecasts is not None][:MAX_PANELS]
    figure = Figure(figsize=(8, 1.9 * len(models) + 0.7), dpi=110, layout="constrained")
    panels = figure.subplots(len(models), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    truth = result.series[0][:, 0]
    for panel, model in zip(panels, models, strict=True):
        assert model.forecasts is not None
        indices = last_disjoint(model.forecasts.origins, result.horizon)
        begin = max(0, int(model.forecasts.origins[indices[0], 1]) - 2 * result.horizon)
        stop = int(model.forecasts.origins[indices[-1], 1]) + result.horizon
        panel.plot(np.arange(begin, stop), truth[begin:stop], color="black", lw=1.0, label="true")
        for order, index in enumerate(indices):
            steps = int(model.forecasts.origins[index, 1]) + np.arange(result.horizon)
            _band(
                panel,
                steps,
                model.forecasts.values[index, :, 0],
                model.forecasts.bounds[index, :, 0],
                model.forecasts.levels,
                labelled=order == 0,
            )
            panel.axvline(steps[0] - 0.5, color="0.75", lw=0.8, zorder=0)
        scores = model.forecasts.scores()
        mase = "–" if scores["mase"] is None else f"{scores['mase']:.2f}"
        title = f"{model.model}: MASE {mase}, {100 * (scores['coverage'] or 0):.0f} % in the band"
        panel.set_title(title, fontsize=9, loc="left")
        panel.set_ylabel(result.channels[0], fontsize=8)
        panel.spines[["top", "right"]].set_visible(False)
    panels[-1].set_xlabel("step")
    panels[0].legend(frameon=False, fontsize=8, ncols=3, loc="upper left")
    return figure


def draw_future(
    series: Sequence[np.ndarray],
    forecasts: Sequence[np.ndarray],
    bounds: Sequence[np.ndarray | None],
    levels: Sequence[float],
    names: Sequence[str],
    channels: Sequence[str],
) -> Any:
    """Draw the end of some series and their forecasts.

    Args:
        series: Each (time, channels), in the units of the recordings.
        forecasts: Each (horizon, channels).
        bounds: Each (horizon, channels, levels), or None without bands.
        levels: The quantiles.
        names: Names of the series.
        channels: Names of the channels.

    Returns:
        A matplotlib figure: a row for every channel, a column for every series.
    """
    from matplotlib.figure import Figure

    columns, rows = min(len(series), 3), min(len(channels), 4)
    size = (max(6.0, 4.2 * columns), 2.2 * rows + 0.7)
    figure = Figure(figsize=size, dpi=110, layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, sharex="col")
    for column in range(columns):
        past, future = series[column], forecasts[column]
        begin = max(0, len(past) - 5 * len(future))
        steps = len(past) + np.arange(len(future))
        for row in range(rows):
            panel = panels[row, column]
            panel.plot(np.arange(begin, len(past)), past[begin:, row], "k", lw=1.0, label="past")
            around = bounds[column]
            band = None if around is None else around[:, row]
            _band(panel, steps, future[:, row], band, levels, labelled=True)
            panel.spines[["top", "right"]].set_visible(False)
            if column == 0:
                panel.set_ylabel(channels[row])
        panels[0, column].set_title(str(names[column]), fontsize=9)
        panels[-1, column].set_xlabel("step")
    panels[0, 0].legend(frameon=False, fontsize=8, loc="upper left")
    return figure


def _band(
    panel: Any,
    steps: np.ndarray,
    forecast: np.ndarray,
    bounds: np.ndarray | None,
    levels: Sequence[float],
    *,
    labelled: bool,
) -> None:
    blue = PALETTE[0]
    if bounds is not None:
        label = f"{100 * (levels[-1] - levels[0]):.0f} % band" if labelled else None
        low, high = bounds[:, 0], bounds[:, -1]
        panel.fill_between(steps, low, high, color=blue, alpha=0.22, lw=0, label=label)
    panel.plot(steps, forecast, color=blue, lw=1.6, label="forecast" if labelled else None)


def last_disjoint(origins: np.ndarray, horizon: int) -> list[int]:
    """Return indices of the last forecasts of the first series that do not overlap, in order."""
    candidates = np.flatnonzero(origins[:, 0] == origins[0, 0])
    candidates = candidates[np.argsort(origins[candidates, 1])][::-1]
    selected = [int(candidates[0])]
    for index in candidates:
        if origins[selected[-1], 1] - origins[index, 1] >= horizon:
            selected.append(int(index))
        if len(selected) == MAX_ORIGINS:
            break
    return selected[::-1]
