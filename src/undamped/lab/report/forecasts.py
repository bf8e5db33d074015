"""Forecasts of a run on the test split of its recordings: with band, errors and coverage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from undamped.analysis.core import Layout, Style, Trace
from undamped.analysis.core.figures import NO_MODEL, rounded
from undamped.lab.report.forecast_figure import last_disjoint
from undamped.lab.tasks.series import SeriesTask
from undamped.lab.tasks.task import Task
from undamped.lab.training.backtest import Forecasts, forecasts_of
from undamped.lab.training.run import Run

MAX_FORECASTS = 400
"""Forecasts that are scored; they are evenly spread over the test split."""
SHORTFALL = 0.1
"""Fraction of the values by which the coverage of a good band may be too low."""
PAST = 3
"""Horizons of true values before the first forecast in the figure."""


@dataclass(frozen=True)
class ForecastsOnTest:
    """Forecasts of the test split, and the series in which they are drawn.

    Args:
        forecasts: The forecasts.
        series: (time,) the first channel of the first series that has forecasts.
        channel: Its name.
    """

    forecasts: Forecasts
    series: np.ndarray
    channel: str

    @property
    def sentence(self) -> str:
        """The coverage of the bands and the mean absolute error."""
        scores, levels = self.forecasts.scores(), self.forecasts.levels
        coverage = scores["coverage"]
        inside = "" if coverage is None else f"{100 * coverage:.0f} % of the true values are "
        band = f"inside the {100 * (levels[-1] - levels[0]):.0f} % band"
        count = f"({len(self.forecasts.origins):,} forecasts of the test split)"
        return f"{inside}{band} {count}" if inside else ""

    @property
    def tone(self) -> Literal["good", "neutral"]:
        """Whether the bands hold about as many values as they should."""
        coverage, levels = self.forecasts.scores()["coverage"], self.forecasts.levels
        nominal = levels[-1] - levels[0]
        return "good" if coverage is not None and coverage > nominal - SHORTFALL else "neutral"

    @property
    def rows(self) -> list[tuple[str, str, str]]:
        """Step ahead, mean absolute error and coverage."""
        rows = []
        for step in range(self.forecasts.values.shape[1]):
            scores = self.forecasts.scores(slice(step, step + 1))
            mae, inside = scores["mae"], scores["coverage"]
            error = "–" if mae is None else f"{mae:.4g}"
            rows.append((f"{step + 1}", error, "–" if inside is None else f"{100 * inside:.0f} %"))
        return rows


def forecasts_on_test(run: Run, task: Task) -> ForecastsOnTest | None:
    """Return the forecasts of a trained run; None if it does not forecast recordings.

    Args:
        run: The run.
        task: Its task.
    """
    if not isinstance(task, SeriesTask) or task.kind != "forecast" or run.bands() is None:
        return None
    if task.series_set.origin is None or not len(task.splits["test"]):
        return None
    forecasts, _ = forecasts_of(run, task, MAX_FORECASTS)
    names = task.preparation.forecast
    recording = task.recordings.series[int(forecasts.origins[0, 0])]
    column = task.series_set.channels.index(names[0])
    return ForecastsOnTest(forecasts, np.asarray(recording[:, column], dtype=float), names[0])


def figures(
    reports: Sequence[tuple[Style, ForecastsOnTest]],
) -> Iterator[tuple[str, Layout, list[Trace]]]:
    """Yield key, layout and traces of the figures of forecasts.

    Args:
        reports: The style and the forecasts of every model.
    """
    first = reports[0][1]
    levels = first.forecasts.levels
    band = f"{100 * (levels[-1] - levels[0]):.0f} % band"
    traces = [t for style, test in reports for t in _forecast_traces(style, test, band)]
    caption = f"The last forecasts of the test split that do not overlap, with the {band}."
    layout = Layout("Forecasts and true values", "step", first.channel, caption)
    yield "forecast", layout, [_truth(first), *traces]
    steps = range(1, first.forecasts.values.shape[1] + 1)
    errors = [
        style.line(
            steps,
            [test.forecasts.scores(slice(h - 1, h))["mae"] for h in steps],
            "mean absolute error",
            mode="lines+markers",
        )
        for style, test in reports
    ]
    caption = "In the units of the data, over all forecasts of the test split."
    yield "forecast-errors", Layout("Error by step ahead", "step ahead", "mean absolute error",
                                    caption), errors  # fmt: skip


def _indices(test: ForecastsOnTest) -> list[int]:
    return last_disjoint(test.forecasts.origins, test.forecasts.values.shape[1])


def _truth(test: ForecastsOnTest) -> Trace:
    forecasts, horizon = test.forecasts, test.forecasts.values.shape[1]
    origins = forecasts.origins[_indices(test), 1]
    steps = np.arange(max(0, origins[0] - PAST * horizon), origins[-1] + horizon)
    steps = steps[steps < len(test.series)]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "true values",
        "x": rounded(steps),
        "y": rounded(test.series[steps]),
        "line": {"color": "currentColor", "width": 1.2},
        "meta": NO_MODEL,
    }


def _forecast_traces(style: Style, test: ForecastsOnTest, band: str) -> Iterator[Trace]:
    forecasts, horizon = test.forecasts, test.forecasts.values.shape[1]
    for index in _indices(test):
        steps = int(forecasts.origins[index, 1]) + np.arange(horizon)
        low, high = (forecasts.bounds[index, :, 0, end] for end in (0, -1))
        yield style.band(steps, low, high, band)
        yield style.line(steps, forecasts.values[index, :, 0], "forecast", mode="lines+markers")
