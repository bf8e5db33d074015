"""Forecasts of recordings with prediction intervals, and figures of predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from undamped._base.errors import OptionError
from undamped._base.registry import tasks
from undamped.lab.cli.figures import check_figure, save_figure
from undamped.lab.data.recordings.bands import Bands
from undamped.lab.data.recordings.grid import future_timestamps
from undamped.lab.data.recordings.preparation import Preparation
from undamped.lab.data.recordings.prepared import batch_of
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.instruments.between_samples import predicted_curve
from undamped.lab.tasks.series import SeriesTask
from undamped.lab.training.calibration import answers_and_truth
from undamped.lab.training.prediction import bounds_around, values_ahead
from undamped.lab.training.run import Run
from undamped.models.latent.latent_model import LatentModel
from undamped.models.task_model import TaskModel

MOST_SERIES, MOST_CHANNELS = 4, 4
POINTS = 300


def training_recordings(run: Run) -> SeriesSet | None:
    """Return the recordings a run was trained on; None if its task is not known here.

    Args:
        run: The run.
    """
    task = run.task() if run.settings["task"]["name"] in tasks else None
    return task.recordings if isinstance(task, SeriesTask) else None


def bands_of(run: Run, model: TaskModel, *, follow: bool) -> Bands | None:
    """Return the prediction intervals of a run.

    Args:
        run: The run.
        model: Its model.
        follow: Whether to update them with the errors on the test split, up to the end of the
            training recordings.
    """
    bands = run.bands()
    task = run.task() if follow else None
    if bands is None or not isinstance(task, SeriesTask) or not len(task.splits["test"]):
        return bands
    cut, test = task.series_set, task.splits["test"]
    if cut.origin is None:
        return bands
    answers, truth = answers_and_truth(model, task, "test", 64)
    first, moved = cut.origin[test, 1] + cut.lengths[test] - (task.horizon or 0), []
    for recording in np.unique(cut.origin[test, 0]):
        rows = np.flatnonzero(cut.origin[test, 0] == recording)
        _, after = bands.tracked(answers[rows], truth[rows], first[rows])
        moved.append(after.moved_since(bands))
    return bands.moved(np.mean(moved, axis=0))


def with_times(
    answers: list[dict[str, Any]], series_set: SeriesSet, preparation: Preparation
) -> None:
    """Add the timestamps of forecasts to answers, if they are known.

    Args:
        answers: One for every series.
        series_set: The recordings that are continued.
        preparation: How the recordings were prepared.
    """
    times, steps = series_set.times, preparation.horizon
    if times is None:
        return
    if preparation.at_times:  # steps of the typical gap
        future = [t[-1] + preparation.typical_gap * np.arange(1, steps + 1) for t in times]
    else:
        future = future_timestamps(times, steps)
    kind = series_set.columns.get("dates")
    for answer, timestamps in zip(answers, future or (), strict=future is not None):
        answer["times"] = timestamps.tolist() if kind is None else _dates(timestamps, kind == "utc")


def _dates(seconds: np.ndarray, utc: bool) -> list[str]:
    """Return seconds since 1970 as ISO dates, with a time of day unless all are midnight."""
    offset = "+00:00" if utc else ""
    if not utc and (seconds % 86_400 == 0).all():
        return np.datetime_as_string(seconds.astype("datetime64[s]"), unit="D").tolist()
    unit = "s" if (seconds % 1 == 0).all() else "ms"
    timestamps = np.round(seconds * 1000).astype("datetime64[ms]").astype(f"datetime64[{unit}]")
    return [str(timestamp).replace("T", " ") + offset for timestamp in timestamps]


def with_bands(
    answers: list[dict[str, Any]], outputs: list[np.ndarray], preparation: Preparation, bands: Bands
) -> None:
    """Add the quantiles of every channel to answers.

    For a model that predicts quantiles, the corrected median is the forecast.

    Args:
        answers: One for every series.
        outputs: The outputs of the model.
        preparation: How the recordings were prepared.
        bands: The prediction intervals.
    """
    forecasts = values_ahead(outputs, preparation, bands)
    around = bounds_around(outputs, preparation, bands)
    for answer, values, bounds in zip(answers, forecasts, around, strict=True):
        answer["forecast"] = {
            name: values[:, channel].tolist() for channel, name in enumerate(preparation.forecast)
        }
        answer["bands"] = {
            name: {
                f"{level:g}": bounds[:, channel, index].tolist()
                for index, level in enumerate(bands.levels)
            }
            for channel, name in enumerate(preparation.forecast)
        }


def draw_forecasts(
    outputs: list[np.ndarray],
    preparation: Preparation,
    bands: Bands | None,
    series_set: SeriesSet,
    path: Path,
) -> None:
    """Plot the ends of the first series and their forecasts.

    Args:
        outputs: The outputs of the model.
        preparation: How the recordings were prepared.
        bands: The prediction intervals, or None.
        series_set: The recordings.
        path: The figure file.
    """
    from undamped.lab.report.forecast_figure import draw_future

    arranged = preparation.arrange(series_set)
    columns = [arranged.channels.index(name) for name in preparation.forecast]
    values = values_ahead(outputs, preparation, bands)
    around: list[Any] = [None] * len(values)
    if bands is not None:
        around = bounds_around(outputs, preparation, bands)
    figure = draw_future(
        [np.asarray(series[:, columns], dtype=float) for series in arranged.series],
        values,
        around,
        bands.levels if bands is not None else (),
        arranged.ids,
        preparation.forecast,
    )
    save_figure(figure, path)


def check_curves(model: TaskModel, path: Path | None, future: bool = False) -> None:
    """Raise an error for a figure that cannot be drawn.

    Args:
        model: The model.
        path: The figure file.
        future: Whether forecasts are plotted, which works for any model.
    """
    check_figure(path)
    if path is not None and not future and not isinstance(model, LatentModel):
        raise OptionError(
            "--figure needs a forecast, or a model that interpolates between samples, such as "
            "latent-ode."
        )


def draw_recordings(
    model: LatentModel, preparation: Preparation, series_set: SeriesSet, path: Path
) -> None:
    """Plot mean and 90 % interval of the first recordings, in original units.

    Args:
        model: The model.
        preparation: How the recordings were prepared for it.
        series_set: The recordings.
        path: The figure file.
    """
    from matplotlib.figure import Figure

    arranged = preparation.arrange(series_set)
    indices = range(min(MOST_SERIES, len(arranged)))
    channels = preparation.channels[:MOST_CHANNELS]
    figure = Figure(
        figsize=(3.6 * len(indices), 2.1 * len(channels) + 0.6), dpi=110, layout="constrained"
    )
    axes = figure.subplots(len(channels), len(indices), squeeze=False, sharex="col", sharey="row")
    mean, std = np.array(preparation.mean), np.array(preparation.std)
    for column, index in enumerate(indices):
        raw = arranged.series[index]
        timestamps = None if arranged.times is None else arranged.times[index]
        prepared = preparation.prepare(raw, timestamps)
        batch = batch_of([prepared]).cast(model.dtype)
        steps = prepared.times if prepared.times is not None else np.arange(len(raw), dtype=float)
        end = float(steps[-1]) + preparation.horizon
        grid = torch.linspace(0.0, max(end, 1.0), POINTS, dtype=torch.float64).unsqueeze(1)
        parts = predicted_curve(model, batch, grid)
        curve = [part[:, 0].double().numpy() * std + mean for part in parts]
        unit = preparation.typical_gap if prepared.times is not None else 1.0
        begin = (
            float(timestamps[0]) if timestamps is not None and prepared.times is not None else 0.0
        )
        grid_times, sample_times = begin + unit * grid[:, 0].numpy(), begin + unit * steps
        for row, name in enumerate(channels):
            values = raw[:, preparation.raw_channels.index(name)]
            lines = [line[:, row] for line in curve]
            _plot_channel(axes[row, column], grid_times, lines, sample_times, values)
            if column == 0:
                axes[row, 0].set_ylabel(name)
        axes[0, column].set_title(str(arranged.ids[index]), fontsize=9)
        axes[-1, column].set_xlabel("time" if prepared.times is not None else "step")
    axes[0, 0].legend(frameon=False, fontsize=8)
    save_figure(figure, path)


def _plot_channel(
    axes: Any,
    grid_times: np.ndarray,
    lines: list[np.ndarray],
    sample_times: np.ndarray,
    values: np.ndarray,
) -> None:
    mean, low, high = lines
    axes.fill_between(grid_times, low, high, color="#0072B2", alpha=0.18, linewidth=0, label="90 %")
    axes.plot(grid_times, mean, color="#0072B2", linewidth=1.6, label="mean")
    axes.plot(sample_times, values, "o", color="black", markersize=3, label="measured")
    axes.spines[["top", "right"]].set_visible(False)
