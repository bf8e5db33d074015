"""What is to come after recordings, with bands, in words and pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from undamped.lab.data.recordings.bands import Bands
    from undamped.lab.data.recordings.preparation import Preparation
    from undamped.lab.data.recordings.series import SeriesSet
    from undamped.lab.training.run import Run
    from undamped.models.task_model import TaskModel


def own_recordings(run: Run) -> SeriesSet | None:
    """Return the recordings a run was trained on, whole; None where it cannot say which.

    Args:
        run: The run.
    """
    from undamped._base.registry import tasks
    from undamped.lab.tasks.series import SeriesTask

    task = run.task() if run.settings["task"]["name"] in tasks else None
    return task.recordings if isinstance(task, SeriesTask) else None


def bands_of(run: Run, model: TaskModel, *, follow: bool) -> Bands | None:
    """Return the bands of a run.

    Args:
        run: The run.
        model: Its model.
        follow: Whether to let them follow the forecasts of the test part, which nothing was learnt
            from, to the end of the run's own recordings.
    """
    import numpy as np

    from undamped.lab.tasks.series import SeriesTask
    from undamped.lab.training.calibration import answers_and_truth

    bands = run.bands()
    task = run.task() if follow else None
    if bands is None or not isinstance(task, SeriesTask) or not len(task.parts["test"]):
        return bands
    cut, test = task.series_set, task.parts["test"]
    if cut.origin is None:
        return bands
    answers, truth = answers_and_truth(model, task, "test", 64)
    first, moved = cut.origin[test, 1] + cut.lengths[test] - (task.horizon or 0), []
    for recording in np.unique(cut.origin[test, 0]):
        own = np.flatnonzero(cut.origin[test, 0] == recording)
        _, after = bands.tracked(answers[own], truth[own], first[own])
        moved.append(after.moved_since(bands))
    return bands.moved(np.mean(moved, axis=0))


def with_times(
    answers: list[dict[str, Any]], series_set: SeriesSet, preparation: Preparation
) -> None:
    """Add the time stamps of values to come to answers, where they can be told.

    Args:
        answers: One for every series.
        series_set: The recordings that are continued.
        preparation: What was done to the data.
    """
    import numpy as np

    from undamped.lab.data.recordings.grid import stamps_ahead

    times, steps = series_set.times, preparation.horizon
    if times is None:
        return
    if preparation.at_times:  # one usual gap after the other
        ahead = [one[-1] + preparation.typical_gap * np.arange(1, steps + 1) for one in times]
    else:
        known = stamps_ahead(times, steps)
        if known is None:
            return
        ahead = known
    kind = series_set.columns.get("dates")
    for answer, stamps in zip(answers, ahead, strict=True):
        answer["times"] = stamps.tolist() if kind is None else _dates(stamps, kind == "utc")


def _dates(seconds: np.ndarray, utc: bool) -> list[str]:
    """Return seconds since 1970 as ISO dates, with a time of day where there is one."""
    import numpy as np

    offset = "+00:00" if utc else ""
    if not utc and (seconds % 86_400 == 0).all():
        return np.datetime_as_string(seconds.astype("datetime64[s]"), unit="D").tolist()
    unit = "s" if (seconds % 1 == 0).all() else "ms"
    stamps = np.round(seconds * 1000).astype("datetime64[ms]").astype(f"datetime64[{unit}]")
    return [str(one).replace("T", " ") + offset for one in stamps]


def with_bands(
    answers: list[dict[str, Any]],
    outputs: list[np.ndarray],
    preparation: Preparation,
    bands: Bands,
) -> None:
    """Add the quantiles of every channel to answers.

    Of a model that answers with quantiles, the corrected median is the forecast.

    Args:
        answers: One for every series.
        outputs: What the model said.
        preparation: What was done to the data.
        bands: The bands.
    """
    from undamped.lab.training.prediction import bounds_around, values_ahead

    said = values_ahead(outputs, preparation, bands)
    around = bounds_around(outputs, preparation, bands)
    for answer, values, bounds in zip(answers, said, around, strict=True):
        answer["forecast"] = {
            name: values[:, channel].tolist() for channel, name in enumerate(preparation.forecast)
        }
        answer["bands"] = {
            name: {
                f"{level:g}": bounds[:, channel, place].tolist()
                for place, level in enumerate(bands.levels)
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
    """Draw the ends of the first series and what is to come.

    Args:
        outputs: What the model said.
        preparation: What was done to the data.
        bands: The bands, if there are such.
        series_set: The recordings.
        path: The picture file.
    """
    import numpy as np

    from undamped.lab.report.forecast_picture import draw_future, save
    from undamped.lab.training.prediction import bounds_around, values_ahead

    arranged = preparation.arrange(series_set)
    places = [arranged.channels.index(name) for name in preparation.forecast]
    values = values_ahead(outputs, preparation, bands)
    around: list[Any] = [None] * len(values)
    if bands is not None:
        around = bounds_around(outputs, preparation, bands)
    figure = draw_future(
        [np.asarray(one[:, places], dtype=float) for one in arranged.series],
        values,
        around,
        bands.levels if bands is not None else (),
        arranged.ids,
        preparation.forecast,
    )
    save(figure, path)
