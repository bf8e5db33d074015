"""`undamped compare`: several models on one task or on several files, several seeds."""

from __future__ import annotations

import itertools
import shlex
import statistics
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

import undamped.lab.tasks
from undamped._base.errors import NonFiniteError, OptionError, printable
from undamped._base.registry import models, tasks
from undamped.lab.cli.commands.training import Compare
from undamped.lab.cli.figures import check_figure, draw_curves
from undamped.lab.cli.screen import (
    bars,
    baseline_bars,
    console,
    duration,
    megabytes,
    metric_name,
    number,
    print_json,
    print_lines,
)
from undamped.lab.cli.settings import Settings, read_settings
from undamped.lab.data.recordings.read import is_data_path
from undamped.lab.tasks.task import Task
from undamped.lab.training import Run, fit
from undamped.lab.training.closed_form import check_data
from undamped.lab.training.fit import AUTO
from undamped.lab.training.options import TrainOptions
from undamped.lab.training.recipes import merged, refuse_misfit


def compare(options: Compare) -> None:
    """Compare models on a task, or on several files one after the other."""
    figure, as_json = options.figure, options.as_json
    check_figure(figure)
    files, rest = files_of(options.words)
    if len(files) > 1:
        if figure is not None:
            raise OptionError(f"--figure needs a single file of recordings, got {len(files)}.")
        comparisons = {file: _compare([file, *rest], options) for file in files}
        ranks = summary_of({file: (c.built, c.rows) for file, c in comparisons.items()})
        if as_json:
            print_json({"files": {file: c.to_dict() for file, c in comparisons.items()}, **ranks})
            return
        for comparison in comparisons.values():
            comparison.print()
        print_ranks(ranks)
        return
    comparison = _compare(options.words, options)
    if figure is not None:
        draw_curves(figure, comparison.built, comparison.results)
    if as_json:
        print_json(comparison.to_dict())
    else:
        comparison.print()


@dataclass(frozen=True)
class Comparison:
    """The results of models on one task."""

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

    def print(self) -> None:
        """Print a table and bars."""
        screen, task = console(), self.built
        splits = _metrics(task)
        title = f"{self.task}: {metric_name(task)} on the test split"
        table = Table(title=title, title_justify="left")
        table.add_column("model")
        for split, metric in splits.items():
            words = split if metric == task.metric else f"{split}: {metric.replace('_', ' ')}"
            table.add_column(words if len(splits) > 1 else metric_name(task), justify="right")
        for column in ("parameters", "steps", "time", "peak memory"):
            table.add_column(column, justify="right")
        for row in self.rows:
            if "parameters" not in row:
                table.add_row(row["model"], f"failed: {row['failures'][0]}")
                continue
            scores = [row[split] for split in splits]
            table.add_row(
                row["model"] + (f" ({len(row['failures'])} failed)" if "failures" in row else ""),
                *(f"{number(s['mean'], task)} ± {number(s['std'], task)}" for s in scores),
                f"{row['parameters']:,}",
                f"{row['steps']:,.0f}",
                duration(row["seconds"]),
                megabytes(row["peak_memory_bytes"]),
            )
        screen.print(table)
        for row in self.rows:
            if "sweep" in row:
                print_lines(f"{row['model']}: {row['sweep']['words']}", style="dim")
        first = next(iter(splits))
        scores = [(row["model"], row[first]["mean"], "") for row in self.rows if first in row]
        screen.print(bars([*scores, *baseline_bars(task)], task))


def _compare(words: list[str], request: Compare) -> Comparison:
    space: dict[str, str] = {}
    if request.sweep is not None:
        from undamped.lab.cli.sweep_settings import split_words

        words, space = split_words(words)
    settings = read_settings(words, request.config)
    # Everything is checked before anything is trained.
    task, names = _names(settings)
    # All models are trained on the data that the first one recommends, unless options differ.
    task_options = merged(tasks[task], names[0], {"task": settings.task_options(task)})["task"]
    fits = {
        name: {
            "model_options": settings.model_options(name),
            "task_options": task_options,
            "train": settings.train_options(),
            "out": request.out,
            "command": shlex.join(["undamped", *sys.argv[1:]]),
        }
        for name in names
    }
    built = undamped.lab.tasks.build(task, **task_options)
    for name in names:
        if name != AUTO:
            refuse_misfit(built.task_shape, name)
            check_data(name, built, TrainOptions())
    groups = _groups(built) if request.leave_one_out else [{}]
    tuned = {}
    if request.sweep is not None:
        from undamped.lab.cli.sweep_settings import tune_all

        tunable = {name: options for name, options in fits.items() if name != AUTO}
        tuned = tune_all(
            task, built, tunable, space, request.sweep, settings.seed, request.out / "sweeps"
        )
    seeds = range(settings.seed, settings.seed + request.seeds)
    results, failures = _fit_all(task, fits, seeds, groups)
    rows = [
        {**_summary(name, results[name], failures[name], built), **tuned.get(name, {})}
        for name in names
    ]
    return Comparison(task, built, results, rows)


def _groups(task: Task) -> list[dict[str, Any]]:
    """Return, for every group of recordings, the options that make it the test split."""
    groups = getattr(getattr(task, "series_set", None), "groups", None)
    if groups is None:
        raise OptionError(
            "--leave-one-out needs recordings that belong to groups, such as subjects. Name their "
            "column with group=COLUMN."
        )
    return [{"held_out": str(name)} for name in sorted(set(groups.astype(str)))]


