"""`undamped sweep`: many trainings that look for good settings, and what became of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from undamped.lab.sweeps import SweepFolder, Trial

SHOWN = 10
"""Trials in the table of the terminal."""


def sweep(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TASK MODEL [KEY=VALUE]... | show FOLDER",
            help="A task or a file of recordings, a model, and settings; what varies is a range "
            "(model.dt=0.01..0.5:log, model.hidden_size=16..128:16) or choices "
            "(train.optimizer=adam,rmsprop). Or show and the folder of a sweep.",
        ),
    ] = None,
    trials: Annotated[
        int | None, typer.Option(min=1, help="How many trials over all processes; 20 if not said.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The sweep's folder; sweeps/TASK-MODEL if not said.")
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(
            help="A database that several machines share, such as postgresql://me@host/sweeps; a "
            "journal in the folder if not said."
        ),
    ] = None,
    sampler: Annotated[
        str | None, typer.Option(help="How settings are chosen: tpe, random, qmc, gp or grid.")
    ] = None,
    pruner: Annotated[
        str | None, typer.Option(help="Which trainings end early: median, hyperband or none.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file with the same keys, what varies below [sweep].")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a script.")] = False,
) -> None:
    """Look for good settings: many trainings, shared by all who type the same command.

    Example: `undamped sweep digits unicornn model.dt=0.01..0.5:log
    train.learning_rate=1e-4..1e-1:log train.steps=200 --trials 50`
    """
    from undamped.lab.sweeps import SweepFolder
    from undamped.lab.sweeps.sweep import open_study

    words = words or []
    if words[:1] == ["show"]:
        folder = _named_folder(words[1:], trials, out, sampler, pruner, config)
        if folder.database is not None and storage is None:
            raise _needs_storage(folder)
        from undamped.lab.sweeps import trials_of
        from undamped.lab.sweeps.storage import database_errors

        with database_errors(storage):
            study = open_study(folder, storage)
            found = trials_of(folder, study)
    else:
        folder, found = _sweep(words, trials, out, storage, sampler, pruner, config)
        study = open_study(folder, storage)
    _report(SweepFolder.open(folder.path), found, study, as_json)


def _sweep(
    words: list[str],
    trials: int | None,
    out: Path | None,
    storage: str | None,
    sampler: str | None,
    pruner: str | None,
    config: Path | None,
) -> tuple[SweepFolder, list[Trial]]:
    import undamped.lab.tasks
    from undamped._base.registry import tasks
    from undamped.lab.cli.sweep_progress import sweep_progress
    from undamped.lab.cli.sweep_settings import read_sweep
    from undamped.lab.sweeps import SweepFolder, sweep
    from undamped.lab.sweeps.plan import grid_size
    from undamped.lab.training.recipes import merged
    from undamped.models.for_task import refuse_misfit

    asked = read_sweep(words, config, trials, sampler, pruner)
    plan = asked.plan
    if plan.sampler == "grid":
        grid_size(plan)  # says which setting has no steps
    said = {"task": asked.settings.task_options(plan.task)}
    options = merged(tasks[plan.task], plan.model, said)["task"]
    task = undamped.lab.tasks.build(plan.task, **{"seed": plan.seed, **options})
    refuse_misfit(task.task_shape, plan.model)
    place = out or Path("sweeps") / f"{plan.task}-{plan.model}"
    folder = SweepFolder.join(place, plan, task.metric, task.higher_is_better, storage)
    with sweep_progress(f"{plan.model} on {plan.task}") as tick:
        try:
            return folder, sweep(folder, asked.trials, url=storage, task=task, progress=tick)
        except KeyboardInterrupt:
            sys.stderr.write("Stopped. The same command goes on.\n")
            raise


def _named_folder(words: list[str], *others: Any) -> SweepFolder:
    from undamped._base.errors import OptionError
    from undamped.lab.sweeps import SweepFolder

    if len(words) != 1 or any(other is not None for other in others):
        raise OptionError(
            "sweep show: expected the folder of a sweep and nothing else, got "
            f"{' '.join(words) or 'no folder'}{' and options' if len(words) == 1 else ''}. For "
            "example: undamped sweep show sweeps/digits-unicornn."
        )
    return SweepFolder.open(words[0])


def _needs_storage(folder: SweepFolder) -> Exception:
    from undamped._base.errors import OptionError

    return OptionError(
        f"--storage: expected the database of this sweep, {folder.database}, got none. The folder "
        "does not keep its password; give the address again."
    )


def _report(folder: SweepFolder, trials: list[Trial], study: Any, as_json: bool) -> None:
    from undamped.lab.cli.screen import print_json
    from undamped.lab.sweeps import importances
    from undamped.lab.sweeps.page import write_page
    from undamped.lab.sweeps.trials import best_of

    shares = importances(study)
    page = write_page(folder, trials, shares)
    best = best_of(trials, folder.higher_is_better)
    if as_json:
        print_json(
            {
                "sweep": str(folder.path),
                "plan": folder.plan.to_dict(),
                "metric": folder.metric,
                "best": None if best is None else best.to_dict(),
                "importances": shares,
                "trials": [one.to_dict() for one in trials],
            }
        )
        return
    _print(folder, trials, shares, page, best)


def _print(
    folder: SweepFolder,
    trials: list[Trial],
    shares: dict[str, float],
    page: Path,
    best: Trial | None,
) -> None:
    from rich.table import Table

    from undamped.lab.cli.screen import console, duration
    from undamped.lab.sweeps.trials import in_order

    screen, plan = console(), folder.plan
    metric = folder.metric.replace("_", " ")
    table = Table(
        title=f"{plan.model} on {plan.task}: {metric} on the validation part", title_justify="left"
    )
    for head in ("trial", metric, *plan.space, "time", "state"):
        table.add_column(head, justify="left" if head == "state" else "right")
    ordered = in_order(trials, folder.higher_is_better)
    for one in ordered[:SHOWN]:
        table.add_row(
            str(one.number),
            "" if one.value is None else f"{one.value:.4g}",
            *(_short(one.settings.get(key, "")) for key in plan.space),
            "" if one.seconds is None else duration(one.seconds),
            one.state,
        )
    screen.print(table)
    if len(ordered) > SHOWN:
        screen.print(f"The best {SHOWN} of {len(ordered)} trials.", style="dim")
    failed = next((one for one in trials if one.error), None)
    if failed is not None:
        screen.print(f"Trial {failed.number} failed: {failed.error}", markup=False, soft_wrap=True)
    for key, share in shares.items():
        filled = round(24 * share)
        screen.print(f"  {key:<28} {share:4.0%} {'█' * filled}{'·' * (24 - filled)}")
    screen.print(f"The page: {page}", soft_wrap=True)
    if best is not None:
        path = folder.path / "best.toml"
        screen.print(f"Train with the best: [bold]undamped train --config {path}[/]")


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
