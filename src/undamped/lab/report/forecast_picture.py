"""Forecasts drawn: what was known, what was said with its band, and what came."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from undamped.analysis.core.figures import PALETTE

if TYPE_CHECKING:
    from undamped.lab.training.backtest import Backtest

MOST_ORIGINS = 4
MOST_PANELS = 6


def draw_backtest(result: Backtest) -> Any:
    """Draw the last forecasts of every model, from origins that do not overlap.

    Args:
        result: The backtest.

    Returns:
        A matplotlib figure: one panel a model, the first channel of the first series.
    """
    from matplotlib.figure import Figure

    shown = [one for one in result.models if one.ahead is not None][:MOST_PANELS]
    figure = Figure(figsize=(8, 1.9 * len(shown) + 0.7), dpi=110, layout="constrained")
    panels = figure.subplots(len(shown), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    truth = result.series[0][:, 0]
    for panel, one in zip(panels, shown, strict=True):
        assert one.ahead is not None
        chosen = _last_apart(one.ahead.origins, result.horizon)
        begin = max(0, int(one.ahead.origins[chosen[0], 1]) - 2 * result.horizon)
        stop = int(one.ahead.origins[chosen[-1], 1]) + result.horizon
        panel.plot(np.arange(begin, stop), truth[begin:stop], color="black", lw=1.0, label="came")
        for place, number in enumerate(chosen):
            steps = int(one.ahead.origins[number, 1]) + np.arange(result.horizon)
            _band(
                panel,
                steps,
                one.ahead.said[number, :, 0],
                one.ahead.bounds[number, :, 0],
                one.ahead.levels,
                named=place == 0,
            )
            panel.axvline(steps[0] - 0.5, color="0.75", lw=0.8, zorder=0)
        scores = one.ahead.scores()
        mase = "–" if scores["mase"] is None else f"{scores['mase']:.2f}"
        title = f"{one.model}: MASE {mase}, {100 * (scores['coverage'] or 0):.0f} % inside the band"
        panel.set_title(title, fontsize=9, loc="left")
        panel.set_ylabel(result.channels[0], fontsize=8)
        panel.spines[["top", "right"]].set_visible(False)
    panels[-1].set_xlabel("step")
    panels[0].legend(frameon=False, fontsize=8, ncols=3, loc="upper left")
    return figure


def draw_future(
    series: Sequence[np.ndarray],
    said: Sequence[np.ndarray],
    bounds: Sequence[np.ndarray | None],
    levels: Sequence[float],
    names: Sequence[str],
    channels: Sequence[str],
) -> Any:
    """Draw the end of some series and what is to come.

    Args:
        series: Each (time, channels), in the units of the recordings.
        said: Each (horizon, channels).
        bounds: Each (horizon, channels, levels), or None without bands.
        levels: The quantiles.
        names: What the series are called.
        channels: What the channels are called.

    Returns:
        A matplotlib figure: a row for every channel, a column for every series.
    """
    from matplotlib.figure import Figure

    columns, rows = min(len(series), 3), min(len(channels), 4)
    size = (max(6.0, 4.2 * columns), 2.2 * rows + 0.7)
    figure = Figure(figsize=size, dpi=110, layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, sharex="col")
    for column in range(columns):
        past, ahead = series[column], said[column]
        begin = max(0, len(past) - 5 * len(ahead))
        steps = len(past) + np.arange(len(ahead))
        for row in range(rows):
            panel = panels[row, column]
            seen = np.arange(begin, len(past))
            panel.plot(seen, past[begin:, row], color="black", lw=1.0, label="known")
            around = bounds[column]
            own = None if around is None else around[:, row]
            _band(panel, steps, ahead[:, row], own, levels, named=True)
            panel.spines[["top", "right"]].set_visible(False)
            if column == 0:
                panel.set_ylabel(channels[row])
        panels[0, column].set_title(str(names[column]), fontsize=9)
        panels[-1, column].set_xlabel("step")
    panels[0, 0].legend(frameon=False, fontsize=8, loc="upper left")
    return figure


def save(figure: Any, path: Path) -> None:
    """Write a figure to a picture file, wholly or not at all."""
    from undamped._base.files import write_atomically

    kind = path.suffix.lstrip(".")
    write_atomically(path, lambda temporary: figure.savefig(temporary, format=kind))


def _band(
    panel: Any,
    steps: np.ndarray,
    said: np.ndarray,
    bounds: np.ndarray | None,
    levels: Sequence[float],
    *,
    named: bool,
) -> None:
    blue = PALETTE[0]
    if bounds is not None:
        label = f"{100 * (levels[-1] - levels[0]):.0f} % band" if named else None
        low, high = bounds[:, 0], bounds[:, -1]
        panel.fill_between(steps, low, high, color=blue, alpha=0.22, lw=0, label=label)
    panel.plot(steps, said, color=blue, lw=1.6, label="forecast" if named else None)


def _last_apart(origins: np.ndarray, horizon: int) -> list[int]:
    """Return numbers of the last forecasts of the first series that do not overlap, in order."""
    own = np.flatnonzero(origins[:, 0] == origins[0, 0])
    own = own[np.argsort(origins[own, 1])][::-1]
    chosen = [int(own[0])]
    for number in own:
        if origins[chosen[-1], 1] - origins[number, 1] >= horizon:
            chosen.append(int(number))
        if len(chosen) == MOST_ORIGINS:
            break
    return chosen[::-1]
