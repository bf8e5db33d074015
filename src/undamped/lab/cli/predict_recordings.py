"""Answers to recordings, in the labels and units they were trained with."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from undamped.lab.data.recordings.preparation import Preparation
    from undamped.lab.data.recordings.series import SeriesSet
    from undamped.lab.training.run import Run
    from undamped.models.latent.latent_model import LatentModel
    from undamped.models.task_model import TaskModel

SHOWN = 20


def answer_recordings(
    run: Run,
    model: TaskModel,
    preparation: Preparation,
    data: Path | None,
    out: Path | None,
    as_json: bool,
    picture: Path | None = None,
) -> None:
    """Answer for every series of a file, or of the run's test part; forecasts go on at its end."""
    from undamped._base.errors import printable
    from undamped._base.files import refuse_folder, write_text
    from undamped.lab.cli.predict_curves import check_curves, draw_recordings
    from undamped.lab.cli.predict_future import (
        bands_of,
        draw_forecasts,
        own_recordings,
        with_bands,
        with_times,
    )
    from undamped.lab.cli.screen import console, print_json
    from undamped.lab.data.recordings.suspicions import in_words, strange_series
    from undamped.lab.training.prediction import predict_series
    from undamped.lab.training.standard_errors import with_standard_error

    refuse_folder(out)
    future = preparation.kind == "forecast" and not preparation.at_times
    check_curves(model, picture, future)
    own = own_recordings(run) if future and data is None else None
    if own is not None:
        series_set = own
    else:
        series_set = _test_part(run) if data is None else read_for(run, preparation, data)
    outputs = predict_series(model, preparation, series_set)
    strange = strange_series(preparation, preparation.arrange(series_set).series)
    for sentence in in_words(strange, series_set.ids):
        sys.stderr.write(printable(f"Warning: {sentence}\n"))
    tested = data is None and not future
    truths = _truths(series_set) if tested else [None] * len(series_set)
    answers = [
        _of_windows(name, preparation, found, length, truth)
        if preparation.each_window
        else with_standard_error(
            _answer(name, preparation, found, truth), found, model, preparation
        )
        for name, found, length, truth in zip(
            series_set.ids, outputs, series_set.lengths.tolist(), truths, strict=True
        )
    ]
    for number, what in strange.items():
        answers[number]["warning"] = what
    bands = bands_of(run, model, follow=own is not None) if future else None
    if bands is not None:
        with_bands(answers, outputs, preparation, bands)
    if preparation.kind == "forecast" and not tested:
        with_times(answers, series_set, preparation)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        time = series_set.columns.get("time", "time")
        write_text(out, _as_csv(answers, preparation, time))
    if picture is not None and future:
        draw_forecasts(outputs, preparation, bands, series_set, picture)
    elif picture is not None:
        draw_recordings(cast("LatentModel", model), preparation, series_set, picture)
    if as_json:
        print_json(answers)
        return
    screen = console()
    for answer in answers[:SHOWN]:
        screen.print(_in_words(answer), soft_wrap=True, markup=False)
    if len(answers) > SHOWN:
        screen.print(f"… and {len(answers) - SHOWN:,} more; --out FILE.csv or --json has all.")
    if out is not None:
        screen.print(f"The answers: {out}", soft_wrap=True, markup=False)
    if picture is not None:
        what = "What is to come" if future else "Mean and band"
        screen.print(f"{what}: {picture}", soft_wrap=True, markup=False)


def read_for(run: Run, preparation: Preparation, path: Path) -> SeriesSet:
    """Read a file the way the run's own was read; it needs no target, and may have other columns.

    Args:
        run: The run.
        preparation: Its preparation, which knows the channels.
        path: The file or folder.
    """
    from undamped.lab.data.recordings.formats.table import rows as table_rows
    from undamped.lab.data.recordings.read import WRITTEN, read_recordings

    named = run.settings.get("columns") or {}
    how: dict[str, Any] = {name: named[name] for name in WRITTEN if name in named}
    how["forecast"] = preparation.kind == "forecast"
    if path.is_file() and path.suffix.lower() in table_rows.SUFFIXES:
        there = table_rows.open_table(path).columns
        wide = named.get("layout") == "wide"
        return read_recordings(
            path,
            channels=None if wide else preparation.raw_channels,
            **{part: named[part] for part in ("id", "time") if named.get(part) in there},
            target=named["target"] if wide and named.get("target") in there else None,
            layout=named.get("layout", "long"),
            needs_target=wide,
            **how,
        )
    if path.is_dir():
        channels, time = preparation.raw_channels, named.get("time")
        return read_recordings(path, channels=channels, time=time, needs_target=False, **how)
    return read_recordings(path, needs_target=False)


