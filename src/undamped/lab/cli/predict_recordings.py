"""Predictions for recordings, in the labels and units of the training data."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

from undamped._base.errors import OptionError, printable
from undamped._base.registry import tasks
from undamped.lab.cli.commands.runs import Predict
from undamped.lab.cli.predict_future import (
    bands_of,
    check_curves,
    draw_forecasts,
    draw_recordings,
    training_recordings,
    with_bands,
    with_times,
)
from undamped.lab.cli.screen import print_json, print_lines
from undamped.lab.data.recordings.formats.table import rows as table_rows
from undamped.lab.data.recordings.options import SYNTAX
from undamped.lab.data.recordings.preparation import Preparation
from undamped.lab.data.recordings.read import read_recordings
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.data.recordings.suspicions import in_words as warnings_of
from undamped.lab.data.recordings.suspicions import strange_series
from undamped.lab.files import refuse_folder, write_text
from undamped.lab.tasks.series import SeriesTask
from undamped.lab.training.prediction import predict_series, windows_of, with_standard_error
from undamped.lab.training.run import Run
from undamped.models.latent.latent_model import LatentModel
from undamped.models.task_model import TaskModel

MOST_LINES = 20
Answer = dict[str, Any]


def predict_recordings(run: Run, model: TaskModel, request: Predict) -> None:
    """Predict for every series of a file or of the test split; forecasts continue the series."""
    preparation = run.preparation()
    assert preparation is not None
    data, out, figure = request.data, request.out, request.figure
    refuse_folder(out)
    future = preparation.kind == "forecast" and not preparation.at_times
    check_curves(model, figure, future)
    series_set, continues_training = recordings_for(run, preparation, data, future)
    outputs = predict_series(model, preparation, series_set)
    tested = data is None and not future
    answers = _answers(model, preparation, series_set, outputs, tested)
    bands = bands_of(run, model, follow=continues_training) if future else None
    if bands is not None:
        with_bands(answers, outputs, preparation, bands)
    if preparation.kind == "forecast" and not tested:
        with_times(answers, series_set, preparation)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_text(out, _as_csv(answers, preparation, series_set.columns.get("time", "time")))
    if figure is not None:
        if future:
            draw_forecasts(outputs, preparation, bands, series_set, figure)
        else:
            draw_recordings(cast(LatentModel, model), preparation, series_set, figure)
    if request.as_json:
        print_json(answers)
        return
    print_lines(*map(in_words, answers[:MOST_LINES]))
    if len(answers) > MOST_LINES:
        count = len(answers) - MOST_LINES
        print_lines(f"… and {count:,} more; --out FILE.csv or --json has all.")
    if out is not None:
        print_lines(f"Predictions: {out}")
    if figure is not None:
        print_lines(f"{'Forecast' if future else 'Mean and interval'}: {figure}")


def recordings_for(
    run: Run, preparation: Preparation, data: Path | None, future: bool
) -> tuple[SeriesSet, bool]:
    """Return the series to predict for, and whether they are those of training.

    Args:
        run: The run.
        preparation: Its preparation.
        data: The file or folder; by default the test split.
        future: Whether forecasts continue the training recordings by default.
    """
    if data is not None:
        return preparation.arrange(read_for(run, preparation, data)), False
    series_set = training_recordings(run) if future else None
    return (_test_split(run), False) if series_set is None else (series_set, True)


def _answers(
    model: TaskModel,
    preparation: Preparation,
    series_set: SeriesSet,
    outputs: list[Any],
    tested: bool,
) -> list[Answer]:
    """Return one dictionary per series, with the true value if it is known."""
    unusual = strange_series(preparation, preparation.arrange(series_set).series)
    for sentence in warnings_of(unusual, series_set.ids):
        sys.stderr.write(printable(f"Warning: {sentence}\n"))
    truths: list[Any] = [None] * len(series_set)
    if tested and series_set.targets is not None:
        truths = [target.tolist() for target in series_set.targets]
    answers = []
    lengths = series_set.lengths.tolist()
    for name, output, length, truth in zip(series_set.ids, outputs, lengths, truths, strict=True):
        if preparation.each_window:
            answer = _of_windows(name, preparation, output, length)
        else:
            answer = _answer(name, preparation, output)
            answer = with_standard_error(answer, output, model, preparation)
        answers.append(answer if truth is None else {**answer, "truth": truth})
    for index, warning in unusual.items():
        answers[index]["warning"] = warning
    return answers


def read_for(
    run: Run, preparation: Preparation, path: Path, *, needs_target: bool = False
) -> SeriesSet:
    """Read a file like the training file, which may have other columns.

    Args:
        run: The run.
        preparation: Its preparation, which has the channels.
        path: The file or folder.
        needs_target: Whether targets are read too.
    """
    roles = run.settings.get("columns") or {}
    options: dict[str, Any] = {name: roles[name] for name in SYNTAX if name in roles}
    options["forecast"] = preparation.kind == "forecast"
    if path.is_file() and path.suffix.lower() in table_rows.SUFFIXES:
        with table_rows.open_table(path) as table:
            columns = table.columns
        wide = roles.get("layout") == "wide"
        return read_recordings(
            path,
            channels=None if wide else preparation.file_channels,
            **{role: roles[role] for role in ("id", "time") if roles.get(role) in columns},
            target=roles["target"]
            if (wide or needs_target) and roles.get("target") in columns
            else None,
            layout=roles.get("layout", "long"),
            needs_target=wide or needs_target,
            **options,
        )
    if path.is_dir():
        channels, time = preparation.file_channels, roles.get("time")
        return read_recordings(
            path, channels=channels, time=time, needs_target=needs_target, **options
        )
    return read_recordings(path, needs_target=needs_target)


def _test_split(run: Run) -> SeriesSet:
    task = run.task() if run.settings["task"]["name"] in tasks else None
    if not isinstance(task, SeriesTask) or not len(task.splits["test"]):
        raise OptionError(f"{run.path} has no test split. Name a file after the run folder.")
    return task.series_set.take(task.splits["test"])


def _kind(preparation: Preparation) -> str:
    return "label" if preparation.classes is not None else "value"


def _answer(name: str, preparation: Preparation, outputs: Any) -> Answer:
    readings = preparation.answer(outputs)
    if preparation.readout != "every":
        return {"id": name, **readings[0]}
    kind = _kind(preparation)
    return {"id": name, kind + "s": [step[kind] for step in readings]}


def _of_windows(name: str, preparation: Preparation, outputs: Any, length: int) -> Answer:
    """Return the answers to the windows of a series, with their first and last steps."""
    windows = [
        {"first": window.start, "last": window.stop - 1, **answer}
        for window, answer in zip(
            windows_of(length, preparation), preparation.answer(outputs), strict=True
        )
    ]
    kind = _kind(preparation)
    return {"id": name, kind + "s": [window[kind] for window in windows], "windows": windows}


def in_words(answer: Answer) -> str:
    """Return an answer as text, after the id of its recording."""
    if "probabilities" in answer:
        note = f"probability {answer['probabilities'][answer['label']]:.2f}"
        if "margin" in answer:
            note += f", margin {answer['margin']:.2g} ± {answer['standard_error']:.2g}"
        text = f"{answer['label']}  ({note})"
    elif "value" in answer:
        text = f"{answer['value']:.6g}"
        if "standard_error" in answer:
            text += f" ± {answer['standard_error']:.2g}"
    elif "forecast" in answer:
        text = "; ".join(
            f"{name} {_few_ahead(values, answer.get('bands', {}).get(name))}"
            for name, values in answer["forecast"].items()
        )
        if "times" in answer:
            text = f"from {answer['times'][0]} to {answer['times'][-1]}: {text}"
    else:
        text = _few(answer.get("labels") or answer["values"])
    truth = answer.get("truth")
    suffix = "" if truth is None else f"  true {_few(truth) if isinstance(truth, list) else truth}"
    return f"{answer['id']}: {text}{suffix}"


def _few_ahead(values: list[float], bands: dict[str, list[float]] | None) -> str:
    """Return the first forecasts as text, with the prediction interval of the last one."""
    text = " ".join(f"{v:.6g}" for v in values[:10]) + (" …" if len(values) > 10 else "")
    if not bands:
        return text
    levels = list(bands)
    low, high = bands[levels[0]][-1], bands[levels[-1]][-1]
    inside = 100 * (float(levels[-1]) - float(levels[0]))
    return f"{text}  ({inside:.0f} % interval at step {len(values)}: {low:.6g} to {high:.6g})"


def _few(values: list[Any]) -> str:
    text = [f"{v:.6g}" if isinstance(v, float) else str(v) for v in values[-10:]]
    return ("… " if len(values) > 10 else "") + " ".join(text)


def _as_csv(answers: list[Answer], preparation: Preparation, time: str) -> str:
    """Return answers as CSV text; timestamps of forecasts are in the column `time`."""
    if preparation.kind == "forecast":
        header, rows = _forecast_table(answers, preparation, time)
    elif preparation.readout == "every":
        kind = _kind(preparation)
        header = ["step", kind]
        rows = [(a["id"], *pair) for a in answers for pair in enumerate(a[kind + "s"])]
    elif preparation.each_window:
        header, rows = _window_table(answers, preparation)
    else:
        header, rows = _label_table(answers, preparation)
    return csv_text(["id", *header], rows)


def csv_text(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table as CSV text."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    return text.getvalue()


def _forecast_table(
    answers: list[Answer], preparation: Preparation, time: str
) -> tuple[list[str], list[Any]]:
    levels = [(name, q) for name, bands in answers[0].get("bands", {}).items() for q in bands]
    time_column = [time] if _common_columns(answers, "times") else []
    quantiles = [f"{name}_{q}" for name, q in levels]
    rows = []
    for answer in answers:
        columns = [answer["times"]] if time_column else []
        columns += [answer["forecast"][name] for name in preparation.forecast]
        columns += [answer["bands"][name][q] for name, q in levels]
        steps = enumerate(zip(*columns, strict=True), start=1)
        rows += [(answer["id"], step, *values) for step, values in steps]
    return ["step", *time_column, *preparation.forecast, *quantiles], rows


def _window_table(answers: list[Answer], preparation: Preparation) -> tuple[list[str], list[Any]]:
    kind = _kind(preparation)
    columns = ["first", "last", kind]
    rows = [
        (answer["id"], *(window[c] for c in columns), *window.get("probabilities", {}).values())
        for answer in answers
        for window in answer["windows"]
    ]
    return [*columns, *(f"p_{name}" for name in preparation.classes or [])], rows


def _label_table(answers: list[Answer], preparation: Preparation) -> tuple[list[str], list[Any]]:
    extra = _common_columns(answers, "margin", "standard_error")
    columns = [_kind(preparation)]
    rows = [
        (
            answer["id"],
            *(answer[c] for c in columns),
            *answer.get("probabilities", {}).values(),
            *(answer[name] for name in extra),
        )
        for answer in answers
    ]
    return [*columns, *(f"p_{name}" for name in preparation.classes or []), *extra], rows


def _common_columns(answers: list[Answer], *names: str) -> list[str]:
    """Return the columns that all answers have."""
    return [name for name in names if all(name in answer for answer in answers)]
