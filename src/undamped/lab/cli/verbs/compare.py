"""`undamped compare`: several models on one task, several seeds, one table."""

from __future__ import annotations

import itertools
import shlex
import statistics
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from undamped.lab.cli.settings import Settings
    from undamped.lab.tasks.task import Task
    from undamped.lab.training.run import Run


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
    figure: Annotated[
        Path | None, typer.Option(help="Draw the validation curves into this PNG or SVG file.")
    ] = None,
    leave_one_out: Annotated[
        bool,
        typer.Option("--leave-one-out", help="Test on one group (group=COLUMN) after the other."),
    ] = False,
    sweep: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Tune every model first, with so many trials each; what varies is given as for "
            "sweep, or chosen: the learning rate, and what a model names.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a script.")] = False,
) -> None:
    """Train several models on one task and set them side by side.

    Several files of recordings are compared one after the other, and models ranked over all.

    Example: `undamped compare digits unicornn lstm --seeds 3 train.seconds=20`
    """
    from undamped.lab.cli.figures import check_figure, draw_curves
    from undamped.lab.cli.screen import print_json
    from undamped.lab.cli.several_files import files_of, print_ranks, summary_of

    check_figure(figure)
    files, rest = files_of(words)
    if len(files) > 1:
        if figure is not None:
            raise _no_curves(len(files))
        found = {
            file: _compare([file, *rest], seeds, out, config, leave_one_out, sweep)
            for file in files
        }
        ranked = summary_of({file: (one.built, one.rows) for file, one in found.items()})
        if as_json:
            print_json({"files": {file: one.to_dict() for file, one in found.items()}, **ranked})
            return
        for one in found.values():
            _print(one.task, one.built, one.rows)
        print_ranks(ranked)
        return
    one = _compare(words, seeds, out, config, leave_one_out, sweep)
    if figure is not None:
        draw_curves(figure, one.built, one.results)
    if as_json:
        print_json(one.to_dict())
    else:
        _print(one.task, one.built, one.rows)


@dataclass(frozen=True)
class Comparison:
    """What models came to on one task."""

    task: str
    built: Task
    results: dict[str, list[Run]]
    rows: list[dict[str, Any]]

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        chance = {"guess": self.built.chance.rule, self.built.metric: self.built.chance.metric}
        baseline = self.built.baseline
        return {
            "task": self.task,
            "metric": self.built.metric,
            "chance": chance,
            **({} if baseline is None else {"baseline": asdict(baseline)}),
            "models": self.rows,
        }


def _compare(
    words: list[str],
    seeds: int,
    out: Path,
    config: Path | None,
    leave_one_out: bool,
    sweep: int | None,
) -> Comparison:
    import undamped.lab.tasks
    from undamped._base.registry import tasks
    from undamped.lab.cli.settings import read_settings
    from undamped.lab.training.closed_form import check_data
    from undamped.lab.training.fit import AUTO
    from undamped.lab.training.options import TrainOptions
    from undamped.lab.training.recipes import merged
    from undamped.models.for_task import refuse_misfit

    varies: dict[str, str] = {}
    if sweep is not None:
        from undamped.lab.cli.sweep_settings import split_words

        words, varies = split_words(words)
    settings = read_settings(words, config)
    # Everything is checked before anything is trained.
    task, names = _what_to_compare(settings)
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
    built = undamped.lab.tasks.build(task, **task_options)
    for name in names:
        if name != AUTO:
            refuse_misfit(built.task_shape, name)
            check_data(name, built, TrainOptions())
    each = _held_out(built) if leave_one_out else [{}]
    tuned = {}
    if sweep is not None:
        from undamped.lab.cli.tuned import tune_all

        tunable = {name: fit for name, fit in fits.items() if name != AUTO}
        tuned = tune_all(task, built, tunable, varies, sweep, settings.seed, out)
    results, failures = _fit_all(task, fits, range(settings.seed, settings.seed + seeds), each)
    rows = [
        {**_summary(name, results[name], failures[name], built), **tuned.get(name, {})}
        for name in names
    ]
    return Comparison(task, built, results, rows)


def _no_curves(count: int) -> Exception:
    from undamped._base.errors import OptionError

    return OptionError(
        f"--figure: expected one file of recordings, got {count}. Curves of several do not belong "
        "together; draw one picture for each."
    )


def _held_out(task: Task) -> list[dict[str, Any]]:
    """Return options that hold out one group after the other."""
    from undamped._base.errors import OptionError, explain

    groups = getattr(getattr(task, "series_set", None), "groups", None)
    if groups is None:
        raise OptionError(
            explain(
                "--leave-one-out",
                expected="recordings that belong to groups, such as subjects",
                got="none",
                remedy="Name their column with group=COLUMN.",
            )
        )
    return [{"held_out": str(name)} for name in sorted(set(groups.astype(str)))]


def _what_to_compare(settings: Settings) -> tuple[str, list[str]]:
    """Return the task and the models, or refuse."""
    from undamped._base.errors import OptionError
    from undamped._base.registry import models, tasks

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
    task: str, fits: dict[str, dict[str, Any]], seeds: range, each: list[dict[str, Any]]
) -> tuple[dict[str, list[Run]], dict[str, list[str]]]:
    """Train every model with every seed and further options of the task, one after the other.

    Returns:
        Runs, and what went wrong, by model.
    """
    from undamped._base.errors import NonFiniteError, printable
    from undamped.lab.training import Run, fit

    results: dict[str, list[Run]] = {name: [] for name in fits}
    failures: dict[str, list[str]] = {name: [] for name in fits}
    for seed, further in itertools.product(seeds, each):
        shared: str | Task = task  # the models of a seed learn from the same data, read once
        for name, options in fits.items():
            told = "".join(f", without {value}" for value in further.values())
            sys.stderr.write(printable(f"{name}, seed {seed}{told}\n"))
            options = {**options, "task_options": {**options["task_options"], **further}}
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
    return {name: part.metric for name, part in task.test_tasks().items()} or {"valid": task.metric}


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

    from undamped.lab.cli.screen import bars, console, duration, megabytes, metric_name, number

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
    for row in rows:
        if "sweep" in row:
            screen.print(f"{row['model']}: {row['sweep']['words']}", style="dim", markup=False)
    first = next(iter(parts))
    drawn = [(row["model"], row[first]["mean"], "") for row in rows if first in row]
    drawn.append(("a guess", task.chance.metric, task.chance.rule))
    if task.baseline is not None:
        drawn.append(("a trivial rule", task.baseline.metric, task.baseline.rule))
    screen.print(bars(drawn, task))