def _test_part(run: Run) -> SeriesSet:
    from undamped._base.errors import OptionError
    from undamped._base.registry import tasks
    from undamped.lab.tasks.series import SeriesTask

    task = run.task() if run.settings["task"]["name"] in tasks else None
    if not isinstance(task, SeriesTask) or not len(task.parts["test"]):
        raise OptionError(
            f"{run.path}: expected a file to answer for, since the run has no test part of its "
            "own, got none. Name one after the run."
        )
    return task.series_set.take(task.parts["test"])


def _truths(series_set: SeriesSet) -> list[Any]:
    if series_set.targets is None:
        return [None] * len(series_set)
    return [one.tolist() for one in series_set.targets]


def _answer(name: str, preparation: Preparation, outputs: Any, truth: Any) -> dict[str, Any]:
    found = preparation.answer(outputs)
    answer: dict[str, Any] = {"id": name}
    if preparation.readout == "every":
        kind = "label" if preparation.classes is not None else "value"
        answer[kind + "s"] = [step[kind] for step in found]
    else:
        answer.update(found[0])
    if truth is not None:
        answer["truth"] = truth
    return answer


def _of_windows(
    name: str, preparation: Preparation, outputs: Any, length: int, truth: Any
) -> dict[str, Any]:
    """Return the answers to the windows of a series, with their first and last steps."""
    from undamped.lab.training.prediction import windows_of

    found = preparation.answer(outputs)
    spans = [(one.start, one.stop - 1) for one in windows_of(length, preparation)]
    windows = [
        {"first": first, "last": last, **answer}
        for (first, last), answer in zip(spans, found, strict=True)
    ]
    kind = "label" if preparation.classes is not None else "value"
    answer = {"id": name, kind + "s": [one[kind] for one in windows], "windows": windows}
    return answer if truth is None else {**answer, "truth": truth}


def _in_words(answer: dict[str, Any]) -> str:
    if "probabilities" in answer:
        likely = f"probability {answer['probabilities'][answer['label']]:.2f}"
        if "margin" in answer:
            likely += f", margin {answer['margin']:.2g} ± {answer['standard_error']:.2g}"
        said = f"{answer['label']}  ({likely})"
    elif "value" in answer:
        said = f"{answer['value']:.6g}"
        if "standard_error" in answer:
            said += f" ± {answer['standard_error']:.2g}"
    elif "forecast" in answer:
        said = "; ".join(
            f"{name} {_few_ahead(values, answer.get('bands', {}).get(name))}"
            for name, values in answer["forecast"].items()
        )
        if "times" in answer:
            said = f"from {answer['times'][0]} to {answer['times'][-1]}: {said}"
    else:
        said = _few(answer.get("labels") or answer["values"])
    truth = answer.get("truth")
    known = "" if truth is None else f"  truth {_few(truth) if isinstance(truth, list) else truth}"
    return f"{answer['id']}: {said}{known}"


def _few_ahead(values: list[float], bands: dict[str, list[float]] | None) -> str:
    """Write the first values to come, and the band around the last of them."""
    written = " ".join(f"{v:.6g}" for v in values[:10]) + (" …" if len(values) > 10 else "")
    if not bands:
        return written
    levels = list(bands)
    low, high = bands[levels[0]][-1], bands[levels[-1]][-1]
    inside = 100 * (float(levels[-1]) - float(levels[0]))
    return f"{written}  ({inside:.0f} % band at step {len(values)}: {low:.6g} to {high:.6g})"


def _few(values: list[Any]) -> str:
    written = [f"{v:.6g}" if isinstance(v, float) else str(v) for v in values[-10:]]
    return ("… " if len(values) > 10 else "") + " ".join(written)


def _as_csv(answers: list[dict[str, Any]], preparation: Preparation, time: str) -> str:
    """Return answers as a table; of forecasts with time stamps in a column of this name."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    if preparation.kind == "forecast":
        levels = [(name, q) for name, own in answers[0].get("bands", {}).items() for q in own]
        named = [f"{name}_{q}" for name, q in levels]
        dated = [time] if _beside(answers, "times") else []
        table.writerow(["id", "step", *dated, *preparation.forecast, *named])
        for answer in answers:
            columns = [answer["times"]] if dated else []
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
            for one in answer["windows"]:
                shares = one.get("probabilities", {}).values()
                table.writerow([answer["id"], one["first"], one["last"], one[kind], *shares])
    elif preparation.classes is not None:
        beside = _beside(answers, "margin", "standard_error")
        table.writerow(["id", "label", *(f"p_{name}" for name in preparation.classes), *beside])
        for answer in answers:
            row = [answer["id"], answer["label"], *answer["probabilities"].values()]
            table.writerow([*row, *(answer[name] for name in beside)])
    else:
        beside = _beside(answers, "standard_error")
        table.writerow(["id", "value", *beside])
        for answer in answers:
            table.writerow([answer["id"], answer["value"], *(answer[name] for name in beside)])
    return text.getvalue()


def _beside(answers: list[dict[str, Any]], *names: str) -> list[str]:
    """Return the columns that all answers have."""
    return [name for name in names if all(name in answer for answer in answers)]
