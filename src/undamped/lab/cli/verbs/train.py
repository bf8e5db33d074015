"""`undamped train`: one model on one task, and a screen worth reading at the end."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from undamped.lab.tasks.task import Task
    from undamped.lab.training.run import Run

DEFAULT_TASK, DEFAULT_MODEL, DEFAULT_BASELINE = "digits", "unicornn", "lstm"


def train(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TASK] [MODEL] [KEY=VALUE]...",
            help="A task or a file of recordings, a model, and settings such as task.delay=200 "
            "model.hidden_size=128 train.steps=2000 seed=3; for a file also target=COLUMN. For a "
            "file without a model, or with auto as the model, models are raced for train.minutes=5 "
            "and the best is kept. Without a task: noise-padded digits with unicornn, and the same "
            "seconds spent on an lstm.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the run's folder; runs if not said.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file with the same keys.")] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with this interrupted run instead.")
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(help="A second model that gets the same seconds.")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Serve a live page on localhost while it trains.")
    ] = False,
    page: Annotated[
        bool, typer.Option(help="Write report.html into the run's folder at the end.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a script.")] = False,
) -> None:
    """Train a model on a task.

    Example: `undamped train copy unicornn task.delay=200 model.hidden_size=128 train.steps=2000`
    """
    from undamped._base.errors import OptionError

    if resume is not None:
        if words or config or baseline or out or watch or not page:
            raise OptionError(
                "--resume: expected nothing beside it, got other settings or options. A run goes "
                "on in its folder, with the settings it was started with."
            )
        from undamped.lab.cli.verbs.resume import resume as go_on

        go_on(resume, as_json)
        return
    from undamped.lab.cli.live import live_page
    from undamped.lab.training.process_group import is_secondary_rank

    with live_page(watch) as started:
        run, other = _train(words or [], out or Path("runs"), config, baseline, started)
    if is_secondary_rank():
        return
    report(run, other, as_json)
    if page:
        _add_page(run, other, as_json)


def _add_page(run: Run, other: Run | None, as_json: bool) -> None:
    """Write the page after the scores were printed; whoever does not wait has them already."""
    from undamped.lab.cli.screen import console
    from undamped.lab.cli.verbs.report import write_page

    try:
        path = write_page(run, other)
    except KeyboardInterrupt:
        typer.echo(f"No page. Make it later: undamped report {run.path}", err=True)
        return
    if path is not None and not as_json:
        console().print(f"The page: {path}", soft_wrap=True, markup=False)


def _train(
    words: list[str],
    out: Path,
    config: Path | None,
    baseline: str | None,
    started: Callable[[Run], None] | None = None,
) -> tuple[Run, Run | None]:
    from undamped._base.errors import OptionError
    from undamped._base.registry import models, tasks
    from undamped.lab.cli.setting_names import OWN_DATA
    from undamped.lab.cli.settings import read_settings
    from undamped.lab.training import fit
    from undamped.lab.training.fit import AUTO

    settings = read_settings(words, config)
    if len(settings.names) > 2:
        raise OptionError(
            f"train: expected a task and a model, got {len(settings.names)} names. Settings look "
            "like key=value; to train several models use 'undamped compare'."
        )
    if not settings.names and baseline is None:
        baseline = DEFAULT_BASELINE
    own = settings.names[:1] == [OWN_DATA[0]]
    usual = (DEFAULT_TASK, AUTO if own else DEFAULT_MODEL)
    task, model = [*settings.names, *usual[len(settings.names) :]]
    for registry, name in ((tasks, task), (models, model), (models, baseline or model)):
        if name != AUTO:
            registry[name]  # an unknown name should be the first thing said
    common: dict[str, Any] = {
        "task_options": settings.task_options(task),
        "seed": settings.seed,
        "out": out,
        "command": shlex.join(["undamped", *sys.argv[1:]]),
        "started": started,
    }
    options, chosen = settings.model_options(model), settings.train_options()
    run = fit(model, task, model_options=options, train=chosen, **common)
    if baseline is None or run.settings["status"] != "finished":
        return run, None
    seconds = run.settings["result"]["seconds"]
    without_budget = {
        key: value
        for key, value in chosen.items()
        if key not in ("steps", "epochs", "seconds", "minutes")
    }
    other = fit(
        baseline,
        run.task(),
        # The baseline shares what it understands: sizes and the like, not another model's Δt.
        model_options=_understood(baseline, options),
        train={**without_budget, "seconds": seconds},
        **common,
    )
    return run, other


def _understood(model: str, options: dict[str, Any]) -> dict[str, Any]:
    from undamped._base.options import options_of
    from undamped._base.registry import models

    return {name: value for name, value in options.items() if name in options_of(models[model])}


def report(run: Run, other: Run | None, as_json: bool) -> None:
    """Print the end of a training: scores beside a guess and a baseline, and what to try next.

    Raises:
        typer.Exit: With code 130, where somebody stopped it.
    """
    from undamped.lab.cli.screen import print_json
    from undamped.lab.training.process_group import is_launched

    if as_json:
        settings = run.settings
        extra = {} if other is None else {"baseline": {"run": str(other.path), **other.settings}}
        print_json({"run": str(run.path), **settings, **extra})
    elif run.settings["status"] == "interrupted":
        from undamped.lab.cli.screen import console

        steps = run.settings.get("steps", 0)
        console().print(f"Stopped after step {steps}. Go on: [bold]undamped resume {run.path}[/]")
    else:
        _print(run, other)
    if run.settings["status"] == "interrupted" and not is_launched():
        raise typer.Exit(130)  # as programs do that Ctrl-C ended; torchrun would call it a crash


def _print(run: Run, other: Run | None) -> None:
    from rich.panel import Panel

    from undamped.lab.cli.next_steps import next_steps
    from undamped.lab.cli.screen import (
        bars,
        console,
        duration,
        megabytes,
        metric_name,
        print_warnings,
        scores_line,
    )
    from undamped.lab.cli.tried import tried_table
    from undamped.lab.training.origins import with_words

    settings, task = run.settings, run.task()
    result, found = settings["result"], task.test_tasks()
    held = "test" if found else "validation"
    screen = console()
    direction = "higher is better" if task.higher_is_better else "lower is better"
    screen.print("")
    screen.print(task.describe(), style="bold", markup=False)
    screen.print(f"{metric_name(task)} on the {held} part, {direction}", style="dim")
    screen.print("")
    screen.print(bars(_scores(settings, task, other), task))
    for name, part in found.items():
        if part.metric != task.metric:
            screen.print(scores_line(name, result[name]))
    if "tried" in settings:
        screen.print("")
        if settings["tried"]:
            screen.print(tried_table(settings["tried"], task))
        screen.print(f"  {settings['why']}", markup=False, soft_wrap=True)
    for sentence in settings.get("found", ()):
        screen.print(f"  {sentence}", markup=False, soft_wrap=True)
    print_warnings(screen, settings.get("warnings", ()))
    screen.print("")
    screen.print(
        f"Trained in {duration(result['seconds'])}, peak memory "
        f"{megabytes(result['peak_memory_bytes'])}, seed {settings['seed']}; best validation at "
        f"step {result['best_step']:,}."
    )
    screen.print(f"The run: {run.path}", soft_wrap=True)
    screen.print(
        Panel(
            "\n".join(step + with_words(settings) for step in next_steps(run)),
            title="What to try next",
            title_align="left",
            expand=False,
        )
    )


def _scores(
    settings: dict[str, Any], task: Task, other: Run | None
) -> list[tuple[str, float, str]]:
    """Return who scored what on the parts that are scored alike: model, guess, baseline."""
    model, result = settings["model"], settings["result"]
    alike = [name for name, part in task.test_tasks().items() if part.metric == task.metric]
    parts = alike or ["valid"]
    rows = [
        (
            model["name"] if part in ("test", "valid") else f"{model['name']}, {part}",
            result[part][task.metric],
            _effort(settings) if place == 0 else "",
        )
        for place, part in enumerate(parts)
    ]
    rows.append(("a guess", task.chance.metric, task.chance.rule))
    if task.baseline is not None:
        rows.append(("a trivial rule", task.baseline.metric, task.baseline.rule))
    if other is not None and other.result is not None:
        name = f"{other.settings['model']['name']}, same time"
        rows.append((name, other.result[parts[0]][task.metric], _effort(other.settings)))
    return rows


def _effort(settings: dict[str, Any]) -> str:
    count, steps = settings["model"]["parameters"], settings["result"]["steps"]
    return f"{count:,} parameters, {steps:,} steps"