def _names(settings: Settings) -> tuple[str, list[str]]:
    """Return the task and the models, or raise an error."""
    if len(settings.names) < 2:
        raise OptionError(
            "'undamped compare' takes a task and at least one model, got "
            f"{' '.join(settings.names) or 'nothing'}. For example: undamped compare copy lstm "
            "unicornn"
        )
    task, *names = settings.names
    tasks[task]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise OptionError(
            f"'{repeated}' is listed twice. --seeds trains every model several times."
        )
    unused = [name for name in settings.sections if name in models and name not in names]
    if unused:
        raise OptionError(
            f"There are settings of {unused[0]}, which is not compared. Add {unused[0]} to the "
            "models or remove its settings."
        )
    return task, names


def _fit_all(
    task: str, fits: dict[str, dict[str, Any]], seeds: range, groups: list[dict[str, Any]]
) -> tuple[dict[str, list[Run]], dict[str, list[str]]]:
    """Train every model with every seed and every group left out.

    Returns:
        Runs and error messages, by model.
    """
    results: dict[str, list[Run]] = {name: [] for name in fits}
    failures: dict[str, list[str]] = {name: [] for name in fits}
    for seed, group in itertools.product(seeds, groups):
        data: str | Task = task  # the models of a seed are trained on the same data, read once
        for name, options in fits.items():
            note = "".join(f", without {value}" for value in group.values())
            sys.stderr.write(printable(f"{name}, seed {seed}{note}\n"))
            options = {**options, "task_options": {**options["task_options"], **group}}
            try:
                run = fit(name, data, seed=seed, **options)
            except NonFiniteError as error:
                failures[name].append(str(error))
                continue
            if run.settings["status"] == "interrupted":
                raise KeyboardInterrupt
            data = run.task()
            results[name].append(Run.open(run.path))  # without the data, which may be large
    return results, failures


def _metrics(task: Task) -> dict[str, str]:
    """Return the test splits of a task and their metrics."""
    splits = {name: split.metric for name, split in task.test_tasks().items()}
    return splits or {"valid": task.metric}


def _summary(name: str, runs: list[Run], failures: list[str], task: Task) -> dict[str, Any]:
    row: dict[str, Any] = {"model": name, "runs": [str(run.path) for run in runs]}
    if failures:
        row["failures"] = failures
    if not runs:
        return row
    results = [run.settings["result"] for run in runs]
    for split, metric in _metrics(task).items():
        scores = [result[split][metric] for result in results]
        row[split] = {
            "mean": statistics.fmean(scores),
            "std": statistics.stdev(scores) if len(scores) > 1 else 0.0,
            "scores": scores,
        }
    row["parameters"] = runs[0].settings["model"]["parameters"]
    row["steps"] = statistics.fmean(result["steps"] for result in results)
    row["seconds"] = statistics.fmean(result["seconds"] for result in results)
    row["peak_memory_bytes"] = max(result["peak_memory_bytes"] for result in results)
    return row


def files_of(words: list[str]) -> tuple[list[str], list[str]]:
    """Return the files at the beginning of a command's words, and the other words.

    Args:
        words: Files or a task, models, and settings.
    """
    names = [word for word in words if "=" not in word]
    files = []
    for name in names:
        if name in tasks or name in models or not is_data_path(name):
            break
        files.append(name)
    return files, [word for word in words if word not in files]


def summary_of(results: Mapping[str, tuple[Task, list[dict[str, Any]]]]) -> dict[str, Any]:
    """Return mean ranks, and how often each model was better than each other one.

    Files on which a model failed are not counted.

    Args:
        results: The task of each file, and a row for each model.
    """
    from scipy.stats import rankdata

    names: list[str] = []
    ranks: list[list[float]] = []
    scores: list[list[float]] = []
    for task, rows in results.values():
        names = [row["model"] for row in rows]
        split = next(iter(task.test_tasks()), "valid")
        if not all(split in row for row in rows):
            continue
        sign = -1.0 if task.higher_is_better else 1.0
        scores.append([sign * row[split]["mean"] for row in rows])
        ranks.append(list(rankdata([round(score, 12) for score in scores[-1]])))
    if not ranks:
        return {"files_ranked": 0, "rank": {}, "better": {}}
    return {
        "files_ranked": len(ranks),
        "rank": {n: statistics.fmean(row[i] for row in ranks) for i, n in enumerate(names)},
        "better": {
            first: {
                second: sum(row[i] < row[j] for row in scores)
                for j, second in enumerate(names)
                if i != j
            }
            for i, first in enumerate(names)
        },
    }


def print_ranks(ranks: dict[str, Any]) -> None:
    """Print mean ranks, the best first, and how often a model was better than another.

    Args:
        ranks: The result of `summary_of`.
    """
    order = sorted(ranks["rank"], key=ranks["rank"].__getitem__)
    title = f"{ranks['files_ranked']} files: mean rank (1 is best), and how often better than"
    table = Table(title=title, title_justify="left")
    table.add_column("model")
    for column in ("mean rank", *order):
        table.add_column(column, justify="right")
    for name in order:
        wins = [str(ranks["better"][name].get(second, "")) for second in order]
        table.add_row(name, f"{ranks['rank'][name]:.2f}", *wins)
    console().print(table)
