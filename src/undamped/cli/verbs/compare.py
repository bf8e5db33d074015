"""`undamped compare`: several models on one task, several seeds, one table."""

from __future__ import annotations

import shlex
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from undamped.cli.settings import Settings
    from undamped.tasks.task import Task
    from undamped.training.run import Run


def compare(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="TASK MODEL... [KEY=VALUE]...",
            help="A task or a file of recordings, one or more models, and settings; model.KEY "
            "holds for all models, unicornn.KEY for that one.",
        ),
    ],
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds, from seed on.")] = 1,
    out: Annotated[Path, typer.Option(help="Folder for the runs' folders.")] = Path("runs"),
    config: Annotated[Path | None, typer.Option(help="TOML file with the same keys.")] = None,
    picture: Annotated[
        Path | None, typer.Option(help="Draw the validation curves into this PNG or SVG file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a script.")] = False,
) -> None:
    """Train several models on one task and set them side by side.

    Example: `undamped compare digits unicornn lstm --seeds 3 train.seconds=20`
    """
    import undamped.tasks
    from undamped.cli.picture import check_picture, draw_curves
    from undamped.cli.screen import print_json
    from undamped.cli.settings import read_settings
    from undamped.networks.for_task import refuse_misfit
    from undamped.registry import tasks
    from undamped.training.recipes import merged

    settings = read_settings(words, config)
    # Everything is checked before anything is trained.
    task, names = _what_to_compare(settings)
    check_picture(picture)
    # All learn from the data that the first model wants, unless something else was said.
    task_options = merged(tasks[task], names[0], {"task": settings.task_options(task)})["task"]
    fits = {
        name: {
            "model_options": settings.model_options(name),
            "task_options": task_options,
            "train": settings.train_options(),
            "out": out,
            "command": shlex.join(["undamped", *sys.argv[1:]]),
        }
        for name in names
    }
    built = undamped.tasks.build(task, **task_options)
    for name in names:
        refuse_misfit(built.task_shape, name)
    results, failures = _fit_all(task, fits, range(settings.seed, settings.seed + seeds))
    if picture is not None:
        draw_curves(picture, built, results)
    rows = [_summary(name, results[name], failures[name], built) for name in names]
    chance = {"guess": built.chance.guess, built.metric: built.chance.metric}
    if as_json:
        print_json({"task": task, "metric": built.metric, "chance": chance, "models": rows})
    else:
        _print(task, built, rows)


def _what_to_compare(settings: Settings) -> tuple[str, list[str]]:
    """Return the task and the models, or refuse."""
    from undamped.errors import OptionError
    from undamped.registry import models, tasks

    if len(settings.names) < 2:
        raise OptionError(
            "compare: expected a task and at least one model, got "
            f"{' '.join(settings.names) or 'nothing'}. For example: undamped compare copy lstm "
            "unicornn."
        )
    task, *names = settings.names
    tasks[task]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise OptionError(
            f"compare: expected every model once, got '{twice}' twice. For several runs of a model "
            "use --seeds."
        )
    unused = [part for part in settings.parts if part in models and part not in names]
    if unused:
        raise OptionError(
            f"{unused[0]}.…: expected settings of a model that is compared, got {unused[0]}'s. "
            f"Add {unused[0]} to the list or leave its settings out."
        )
    return task, names


def _fit_all(
    task: str, fits: dict[str, dict[str, Any]], seeds: range
) -> tuple[dict[str, list[Run]], dict[str, list[str]]]:
    """Train every model with every seed; return runs, and what went wrong, by model."""
    from undamped.errors import NonFiniteError
    from undamped.training import Run, fit

    results: dict[str, list[Run]] = {name: [] for name in fits}
    failures: dict[str, list[str]] = {name: [] for name in fits}
    for seed in seeds:
        shared: str | Task = task  # the models of a seed learn from the same data, read once
        for name, options in fits.items():
            sys.stderr.write(f"{name}, seed {seed}\n")
            try:
                run = fit(name, shared, seed=seed, **options)
            except NonFiniteError as error:
                failures[name].append(str(error))
                continue
            if run.settings["status"] == "interrupted":
                raise KeyboardInterrupt
            shared = run.task()
            results[name].append(Run.open(run.path))  # without the data, which may be large
    return results, failures


def _metrics(task: Task) -> dict[str, str]:
    """Return the parts a task is tested on, and what is scored there."""
    return {name: part.metric for name, part in task.test_parts().items()} or {"valid": task.metric}


def _summary(name: str, runs: list[Run], failures: list[str], task: Task) -> dict[str, Any]:
    parts = _metrics(task)
    found = [run.settings for run in runs]
    row: dict[str, Any] = {"model": name, "runs": [str(run.path) for run in runs]}
    if failures:
        row["failures"] = failures
    if not found:
        return row
    for part, metric in parts.items():
        scores = [settings["result"][part][metric] for settings in found]
        row[part] = {
            "mean": statistics.fmean(scores),
            "std": statistics.stdev(scores) if len(scores) > 1 else 0.0,
            "scores": scores,
        }
    results = [settings["result"] for settings in found]
    row["parameters"] = found[0]["model"]["parameters"]
    row["steps"] = statistics.fmean(result["steps"] for result in results)
    row["seconds"] = statistics.fmean(result["seconds"] for result in results)
    row["peak_memory_bytes"] = max(result["peak_memory_bytes"] for result in results)
    return row


def _print(name: str, task: Task, rows: list[dict[str, Any]]) -> None:
    from rich.table import Table

    from undamped.cli.screen import bars, console, duration, megabytes, metric_name, number

    screen = console()
    parts = _metrics(task)
    table = Table(title=f"{name}: {metric_name(task)} on the test part", title_justify="left")
    table.add_column("model")
    for part, metric in parts.items():
        words = part if metric == task.metric else f"{part}: {metric.replace('_', ' ')}"
        table.add_column(words if len(parts) > 1 else metric_name(task), justify="right")
    for column in ("parameters", "steps", "time", "peak memory"):
        table.add_column(column, justify="right")
    for row in rows:
        if "parameters" not in row:
            table.add_row(row["model"], f"failed: {row['failures'][0]}")
            continue
        scores = [f"{number(row[p]['mean'], task)} ± {number(row[p]['std'], task)}" for p in parts]
        table.add_row(
            row["model"] + (f" ({len(row['failures'])} failed)" if "failures" in row else ""),
            *scores,
            f"{row['parameters']:,}",
            f"{row['steps']:,.0f}",
            duration(row["seconds"]),
            megabytes(row["peak_memory_bytes"]),
        )
    screen.print(table)
    first = next(iter(parts))
    drawn = [(row["model"], row[first]["mean"], "") for row in rows if first in row]
    screen.print(bars([*drawn, ("a guess", task.chance.metric, task.chance.guess)], task))
