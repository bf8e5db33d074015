"""`undamped backtest`: errors of forecasts from many origins in the past."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.table import Table

from undamped._base.errors import OptionError
from undamped._base.options import options_in
from undamped._base.registry import models
from undamped.lab.cli.commands.training import Backtest
from undamped.lab.cli.figures import check_figure, save_figure
from undamped.lab.cli.progress import progress_bar
from undamped.lab.cli.screen import console, duration, print_json, print_lines
from undamped.lab.cli.settings import FILE_TASKS, read_settings
from undamped.lab.data.recordings.options import ReadingOptions, SeriesOptions
from undamped.lab.data.recordings.read import read_recordings
from undamped.lab.training.backtest import Backtest as Result
from undamped.lab.training.backtest import backtest as run
from undamped.lab.training.fit import AUTO
from undamped.lab.training.portfolio.attempt import in_short

DEFAULT_MODELS = ("seasonal-naive", "ridge-lags", "bank")
SET_BY_FOLDS = ("split", "fractions", "held_out", "horizon", "kind", "split_seed", "weights")
"""Options of the task that a backtest sets for every fold."""


def backtest(options: Backtest) -> None:
    """Forecast from the origins, print the errors and plot the last forecasts."""
    figure = options.figure
    check_figure(figure)
    arguments = _arguments(options)
    with progress_bar("backtest") as progress:
        result = run(**arguments, fraction=options.fraction, progress=progress)
    if figure is not None:
        from undamped.lab.report.forecast_figure import draw_backtest

        save_figure(draw_backtest(result), figure)
    if options.as_json:
        print_json(result.to_dict())
        return
    _print(result)
    if figure is not None:
        print_lines(f"Last forecasts: {figure}")


def _arguments(request: Backtest) -> dict[str, Any]:
    settings = read_settings(request.words, request.config)
    if settings.names[:1] != [FILE_TASKS[0]]:
        raise OptionError(
            "'undamped backtest' takes a file of recordings first, got "
            f"{settings.names[0] if settings.names else 'nothing'}. For example: undamped backtest "
            "series.csv ridge-lags horizon=12"
        )
    names = settings.names[1:] or list(DEFAULT_MODELS)
    for name in names:
        if name != AUTO:
            models[name]
    options = settings.task_options(FILE_TASKS[0])
    if options.get("horizon") is None:
        raise OptionError("Set horizon to the number of values to forecast, as in horizon=12.")
    reading = {n: options[n] for n in options_in(ReadingOptions) if n in options}
    allowed = options_in(SeriesOptions).keys() - SET_BY_FOLDS
    task_options = {name: value for name, value in options.items() if name in allowed}
    if reading.get("target") is not None and task_options.get("forecast") is None:
        task_options["forecast"] = (reading.pop("target"),)
    return {
        "series_set": read_recordings(options["file"], **reading, forecast=True),
        "models": names,
        "horizon": options["horizon"],
        "folds": request.folds,
        "origins": request.origins,
        "options": task_options,
        "model_options": {name: settings.model_options(name) for name in names},
        "train": settings.train_options(),
        "seed": settings.seed,
    }


def _print(result: Result) -> None:
    content = result.to_dict()
    season = f"a season of {result.season} steps" if result.season > 1 else "no season"
    print_lines(
        f"{Path(result.source).name}: {', '.join(result.channels)}, {result.horizon} steps ahead "
        f"from {content['origins']} origins, {season}, {result.folds} trainings each"
    )
    coverage = f"in the {100 * result.nominal_coverage:.0f} % interval"
    table = Table(title="Errors of the forecasts", title_justify="left")
    table.add_column("model", no_wrap=True)
    for column in ("steps ahead", "MAE", "MASE", "pinball", coverage, "time"):
        table.add_column(column, justify="right")
    for row in content["models"]:
        if "refused" in row:
            table.add_row(row["model"], f"refused: {in_short(row['refused'])}")
            continue
        selected = f" ({', '.join(sorted(set(row['chosen'])))})" if "chosen" in row else ""
        time = duration(row["seconds"])
        table.add_row(row["model"] + selected, "all", *_cells(row), time, style="bold")
        for step in example_steps(result.horizon):
            table.add_row("", str(step), *_cells(row["steps"][step]), "")
    console().print(table)
    console().print(
        "MASE: the error relative to the mean change over a season in the training split; below 1 "
        "is better than that.",
        style="dim",
    )


def example_steps(horizon: int) -> list[int]:
    """Return a few steps ahead, from the first to the last."""
    return sorted({1, max(1, horizon // 4), max(1, horizon // 2), horizon})


def _cells(scores: dict[str, float | None]) -> list[str]:
    cells = ["–" if scores[n] is None else f"{scores[n]:.4g}" for n in ("mae", "mase", "pinball")]
    inside = scores["coverage"]
    return [*cells, "–" if inside is None else f"{100 * inside:.0f} %"]
