"""Predictions for recordings, in the labels and units of the training data."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from undamped.lab.data.recordings.bands import Bands
    from undamped.lab.data.recordings.preparation import Preparation
    from undamped.lab.data.recordings.series import SeriesSet
    from undamped.lab.training.run import Run
    from undamped.models.latent.latent_model import LatentModel
    from undamped.models.task_model import TaskModel

SHOWN = 20


def predict_recordings(
    run: Run,
    model: TaskModel,
    preparation: Preparation,
    data: Path | None,
    out: Path | None,
    as_json: bool,
    figure: Path | None = None,
) -> None:
    """Predict for every series of a file, or of the test part; forecasts continue the series.

    Args:
        run: The run.
        model: Its model.
        preparation: How the recordings were prepared for it.
        data: The file or folder; None for the recordings of the run.
        out: A CSV file for the predictions, or None.
        as_json: Whether to print JSON for a script.
        figure: A file for a figure, or None.
    """
    from undamped._base.files import refuse_folder, write_text
    from undamped.lab.cli.predict_future import bands_of, check_curves, with_bands, with_times
    from undamped.lab.training.prediction import predict_series

    refuse_folder(out)
    future = preparation.kind == "forecast" and not preparation.at_times
    check_curves(model, figure, future)
    series_set, continues_training = _recordings(run, preparation, data, future)
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
        time = series_set.columns.get("time", "time")
        write_text(out, _as_csv(answers, preparation, time))
    if figure is not None:
        _plot(model, preparation, series_set, outputs, bands, figure)
    _print_answers(answers, out, figure, future, as_json)


def _recordings(
    run: Run, preparation: Preparation, data: Path | None, future: bool
) -> tuple[SeriesSet, bool]:
    """Return the series to predict for, and whether they are those of training."""
    from undamped.lab.cli.predict_future import training_recordings

    if data is not None:
        return read_for(run, preparation, data), False
    series_set = training_recordings(run) if future else None
    return (_test_part(run), False) if series_set is None else (series_set, True)


def _answers(
    model: TaskModel,
    preparation: Preparation,
    series_set: SeriesSet,
    outputs: list[Any],
    tested: bool,
) -> list[dict[str, Any]]:
    """Return one dictionary per series, with the true value where it is known."""
    from undamped._base.errors import printable
    from undamped.lab.data.recordings.suspicions import in_words, strange_series
    from undamped.lab.training.prediction import with_standard_error

    unusual = strange_series(preparation, preparation.arrange(series_set).series)
    for sentence in in_words(unusual, series_set.ids):
        sys.stderr.write(printable(f"Warning: {sentence}\n"))
    truths: list[Any] = [None] * len(series_set)
    if tested and series_set.targets is not None:
        truths = [target.tolist() for target in series_set.targets]
    answers = []
    lengths = series_set.lengths.tolist()
    for name, output, length, truth in zip(series_set.ids, outputs, lengths, truths, strict=True):
        if preparation.each_window:
            answers.append(_of_windows(name, preparation, output, length, truth))
        else:
            answer = _answer(name, preparation, output, truth)
            answers.append(with_standard_error(answer, output, model, preparation))
    for index, warning in unusual.items():
        answers[index]["warning"] = warning
    return answers


def _plot(
    model: TaskModel,
    preparation: Preparation,
    series_set: SeriesSet,
    outputs: list[Any],
    bands: Bands | None,
    path: Path,
) -> None:
    from undamped.lab.cli.predict_future import draw_forecasts, draw_recordings

    if preparation.kind == "forecast" and not preparation.at_times:
        draw_forecasts(outputs, preparation, bands, series_set, path)
    else:
        draw_recordings(cast("LatentModel", model), preparation, series_set, path)


def _print_answers(
    answers: list[dict[str, Any]],
    out: Path | None,
    figure: Path | None,
    future: bool,
    as_json: bool,
) -> None:
    from undamped.lab.cli.screen import console, print_json

    if as_json:
        print_json(answers)
        return
    screen = console()
    for answer in answers[:SHOWN]:
        screen.print(_in_words(answer), soft_wrap=True, markup=False)
    if len(answers) > SHOWN:
        screen.print(f"… and {len(answers) - SHOWN:,} more; --out FILE.csv or --json has all.")
    if out is not None:
        screen.print(f"Predictions: {out}", soft_wrap=True, markup=False)
    if figure is not None:
        title = "Forecast" if future else "Mean and interval"
        screen.print(f"{title}: {figure}", soft_wrap=True, markup=False)


def read_for(run: Run, preparation: Preparation, path: Path) -> SeriesSet:
    """Read a file like the training file; it needs no target, and may have other columns.

    Args:
        run: The run.
        preparation: Its preparation, which knows the channels.
        path: The file or folder.
    """
    from undamped.lab.data.recordings.formats.table import rows as table_rows
    from undamped.lab.data.recordings.options import SYNTAX
    from undamped.lab.data.recordings.read import read_recordings

    roles = run.settings.get("columns") or {}
    options: dict[str, Any] = {name: roles[name] for name in SYNTAX if name in roles}
    options["forecast"] = preparation.kind == "forecast"
    if path.is_file() and path.suffix.lower() in table_rows.SUFFIXES:
        with table_rows.open_table(path) as table:
            columns = table.columns
        wide = roles.get("layout") == "wide"
        return read_recordings(
            path,
            channels=None if wide else preparation.raw_channels,
            **{role: roles[role] for role in ("id", "time") if roles.get(role) in columns},
            target=roles["target"] if wide and roles.get("target") in columns else None,
            layout=roles.get("layout", "long"),
            needs_target=wide,
            **options,
        )
    if path.is_dir():
        channels, time = preparation.raw_channels, roles.get("time")
        return read_recordings(path, channels=channels, time=time, needs_target=False, **options)
    return read_recordings(path, needs_target=False)


def _test_part(run: Run) -> SeriesSet:
    from undamped._base.errors import OptionError
    from undamped._base.registry import tasks
    from undamped.lab.tasks.series import SeriesTask

    task = run.task() if run.settings["task"]["name"] in tasks else None
    if not isinstance(task, SeriesTask) or not len(task.splits["test"]):
        raise OptionError(f"{run.path} has no test part. Name a file after the run folder.")
    return task.series_set.take(task.splits["test"])


def _answer(name: str, preparation: Preparation, outputs: Any, truth: Any) -> dict[str, Any]:
    readings = preparation.answer(outputs)
    answer: dict[str, Any] = {"id": name}
    if preparation.readout == "every":
        kind = "label" if preparation.classes is not None else "value"
        answer[kind + "s"] = [step[kind] for step in readings]
    else:
        answer.update(readings[0])
    if truth is not None:
        answer["truth"] = truth
    return answer


def _of_windows(
    name: str, preparation: Preparation, outputs: Any, length: int, truth: Any
) -> dict[str, Any]:
    """Return the answers to the windows of a series, with their first and last steps."""
    from undamped.lab.training.prediction import windows_of

    readings = preparation.answer(outputs)
    spans = [(window.start, window.stop - 1) for window in windows_of(length, preparation)]
    windows = [
        {"first": first, "last": last, **answer}
        for (first, last), answer in zip(spans, readings, strict=True)
    ]
    kind = "label" if preparation.classes is not None else "value"
    answer = {"id": name, kind + "s": [window[kind] for window in windows], "windows": windows}
    return answer if truth is None else {**answer, "truth": truth}


def _in_words(answer: dict[str, Any]) -> str:
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


def _as_csv(answers: list[dict[str, Any]], preparation: Preparation, time: str) -> str:
    """Return answers as CSV text; timestamps of forecasts are in the column `time`."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    if preparation.kind == "forecast":
        levels = [(name, q) for name, bands in answers[0].get("bands", {}).items() for q in bands]
        quantiles = [f"{name}_{q}" for name, q in levels]
        time_column = [time] if _common_columns(answers, "times") else []
        table.writerow(["id", "step", *time_column, *preparation.forecast, *quantiles])
        for answer in answers:
            columns = [answer["times"]] if time_column else []
            columns += [answer["forecast"][name] for name in preparation.forecast]
            columns += [answer["bands"][name][q] for name, q in levels]
            for step, values in enumerate(zip(*columns, strict=True), start=1):
                table.writerow([answer["id"], step, *values])
    elif preparation.readout == "every":
        kind = "label" if preparation.classes is not None else "value"
        table.writerow(["id", "step", kind])
        for answer in answers:
            for step, value in enumerate(answer[kind + "s"]):
                table.writerow([answer["id"], step, value])
    elif preparation.each_window:
        classes = preparation.classes or []
        kind = "label" if preparation.classes is not None else "value"
        table.writerow(["id", "first", "last", kind, *(f"p_{name}" for name in classes)])
        for answer in answers:
            for window in answer["windows"]:
                span = window["first"], window["last"]
                probabilities = window.get("probabilities", {}).values()
                table.writerow([answer["id"], *span, window[kind], *probabilities])
    elif preparation.classes is not None:
        extra = _common_columns(answers, "margin", "standard_error")
        table.writerow(["id", "label", *(f"p_{name}" for name in preparation.classes), *extra])
        for answer in answers:
            row = [answer["id"], answer["label"], *answer["probabilities"].values()]
            table.writerow([*row, *(answer[name] for name in extra)])
    else:
        extra = _common_columns(answers, "standard_error")
        table.writerow(["id", "value", *extra])
        for answer in answers:
            table.writerow([answer["id"], answer["value"], *(answer[name] for name in extra)])
    return text.getvalue()


def _common_columns(answers: list[dict[str, Any]], *names: str) -> list[str]:
    """Return the columns that all answers have."""
    return [name for name in names if all(name in answer for answer in answers)]
