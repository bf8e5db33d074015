"""`undamped train` and `undamped resume`: train one model, and print its scores."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import typer
from rich.panel import Panel
from rich.table import Table

from undamped._base.errors import OptionError
from undamped._base.options import options_of
from undamped._base.registry import models, tasks
from undamped.lab.baselines.closed_form import ClosedFormModel
from undamped.lab.cli.commands.training import Page, Resume, Train
from undamped.lab.cli.next_steps import next_steps
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
    print_warnings,
    scores_line,
)
from undamped.lab.cli.settings import FILE_TASKS, read_settings
from undamped.lab.tasks.task import Task
from undamped.lab.training import Run, fit
from undamped.lab.training import resume as continue_run
from undamped.lab.training.devices import is_launched, is_secondary_rank
from undamped.lab.training.fit import AUTO
from undamped.lab.training.options import BUDGETS
from undamped.lab.training.origins import with_words
from undamped.lab.training.portfolio.attempt import check_auto_options, in_short
from undamped.lab.training.portfolio.fit_best import streaming_candidates
from undamped.lab.training.zoo_runs import copy_run, find

DEFAULT_TASK, DEFAULT_MODEL = "flags", "latch"
DEFAULT_BASELINES: tuple[str, ...] = ("lstm", "gru", "window", "bank")
DEFAULT_OPTIONS: dict[str, dict[str, Any]] = {
    "task": {"length": 96, "test_lengths": (256, 2048, 16384), "sequences": 200},
    "train": {"steps": 1000},
}
"""The settings of `undamped train` without a task, which takes about a minute."""


def train(options: Train) -> None:
    """Train a model and, if there is one, a baseline; print scores and write a page."""
    if options.interrupted is not None:
        if options != Train(interrupted=options.interrupted, as_json=options.as_json):
            raise OptionError(
                "--resume cannot be combined with settings or other options: a run continues in "
                "its folder, with its settings."
            )
        resume(Resume(options.interrupted, options.as_json))
        return
    if options.no_page and options.page == Page.full:
        raise OptionError("--page full and --no-page contradict each other. Give one of them.")
    if options.from_zoo:
        run, baselines = _copy_from_zoo(options), []
    else:
        with _live_page(options.watch) as started:
            run, baselines = _train(options, started)
    if is_secondary_rank():
        return
    _report(run, baselines, options.as_json)
    if not options.no_page and options.page != Page.none:
        seconds = math.inf if options.page == Page.full else None
        _add_page(run, baselines[:1], seconds, options.as_json)


def resume(options: Resume) -> None:
    """Continue an interrupted run and print its scores."""
    run = continue_run(options.run)
    if not is_secondary_rank():
        _report(run, [], options.as_json)


@contextmanager
def _live_page(requested: bool) -> Iterator[Callable[[Run], None]]:
    """Yield a function for `fit` to call when a run starts, which announces the run.

    Args:
        requested: Whether to serve a live page of the run, until the context ends.
    """
    servers: list[Any] = []

    def start(run: Run) -> None:
        # The first batch takes a second. With --json, a script reads standard output.
        sys.stderr.write(f"Training started: {run.path}\n")
        if requested:
            from undamped.lab.report.watch import Watch

            servers.append(Watch(run.path))
            sys.stderr.write(f"Live page: {servers[-1].url}\n")

    try:
        yield start
    finally:
        for server in servers:
            server.stop()


def _add_page(run: Run, baselines: list[Run], seconds: float | None, as_json: bool) -> None:
    """Write the page, which takes longer than the scores and is written after them.

    Args:
        run: The run.
        baselines: Runs to compare with.
        seconds: Time limit of the measurements; by default 15 or a third of the training.
        as_json: Whether standard output is for a script.
    """
    from undamped.lab.cli.verbs.report import write_page

    try:
        path = write_page([run, *baselines], seconds)
    except KeyboardInterrupt:
        typer.echo(f"No page. Write it later: undamped report {run.path}", err=True)
        return
    if path is not None and not as_json:
        print_lines(f"Page: {path}")


def _train(request: Train, started: Callable[[Run], None]) -> tuple[Run, list[Run]]:
    settings = read_settings(request.words or [], request.config)
    baselines = [request.baseline] if request.baseline is not None else []
    if len(settings.names) > 2:
        raise OptionError(
            f"'undamped train' takes a task and a model, got {len(settings.names)} names. Settings "
            "have the form key=value; 'undamped compare' trains several models."
        )
    first = {} if settings.names else DEFAULT_OPTIONS
    if first:
        # At these sizes a second thread does not help, and on a busy machine it hinders.
        torch.set_num_threads(1)
    if first and not baselines:
        baselines = [*DEFAULT_BASELINES]
        sys.stderr.write(
            f"{DEFAULT_MODEL} and {len(baselines)} other models on the task {DEFAULT_TASK}: about "
            "a minute on two idle cores.\n"
        )
    recordings = settings.names[:1] == [FILE_TASKS[0]]
    defaults = (DEFAULT_TASK, AUTO if recordings else DEFAULT_MODEL)
    task, model = [*settings.names, *defaults[len(settings.names) :]]
    for registry, name in ((tasks, task), *((models, name) for name in (model, *baselines))):
        if name != AUTO:
            registry[name]  # an unknown name is reported before other errors
    common: dict[str, Any] = {
        "task_options": {**first.get("task", {}), **settings.task_options(task)},
        "seed": settings.seed,
        "out": request.out or Path("runs"),
        "command": shlex.join(["undamped", *sys.argv[1:]]),
        "started": started,
    }
    options, train_options = settings.model_options(model), settings.train_options()
    options |= _narrow_candidates(request, model, options)
    without_budget = {key: value for key, value in train_options.items() if key not in BUDGETS}
    if train_options == without_budget:
        train_options = {**first.get("train", {}), **train_options}
    run = fit(model, task, model_options=options, train=train_options, **common)
    return run, _train_baselines(run, baselines, options, without_budget, common)


def _narrow_candidates(request: Train, model: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the option `candidates` of auto that --streaming and --exportable require."""
    if not request.streaming and not request.exportable:
        return {}
    if model != AUTO:
        raise OptionError(
            "--streaming and --exportable choose among several models. Remove them, or replace "
            f"the model '{model}' by auto."
        )
    names = check_auto_options(options, text=True).get("candidates")
    return {"candidates": streaming_candidates(names, exportable=request.exportable)}


