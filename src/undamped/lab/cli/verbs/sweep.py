"""`undamped sweep`: a search for good hyperparameters, and its results."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

from rich.table import Table

import undamped.lab.tasks
from undamped._base.errors import OptionError
from undamped._base.registry import tasks
from undamped.lab.cli.commands.training import Sweep
from undamped.lab.cli.progress import sweep_progress
from undamped.lab.cli.screen import console, duration, print_json, print_lines
from undamped.lab.cli.sweep_settings import read_sweep, short
from undamped.lab.sweeps import SweepFolder, Trial, importances, trials_of
from undamped.lab.sweeps import sweep as run_sweep
from undamped.lab.sweeps.folder import database_errors
from undamped.lab.sweeps.page import write_page
from undamped.lab.sweeps.plan import grid_size
from undamped.lab.sweeps.sweep import open_study
from undamped.lab.sweeps.trials import best_of, in_order
from undamped.lab.training.recipes import merged, refuse_misfit

TABLE_ROWS = 10


def sweep(options: Sweep) -> None:
    """Run the trials of a sweep, or open the folder of one, and print the best trials."""
    words, storage = options.words or [], options.storage
    if words[:1] == ["show"]:
        allowed = Sweep(options.words, storage=storage, as_json=options.as_json)
        if len(words) != 2 or options != allowed:
            raise OptionError(
                "'undamped sweep show' takes the folder of a sweep and no other options. For "
                "example: undamped sweep show sweeps/digits-unicornn"
            )
        folder = SweepFolder.open(words[1])
        if folder.database is not None and storage is None:
            raise OptionError(
                f"Set --storage to the address of the database {folder.database}: the folder does "
                "not store its password."
            )
        with database_errors(storage):
            study = open_study(folder, storage)
            results = trials_of(folder, study)
    else:
        folder, results = _sweep(options)
        study = open_study(folder, storage)
    _report(SweepFolder.open(folder.path), results, importances(study), options.as_json)


def _sweep(options: Sweep) -> tuple[SweepFolder, list[Trial]]:
    request = read_sweep(
        options.words or [], options.config, options.trials, options.sampler, options.pruner
    )
    plan, storage = request.plan, options.storage
    if plan.sampler == "grid":
        grid_size(plan)  # raises an error for a setting without steps
    user_options = {"task": request.settings.task_options(plan.task)}
    task_options = merged(tasks[plan.task], plan.model, user_options)["task"]
    task = undamped.lab.tasks.build(plan.task, **{"seed": plan.seed, **task_options})
    refuse_misfit(task.task_shape, plan.model)
    path = options.out or Path("sweeps") / f"{plan.task}-{plan.model}"
    folder = SweepFolder.join(path, plan, task.metric, task.higher_is_better, storage)
    with sweep_progress(f"{plan.model} on {plan.task}") as progress:
        try:
            return folder, run_sweep(
                folder, request.trials, url=storage, task=task, progress=progress
            )
        except KeyboardInterrupt:
            sys.stderr.write("Stopped. The same command continues the sweep.\n")
            raise


def _report(
    folder: SweepFolder, trials: list[Trial], importance: dict[str, float], as_json: bool
) -> None:
    page = write_page(folder, trials, importance)
    best = best_of(trials, folder.higher_is_better)
    if as_json:
        print_json(
            {
                "sweep": str(folder.path),
                "plan": asdict(folder.plan),
                "metric": folder.metric,
                "best": None if best is None else asdict(best),
                "importances": importance,
                "trials": [asdict(trial) for trial in trials],
            }
        )
        return
    screen = console()
    ordered = in_order(trials, folder.higher_is_better)
    screen.print(_table(folder, ordered[:TABLE_ROWS]))
    if len(ordered) > TABLE_ROWS:
        screen.print(f"The best {TABLE_ROWS} of {len(ordered)} trials.", style="dim")
    failed = next((trial for trial in trials if trial.error), None)
    if failed is not None:
        print_lines(f"Trial {failed.number} failed: {failed.error}")
    for key, value in importance.items():
        filled = round(24 * value)
        screen.print(f"  {key:<28} {value:4.0%} {'█' * filled}{'·' * (24 - filled)}")
    screen.print(f"Page: {page}", soft_wrap=True)
    if best is not None:
        path = folder.path / "best.toml"
        line = f"Train with the best settings: [bold]undamped train --config {path}[/]"
        screen.print(line, soft_wrap=True)


def _table(folder: SweepFolder, trials: list[Trial]) -> Table:
    plan, metric = folder.plan, folder.metric.replace("_", " ")
    title = f"{plan.model} on {plan.task}: {metric} on the validation split"
    table = Table(title=title, title_justify="left")
    for head in ("trial", metric, *plan.space, "time", "state"):
        table.add_column(head, justify="left" if head == "state" else "right", overflow="fold")
    for trial in trials:
        table.add_row(
            str(trial.number),
            "" if trial.value is None else f"{trial.value:.4g}",
            *(short(trial.settings.get(key, "")) for key in plan.space),
            "" if trial.seconds is None else duration(trial.seconds),
            trial.state,
        )
    return table
