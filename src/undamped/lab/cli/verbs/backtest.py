"""`undamped backtest`: forecasts from many origins of the past, and how far they were off."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from undamped.lab.training.backtest import Backtest

DEFAULT_MODELS = ("seasonal-naive", "ridge-lags", "bank")


def backtest(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE [MODEL]... horizon=N [KEY=VALUE]...",
            help="A file of recordings, models (auto among them; seasonal-naive, ridge-lags and "
            "bank if none is named), how many values to come, and settings as for train.",
        ),
    ],
    folds: Annotated[int, typer.Option(min=1, help="How often models are trained anew.")] = 3,
    share: Annotated[
        float, typer.Option(help="How much of every series is forecast, at its end.")
    ] = 0.3,
    origins: Annotated[
        int, typer.Option(min=1, help="Forecasts in every fold, at most; spread evenly.")
    ] = 100,
    config: Annotated[Path | None, typer.Option(help="TOML file with the same keys.")] = None,
    figure: Annotated[
        Path | None,
        typer.Option(help="Draw the last forecasts with their bands into this PNG or SVG file."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a script.")] = False,
) -> None:
    """Forecast the end of a recording from one origin after the other, knowing nothing later.

    Example: `undamped backtest passengers.csv seasonal-naive ridge-lags auto horizon=12`
    """
    from undamped.lab.cli.figures import check_figure
    from undamped.lab.cli.members import ticking
    from undamped.lab.cli.screen import print_json
    from undamped.lab.report.forecast_figure import draw_backtest, save

    check_figure(figure)
    with ticking("backtest") as tick:
        result = _backtest(words, folds, share, origins, config, tick)
    if figure is not None:
        save(draw_backtest(result), figure)
    if as_json:
        print_json(result.to_dict())
        return
    _print(result)
    if figure is not None:
        from undamped.lab.cli.screen import console

        console().print(f"The last forecasts: {figure}", soft_wrap=True, markup=False)


def _backtest(
    words: list[str], folds: int, share: float, origins: int, config: Path | None, tick: Any
) -> Backtest:
    from undamped._base.errors import OptionError, explain
    from undamped._base.options import options_in
    from undamped._base.registry import models
    from undamped.lab.cli.setting_names import OWN_DATA
    from undamped.lab.cli.settings import read_settings
    from undamped.lab.data.recordings.options import ReadingOptions, SeriesOptions
    from undamped.lab.data.recordings.read import read_recordings
    from undamped.lab.training.backtest import backtest as run
    from undamped.lab.training.fit import AUTO

    settings = read_settings(words, config)
    if settings.names[:1] != [OWN_DATA[0]]:
        raise OptionError(
            explain(
                "backtest",
                expected="a file of recordings first",
                got=settings.names[0] if settings.names else "nothing",
                remedy="For example: undamped backtest series.csv ridge-lags horizon=12.",
            )
        )
    names = settings.names[1:] or list(DEFAULT_MODELS)
    for name in names:
        if name != AUTO:
            models[name]
    options = settings.task_options(OWN_DATA[0])
    if options.get("horizon") is None:
        raise OptionError(
            explain(
                "horizon",
                expected="how many values to come are forecast",
                got="none",
                remedy="For example horizon=12.",
            )
        )
    reading = {n: options[n] for n in options_in(ReadingOptions) if n in options}
    own = ("split", "fractions", "held_out", "horizon", "kind", "split_seed", "weights")
    kept = {n: v for n, v in options.items() if n in options_in(SeriesOptions) and n not in own}
    if reading.get("target") is not None and kept.get("forecast") is None:
        kept["forecast"] = (reading.pop("target"),)
    return run(
        read_recordings(options["file"], **reading, forecast=True),
        names,
        horizon=options["horizon"],
        folds=folds,
        share=share,
        origins=origins,
        options=kept,
        model_options={name: settings.model_options(name) for name in names},
        train=settings.train_options(),
        seed=settings.seed,
        progress=tick,
    )


def _print(result: Backtest) -> None:
    from rich.table import Table

    from undamped.lab.cli.screen import console, duration
    from undamped.lab.training.portfolio.attempt import in_short

    found, screen = result.to_dict(), console()
    season = f"a season of {result.season} steps" if result.season > 1 else "no season"
    screen.print(
        f"{Path(result.source).name}: {', '.join(result.channels)}, {result.horizon} steps ahead "
        f"from {found['origins']} origins, {season}, {result.folds} trainings each",
        markup=False,
        soft_wrap=True,
    )
    band = f"in the {100 * result.nominal_coverage:.0f} % band"
    table = Table(title="Forecasts beside what came", title_justify="left")
    for column in ("model", "steps ahead", "MAE", "MASE", "pinball", band, "time"):
        first = column in ("model",)
        table.add_column(column, justify="left" if first else "right", no_wrap=first)
    for one in found["models"]:
        if "refused" in one:
            table.add_row(one["model"], f"refused: {in_short(one['refused'])}")
            continue
        chosen = f" ({', '.join(sorted(set(one['chosen'])))})" if "chosen" in one else ""
        time = duration(one["seconds"])
        table.add_row(one["model"] + chosen, "all", *_row(one), time, style="bold")
        for step in shown_steps(result.horizon):
            table.add_row("", str(step), *_row(one["steps"][step]), "")
    screen.print(table)
    screen.print(
        "MASE: errors beside the mean change over a season in the training part; below 1 is better "
        "than that.",
        style="dim",
    )


def shown_steps(horizon: int) -> list[int]:
    """Return a few steps ahead, from the first to the last."""
    return sorted({1, max(1, horizon // 4), max(1, horizon // 2), horizon})


def _row(scores: dict[str, float | None]) -> list[str]:
    cells = ["–" if scores[n] is None else f"{scores[n]:.4g}" for n in ("mae", "mase", "pinball")]
    inside = scores["coverage"]
    return [*cells, "–" if inside is None else f"{100 * inside:.0f} %"]