def _copy_from_zoo(request: Train) -> Run:
    """Copy the entry of the zoo that has the task, the model and all settings of a command."""
    if request.watch or request.baseline is not None:
        raise OptionError("--from-zoo trains nothing. Remove --watch and --baseline.")
    settings = read_settings(request.words or [], request.config)
    if len(settings.names) != 2:
        raise OptionError("--from-zoo needs a task and a model; 'undamped zoo' lists the entries.")
    task, model = settings.names
    requested = {
        "seed": settings.seed,
        **{f"task.{key}": value for key, value in settings.task_options(task).items()},
        **{f"model.{key}": value for key, value in settings.model_options(model).items()},
        **{f"train.{key}": value for key, value in settings.train_options().items()},
    }
    return copy_run(find(task, model, requested), request.out or Path("runs"))


def _train_baselines(
    run: Run,
    baselines: list[str],
    options: dict[str, Any],
    train: dict[str, Any],
    common: dict[str, Any],
) -> list[Run]:
    """Train other models for the CPU time of a run, with the options that they have as well."""
    runs: list[Run] = []
    for baseline in baselines:
        if (runs or [run])[-1].settings["status"] != "finished":
            break
        budget: dict[str, Any] = {"cpu_seconds": run.settings["result"]["cpu_seconds"]}
        if issubclass(models[baseline], ClosedFormModel):
            budget = {}  # its time follows from the number of sequences
        runs.append(
            fit(
                baseline,
                run.task(),
                # Sizes and the like, but not another model's Δt.
                model_options={
                    k: v for k, v in options.items() if k in options_of(models[baseline])
                },
                train={**train, **budget},
                **common,
            )
        )
    return runs


def _report(run: Run, baselines: list[Run], as_json: bool) -> None:
    """Print the scores of a run next to those of baselines, and commands to try next.

    Raises:
        typer.Exit: With code 130 if the training was interrupted.
    """
    interrupted = run.settings["status"] == "interrupted"
    if as_json:
        extra = [{"run": str(baseline.path), **baseline.settings} for baseline in baselines]
        print_json(
            {"run": str(run.path), **run.settings, **({"baselines": extra} if extra else {})}
        )
    elif interrupted:
        steps = run.settings.get("steps", 0)
        console().print(
            f"Stopped after step {steps}. Continue: [bold]undamped resume {run.path}[/]"
        )
    else:
        _print(run, baselines)
    if interrupted and not is_launched():
        raise typer.Exit(130)  # the code of programs that Ctrl-C ends; torchrun would see a crash


