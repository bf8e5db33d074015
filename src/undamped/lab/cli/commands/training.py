"""Commands that train models."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from undamped.lab.cli.commands import AsJson, Config, RunFolder, command, complete_name


class Page(StrEnum):
    """How much of the page of a run is measured after training."""

    quick, full, none = "quick", "full", "none"


@command("train", seeded=True)
class Train(NamedTuple):
    """Train a model on a task.

    Example: `undamped train copy unicornn task.delay=200 model.hidden_size=128 train.steps=2000`
    """

    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TASK] [MODEL] [KEY=VALUE]...",
            autocompletion=complete_name,
            help="A task or a file of recordings, a model, and settings such as task.delay=200 "
            "model.hidden_size=128 train.steps=2000 seed=3; for a file also target=COLUMN. For a "
            "file without a model, or with the model 'auto', several models are trained for "
            "train.minutes=5 and the best one is selected. Without a task: flags that are set "
            "and reset among distractors, with latch and four other models.",
        ),
    ] = None
    out: Annotated[
        Path | None, typer.Option(help="Parent of the run folder; by default 'runs'.")
    ] = None
    streaming: Annotated[
        bool,
        typer.Option("--streaming", help="With auto: compare only models that follow a stream."),
    ] = False
    exportable: Annotated[
        bool,
        typer.Option("--exportable", help="With auto: compare only models that can be exported."),
    ] = False
    config: Config = None
    interrupted: Annotated[
        Path | None, typer.Option("--resume", help="Continue this interrupted run instead.")
    ] = None
    from_zoo: Annotated[
        bool,
        typer.Option(
            "--from-zoo",
            help="Copy the run of this task and model from the zoo instead of training.",
        ),
    ] = False
    baseline: Annotated[
        str | None, typer.Option(help="A second model, which is trained for the same CPU time.")
    ] = None
    watch: Annotated[
        bool, typer.Option("--watch", help="Serve a live page on localhost during training.")
    ] = False
    page: Annotated[
        Page,
        typer.Option(
            help="report.html in the run folder, after the scores: quick is limited to 15 s or a "
            "third of the training, whichever is longer; full has all measurements."
        ),
    ] = Page.quick
    no_page: Annotated[bool, typer.Option("--no-page", help="The same as --page none.")] = False
    as_json: AsJson = False


@command("compare", seeded=True)
class Compare(NamedTuple):
    """Train several models on one task and compare them.

    With several files of recordings, models are compared on each and ranked over all of them.

    Example: `undamped compare digits unicornn lstm --seeds 3 train.seconds=20`
    """

    words: Annotated[
        list[str],
        typer.Argument(
            metavar="TASK MODEL... [KEY=VALUE]...",
            autocompletion=complete_name,
            help="A task or a file of recordings, one or more models, and settings; model.KEY "
            "is for all models, unicornn.KEY for one.",
        ),
    ]
    seeds: Annotated[
        int, typer.Option(min=1, help="Number of seeds; the first is the setting 'seed'.")
    ] = 1
    out: Annotated[Path, typer.Option(help="Parent of the run folders.")] = Path("runs")
    config: Config = None
    figure: Annotated[
        Path | None, typer.Option(help="Plot the validation curves to this .png or .svg file.")
    ] = None
    leave_one_out: Annotated[
        bool,
        typer.Option(
            "--leave-one-out", help="Test on each group (group=COLUMN) in turn, train on the rest."
        ),
    ] = False
    sweep: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Tune every model first, with this number of trials each. Settings vary as in "
            "'undamped sweep'; by default the learning rate and what the model recommends.",
        ),
    ] = None
    as_json: AsJson = False


@command("backtest", seeded=True)
class Backtest(NamedTuple):
    """Evaluate forecasts from many origins in the past, each without later data.

    Example: `undamped backtest passengers.csv seasonal-naive ridge-lags auto horizon=12`
    """

    words: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE [MODEL]... horizon=N [KEY=VALUE]...",
            help="A file of recordings, models (by default seasonal-naive, ridge-lags and bank), "
            "the number of values to forecast, and settings as for train.",
        ),
    ]
    folds: Annotated[int, typer.Option(min=1, help="How often models are retrained.")] = 3
    fraction: Annotated[
        float, typer.Option("--share", help="Fraction of every series, at its end, to forecast.")
    ] = 0.3
    origins: Annotated[
        int, typer.Option(min=1, help="Maximum number of forecast origins in a fold.")
    ] = 100
    config: Config = None
    figure: Annotated[
        Path | None,
        typer.Option(
            help="Plot the last forecasts with prediction intervals to this .png or .svg file."
        ),
    ] = None
    as_json: AsJson = False


@command("sweep", seeded=True)
class Sweep(NamedTuple):
    """Search for good hyperparameters; several processes can share one search.

    Example: `undamped sweep digits unicornn model.dt=0.01..0.5:log
    train.learning_rate=1e-4..1e-1:log train.steps=200 --trials 50`
    """

    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TASK MODEL [KEY=VALUE]... | show FOLDER",
            autocompletion=complete_name,
            help="A task or a file of recordings, a model, and settings. A range "
            "(model.dt=0.01..0.5:log, model.hidden_size=16..128:16) or a list of choices "
            "(train.optimizer=adam,rmsprop) is searched. Or 'show' and the folder of a sweep.",
        ),
    ] = None
    trials: Annotated[
        int | None,
        typer.Option(min=1, help="Number of trials of all processes together; by default 20."),
    ] = None
    out: Annotated[
        Path | None, typer.Option(help="Folder of the sweep; by default sweeps/TASK-MODEL.")
    ] = None
    storage: Annotated[
        str | None,
        typer.Option(
            help="A database for several machines, such as postgresql://me@host/sweeps; by "
            "default a journal in the folder."
        ),
    ] = None
    sampler: Annotated[
        str | None, typer.Option(help="The search: tpe, random, qmc, gp or grid.")
    ] = None
    pruner: Annotated[
        str | None, typer.Option(help="Early stopping of trials: median, hyperband or none.")
    ] = None
    config: Annotated[
        Path | None,
        typer.Option(help="TOML file with the same keys; what is searched is in [sweep]."),
    ] = None
    as_json: AsJson = False


@command("resume", "train.resume")
class Resume(NamedTuple):
    """Continue an interrupted run; the result is the same as without the interruption.

    Example: `undamped resume runs/copy-unicornn-1`
    """

    run: RunFolder
    as_json: AsJson = False
