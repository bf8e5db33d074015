"""`undamped diagnose`: how far information travels in a model, on one HTML page."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from undamped._base.errors import OptionError
from undamped._base.options import options_of
from undamped._base.registry import instruments, models, tasks
from undamped.analysis import Result
from undamped.lab.cli.commands.runs import Diagnose
from undamped.lab.cli.progress import stages
from undamped.lab.cli.screen import console, print_json, print_lines
from undamped.lab.cli.settings import FILE_TASKS, Settings, read_settings
from undamped.lab.files import refuse_folder
from undamped.lab.report import ModelReport, write
from undamped.lab.report import diagnose as measure
from undamped.lab.report.diagnose import STEPS
from undamped.lab.report.model_report import in_order
from undamped.lab.report.page import headline, is_fuller
from undamped.lab.report.remedies import Commands
from undamped.lab.report.runs import report_run
from undamped.lab.training.recipes import merged
from undamped.lab.training.run import Run
from undamped.models.continuous.images import ImageModel
from undamped.models.for_task import model_for
from undamped.models.point_model import refuse_condition
from undamped.models.task_model import TaskModel


def diagnose(options: Diagnose) -> None:
    """Measure the model of a run, or a model with random weights, and write a page."""
    words, out = options.words, options.out
    refuse_folder(out)
    measured = check_instruments(options.instrument)
    folder = Run.folder_of(words[0])
    with stages("Measuring") as stage:
        common: dict[str, Any] = {"memory": options.memory, "measured": measured, "progress": stage}
        if len(words) == 1 and (folder / "run.json").is_file():
            reports = [report_run(folder, **common)]
            target = out or page_target(Run(folder).output_folder, reports, measured)
        else:
            reports = [_untrained(words, options.steps, common)]
            target = out or Path("diagnosis.html")
    print_reports(reports, write(target, reports), options.as_json, reasons=measured is not None)


def page_target(run: Path, reports: list[ModelReport], measured: list[str] | None) -> Path:
    """Return the file in a run folder for a page, which does not replace one that has more.

    Args:
        run: The run folder.
        reports: What is on the new page.
        measured: The instruments that were requested.
    """
    standard = run / "report.html"
    return run / "diagnosis.html" if measured or is_fuller(standard, reports) else standard


def check_instruments(names: list[str] | None) -> list[str] | None:
    """Return the names of instruments, or None for the default ones; unknown names are refused."""
    for name in names or []:
        instruments[name]
    return names or None


def print_reports(
    reports: list[ModelReport], page: Path, as_json: bool, *, reasons: bool = False
) -> None:
    """Print verdicts, results and remedies.

    Args:
        reports: The models.
        page: The page with all results.
        as_json: Whether to print JSON instead.
        reasons: Whether to print why an instrument does not apply.
    """
    if as_json:
        print_json({"page": str(page), "models": [report.to_dict() for report in reports]})
        return
    console().print(headline(reports), style="bold", markup=False)
    for report in reports:
        if len(reports) > 1:
            console().print(f"{report.name}: {report.verdict}", markup=False)
        print_lines(*(f"  {note.text}" for note in report.notes))
        for name in in_order([report]):
            _print_result(name, report.results[name])
        for name, reason in report.left_out.items() if reasons else ():
            console().print(f"  {name.replace('_', ' ')}: not measured, {reason}", markup=False)
        for remedy in report.remedies:
            command = f"\n      {remedy.command}" if remedy.command else ""
            print_lines(f"  · {remedy.advice}{command}")
    print_lines(f"Page: {page}")


def _print_result(name: str, result: Result) -> None:
    """Print the sentence of a result, and its table if that has more information."""
    title = name.replace("_", " ")
    if result.sentence:
        print_lines(f"  {title}: {result.sentence}")
    else:
        print_lines(f"  {title}:" if result.rows else "")
    if len(result.rows) > 1 or (result.rows and not result.sentence):
        table = Table(*result.columns, box=None, header_style="dim")
        for row in result.rows:
            table.add_row(*(Text(cell) for cell in row))
        console().print(Padding(table, (0, 0, 0, 4)))


class _Subject(NamedTuple):
    """What `measure` takes, and the words of the command before and after the model."""

    model: Any
    inputs: Any = None
    task: Any = None
    name: str = ""
    prefix: str = "undamped diagnose"
    words: tuple[str, ...] = ()


def _untrained(words: list[str], steps: int, common: dict[str, Any]) -> ModelReport:
    """Measure a model with random weights on a task, or on noise if there is none."""
    settings = read_settings(words)
    task, model = _names(settings)
    models[model]  # an unknown name is reported before other errors
    torch.manual_seed(settings.seed)
    options = settings.model_options(model)
    refuse_condition(model, options)
    if task is not None:
        subject = _on_task(task, model, options, settings)
    elif issubclass(models[model], TaskModel):
        subject = _on_example(model, options, steps)
    else:
        subject = _on_noise(model, options, steps)
    # Data of a task have a seed of their own.
    seed = settings.seed if subject.task is None else 0
    report = measure(
        subject.model,
        subject.inputs,
        task=subject.task,
        name=subject.name or model,
        seed=seed,
        **common,
    )
    # Files of the command line have become settings of the task; each setting is named once.
    changed = [shlex.quote(word) for word in (*subject.words, *words) if "=" in word]
    extra = [] if task or steps == STEPS else [f"--steps {steps}"]
    commands = Commands(subject.prefix, model, [*dict.fromkeys(changed), *extra])
    return replace(commands.add_to(report), command=shlex.join(["undamped", *sys.argv[1:]]))


def _on_noise(model: str, options: dict[str, Any], steps: int) -> _Subject:
    """Build a network of this library; a model that works in depth, not in time, is small."""
    if hasattr(models[model], "cell_class"):
        return _Subject(
            models.build(model, **{"hidden_size": 64, "input_size": 1, **options}), steps
        )
    sizes = {"input_size": 2, "output_size": 2}
    if issubclass(models[model], ImageModel):
        pixels = 14 * 14
        size = options.get("colours", 1) * pixels
        sizes = {"input_size": size, "output_size": 2, "hidden_size": 8}
    accepted = {name: size for name, size in sizes.items() if name in options_of(models[model])}
    options = {**accepted, **options}
    inputs = torch.randn(64 if options["input_size"] < 100 else 16, options["input_size"])
    return _Subject(models.build(model, **options), inputs)


def _on_example(model: str, options: dict[str, Any], steps: int) -> _Subject:
    """Build a task model, and noise in the shape of a small task that it can solve."""
    shape = models[model].example_shape()
    first = (shape.length or steps, 8) if shape.sequential else (64,)
    image = shape.picture_shape
    inputs = torch.rand(*first, *image) if image else torch.randn(*first, shape.input_size)
    return _Subject(model_for(shape, model, options), inputs)


def _on_task(task: str, model: str, options: dict[str, Any], settings: Settings) -> _Subject:
    options = merged(tasks[task], model, {"model": options})["model"]
    data = tasks.build(task, **settings.task_options(task))
    file = settings.sections.get("task", {}).get("file") if task in FILE_TASKS else None
    return _Subject(
        model_for(data.task_shape, model, options),
        task=data,
        name=f"{model} on {task}",
        prefix=f"undamped diagnose {task}",
        words=(f"task.file={file}",) if file else (),
    )


def _names(settings: Settings) -> tuple[str | None, str]:
    """Return task and model; a task may be omitted, or follow from its settings."""
    task_names = [name for name in settings.names if name in tasks and name not in models]
    others = [name for name in settings.names if name not in task_names]
    if len(others) > 1 or len(task_names) > 1 or not settings.names:
        raise OptionError(
            "'undamped diagnose' takes a run folder, or a model and optionally a task, got "
            f"{' '.join(settings.names) or 'only settings'}. 'undamped report' takes several runs."
        )
    model = others[0] if others else "unicornn"
    return (task_names[0] if task_names else _task_with(settings.sections.get("task", {}))), model


def _task_with(options: dict[str, Any]) -> str | None:
    """Return a task that has all of some options, or None if there are no options."""
    if not options:
        return None
    matches = [name for name in tasks if all(key in options_of(tasks[name]) for key in options)]
    if not matches:
        raise OptionError(
            f"No task has the option {next(iter(options))}. Name the task, for example 'undamped "
            "diagnose copy unicornn task.delay=500'."
        )
    return next((name for name in ("copy", "digits", "adding") if name in matches), matches[0])