def _print(run: Run, baselines: list[Run]) -> None:
    settings, task = run.settings, run.task()
    result, splits = settings["result"], task.test_tasks()
    screen = console()
    direction = "higher is better" if task.higher_is_better else "lower is better"
    screen.print("")
    screen.print(task.describe(), style="bold", markup=False)
    same = [name for name, test in splits.items() if test.metric == task.metric]
    several = bool(baselines) and len(same) > 1
    split = "test split" if splits else "validation split"
    if several:
        split = f"test of {same[-1]}"
    screen.print(f"{metric_name(task)} on the {split}, {direction}", style="dim")
    screen.print("")
    finished = [baseline for baseline in baselines if baseline.result is not None]
    screen.print(bars(_scores(settings, task, finished, same[-1:] if several else same), task))
    if several:
        screen.print("")
        screen.print(_split_table([run, *finished], same, task))
    for name, test in splits.items():
        if test.metric != task.metric:
            screen.print(scores_line(name, result[name]))
    if "tried" in settings:
        screen.print("")
        if settings["tried"]:
            screen.print(portfolio_table(settings["tried"], task))
        print_lines(f"  {settings['why']}")
    print_lines(*(f"  {sentence}" for sentence in settings.get("found", ())))
    print_warnings(settings.get("warnings", ()))
    screen.print("")
    screen.print(
        f"Trained in {duration(result['seconds'])}, peak memory "
        f"{megabytes(result['peak_memory_bytes'])}, seed {settings['seed']}; best validation at "
        f"step {result['best_step']:,}."
    )
    screen.print(f"Run: {run.path}", soft_wrap=True)
    commands = "\n".join(step + with_words(settings) for step in next_steps(run))
    screen.print(Panel(commands, title="What to try next", title_align="left", expand=False))


def _split_table(runs: list[Run], splits: list[str], task: Task) -> Table:
    """Return the score of every model on every test split."""
    table = Table(title=f"{metric_name(task)} on every test split", title_justify="left")
    table.add_column("model", no_wrap=True)
    for split in splits:
        table.add_column(split, justify="right")
    for run in runs:
        scores = (number(run.settings["result"][split][task.metric], task) for split in splits)
        table.add_row(run.settings["model"]["name"], *scores)
    return table


def _scores(
    settings: dict[str, Any], task: Task, baselines: list[Run], same: list[str]
) -> list[tuple[str, float, str]]:
    """Return the rows of `bars`: the model on splits with the task's metric, then baselines."""
    model, result = settings["model"], settings["result"]
    splits = same or ["valid"]
    single = len(splits) == 1
    rows = [
        (
            model["name"] if single else f"{model['name']}, {split}",
            result[split][task.metric],
            _effort(settings) if index == 0 else "",
        )
        for index, split in enumerate(splits)
    ]
    rows += baseline_bars(task)
    for baseline in baselines:
        score = baseline.settings["result"][splits[0]][task.metric]
        rows.append((baseline.settings["model"]["name"], score, _effort(baseline.settings)))
    return rows


def _effort(settings: dict[str, Any]) -> str:
    count, steps = settings["model"]["parameters"], settings["result"]["steps"]
    seconds = settings["result"]["cpu_seconds"]
    return f"{count:,} parameters, {steps:,} steps, {seconds:.0f} CPU s"


def portfolio_table(attempts: list[dict[str, Any]], task: Task) -> Table:
    """Return a row for every model that a portfolio tried; a caption lists the others.

    Args:
        attempts: The entry `tried` of run.json.
        task: The task.
    """
    table = Table(title="Models that were tried, on validation data", title_justify="left")
    table.add_column("model", no_wrap=True)
    # Means over different numbers of splits are not comparable; scores on the first split are.
    uneven = len({attempt["draws"] for attempt in attempts if "why_not" not in attempt}) > 1
    first = ["first split"] if uneven else []
    for column in (metric_name(task), "splits", *first, "parameters", "steps", "time"):
        table.add_column(column, justify="right", no_wrap=True)
    omitted: dict[str, list[str]] = {}
    for attempt in attempts:
        if "why_not" in attempt:
            omitted.setdefault(in_short(attempt["why_not"]), []).append(attempt["model"])
            continue
        table.add_row(
            attempt["model"],
            number(attempt["score"], task),
            str(attempt["draws"]),
            *([number(attempt["valid"], task)] if uneven else []),
            f"{attempt['parameters']:,}",
            f"{attempt['steps']:,}" if attempt["steps"] else "–",
            duration(attempt["seconds"]),
        )
    lines = ["Two models are compared on the validation splits that both have."] if uneven else []
    lines += [f"Not tried: {', '.join(names)}: {reason}" for reason, names in omitted.items()]
    if lines:
        table.caption = "\n".join(lines)
        table.caption_justify = "left"
    return table
