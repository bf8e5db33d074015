"""`undamped diagnose`: how far information travels in a model, on one HTML page."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from undamped.analysis import Result
    from undamped.lab.cli.settings import Settings
    from undamped.lab.report import ModelReport

STEPS = 1000


def diagnose(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN | [TASK] MODEL [KEY=VALUE]...",
            help="A run folder, or a model by name with settings such as task.delay=500 "
            "model.hidden_size=64; the model is then fresh, with random weights.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="The page to write; report.html in the run's folder if not said, diagnosis.html "
            "there with --instrument, and ./diagnosis.html for a model without a run."
        ),
    ] = None,
    steps: Annotated[int, typer.Option(min=10, help="Length of the input without a task.")] = STEPS,
    memory: Annotated[bool, typer.Option(help="Measure peak memory too.")] = True,
    instrument: Annotated[
        list[str] | None,
        typer.Option(help="Measure this alone; again for more. 'undamped list' shows all."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a script.")] = False,
) -> None:
    """Say how far gradients and memories reach, whether promises are kept, and what to change.

    Example: `undamped diagnose unicornn task.delay=500`
    """
    from undamped._base.files import refuse_folder
    from undamped.lab.cli.stages import stages
    from undamped.lab.report import write
    from undamped.lab.report.runs import report_run

    refuse_folder(out)
    measured = known_instruments(instrument)
    folder = Path(words[0])
    if len(words) == 1 and (folder / "run.json").is_file():
        with stages("diagnose") as tick:
            reports = [report_run(folder, memory=memory, measured=measured, progress=tick)]
        # A page of some instruments does not replace the page of all of them.
        target = out or folder / ("diagnosis.html" if measured else "report.html")
    else:
        reports = [_fresh(words, steps, memory, measured)]
        target = out or Path("diagnosis.html")
    show(reports, write(target, reports), as_json, asked=measured is not None)


def known_instruments(names: list[str] | None) -> list[str] | None:
    """Return names of instruments, or None for those that are measured without being asked."""
    from undamped._base.registry import instruments

    for name in names or []:
        instruments[name]  # an unknown name should be said before anything is measured
    return names or None


def show(reports: list[ModelReport], page: Path, as_json: bool, *, asked: bool = False) -> None:
    """Print verdicts and remedies, and where the page lies.

    Args:
        reports: The models.
        page: Where the page lies.
        as_json: Whether to print JSON instead.
        asked: Whether somebody asked for instruments by name, and so wants to know why not.
    """
    from undamped.lab.cli.screen import console, print_json
    from undamped.lab.report.plots import in_order
    from undamped.lab.report.tables import headline

    if as_json:
        print_json({"page": str(page), "models": [report.to_dict() for report in reports]})
        return
    screen = console()
    screen.print(headline(reports), style="bold", markup=False)
    for report in reports:
        if len(reports) > 1:
            screen.print(f"{report.name}: {report.verdict}", markup=False)
        for note in report.notes:
            screen.print(f"  {note.text}", markup=False, soft_wrap=True)
        for name in in_order([report]):
            _print_result(screen, name, report.results[name])
        for name, why in report.left_out.items() if asked else ():
            screen.print(f"  {name.replace('_', ' ')}: not measured, {why}", markup=False)
        for remedy in report.remedies:
            command = f"\n      {remedy.command}" if remedy.command else ""
            screen.print(f"  · {remedy.advice}{command}", markup=False, soft_wrap=True)
    screen.print(f"The page: {page}", soft_wrap=True, markup=False)


def _print_result(screen: Console, name: str, result: Result) -> None:
    """Print what an instrument found: its sentence, and its table where that says more."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    title = name.replace("_", " ")
    if result.sentence:
        screen.print(f"  {title}: {result.sentence}", markup=False, soft_wrap=True)
    else:
        screen.print(f"  {title}:" if result.rows else "", markup=False)
    if len(result.rows) > 1 or (result.rows and not result.sentence):
        table = Table(*result.columns, box=None, header_style="dim")
        for row in result.rows:
            table.add_row(*(Text(cell) for cell in row))
        screen.print(Padding(table, (0, 0, 0, 4)))


def _fresh(words: list[str], steps: int, memory: bool, measured: list[str] | None) -> ModelReport:
    """Measure a model with random weights, on the task that was named or on noise."""
    import torch

    from undamped._base.registry import models
    from undamped.lab.cli.settings import read_settings
    from undamped.lab.cli.stages import stages
    from undamped.models.point_model import refuse_condition

    settings = read_settings(words)
    task, model = _names(settings)
    models[model]  # an unknown name should be the first thing said
    torch.manual_seed(settings.seed)
    given = settings.model_options(model)
    refuse_condition(model, given)
    with stages("diagnose") as tick:
        common: dict[str, Any] = {"memory": memory, "measured": measured, "progress": tick}
        if task is None:
            report = _on_noise(model, given, words, steps, settings.seed, common)
        else:
            report = _on_task(task, model, given, words, settings, common)
    return replace(report, command=shlex.join(["undamped", *sys.argv[1:]]))


def _on_noise(
    model: str,
    given: dict[str, Any],
    words: list[str],
    steps: int,
    seed: int,
    common: dict[str, Any],
) -> ModelReport:
    import torch

    from undamped._base.registry import models
    from undamped.lab.report import diagnose as measure
    from undamped.lab.report.remedies import Commands
    from undamped.models.task_model import TaskModel

    inputs = steps
    options = {"hidden_size": 64, "input_size": 1, **given}
    if issubclass(models[model], TaskModel):
        return _on_example(model, given, words, steps, seed, common)
    if not hasattr(models[model], "cell_class"):  # it works in depth, not in time
        options = {**_small(model, given), **given}
        inputs = torch.randn(64 if options["input_size"] < 100 else 16, options["input_size"])
    network = models.build(model, **options)
    said = _given(words) if steps == STEPS else [*_given(words), f"--steps {steps}"]
    report = measure(network, inputs, seed=seed, name=model, **common)
    return Commands("undamped diagnose", model, said).add_to(report)


def _on_example(
    model: str,
    given: dict[str, Any],
    words: list[str],
    steps: int,
    seed: int,
    common: dict[str, Any],
) -> ModelReport:
    """Measure a whole model on noise in the shape of a small task that it can answer."""
    import torch

    from undamped._base.registry import models
    from undamped.lab.report import diagnose as measure
    from undamped.lab.report.remedies import Commands
    from undamped.models.for_task import model_for

    shape = models[model].example_shape()
    first = (shape.length or steps, 8) if shape.sequential else (64,)
    pictures = shape.picture_shape
    inputs = torch.rand(*first, *pictures) if pictures else torch.randn(*first, shape.input_size)
    network = model_for(shape, model, given)
    report = measure(network, inputs, seed=seed, name=model, **common)
    return Commands("undamped diagnose", model, _given(words)).add_to(report)


def _on_task(
    task: str,
    model: str,
    given: dict[str, Any],
    words: list[str],
    settings: Settings,
    common: dict[str, Any],
) -> ModelReport:
    from undamped._base.registry import tasks
    from undamped.lab.cli.setting_names import OWN_DATA
    from undamped.lab.report import diagnose as measure
    from undamped.lab.report.remedies import Commands
    from undamped.lab.training.recipes import merged
    from undamped.models.for_task import model_for

    options = merged(tasks[task], model, {"model": given})["model"]
    data = tasks.build(task, **settings.task_options(task))
    built = model_for(data.task_shape, model, options)
    file = settings.parts.get("task", {}).get("file") if task in OWN_DATA else None
    said = _given([*([f"task.file={file}"] if file else []), *words])
    name = f"{model} on {task}"
    report = measure(built, task=data, name=name, **common)
    return Commands(f"undamped diagnose {task}", model, said).add_to(report)


def _given(words: list[str]) -> list[str]:
    """Return the settings among the words, each once, for a shell."""
    return list(dict.fromkeys(shlex.quote(word) for word in words if "=" in word))


def _small(model: str, given: dict[str, Any]) -> dict[str, int]:
    """Return sizes for a model that works in depth, such that it is measured within a minute."""
    from undamped._base.options import options_of
    from undamped._base.registry import models
    from undamped.models.continuous.images import ImageModel

    sizes = {"input_size": 2, "output_size": 2}
    if issubclass(models[model], ImageModel):
        pixels = 14 * 14
        sizes = {"input_size": given.get("colours", 1) * pixels, "output_size": 2, "hidden_size": 8}
    return {name: size for name, size in sizes.items() if name in options_of(models[model])}


def _names(settings: Settings) -> tuple[str | None, str]:
    """Tell task and model apart; a task may be left out, or follow from its settings."""
    from undamped._base.errors import OptionError
    from undamped._base.registry import models, tasks

    chosen = [name for name in settings.names if name in tasks and name not in models]
    others = [name for name in settings.names if name not in chosen]
    if len(others) > 1 or len(chosen) > 1 or not settings.names:
        raise OptionError(
            "diagnose: expected a run folder, or a model and perhaps a task, got "
            f"{' '.join(settings.names) or 'only settings'}. For several runs use 'undamped "
            "report'."
        )
    model = others[0] if others else "unicornn"
    return (chosen[0] if chosen else _task_of(settings.parts.get("task", {}))), model


def _task_of(asked: dict[str, Any]) -> str | None:
    """Return a task that has all the options that were set, or none if none were."""
    from undamped._base.errors import OptionError
    from undamped._base.options import options_of
    from undamped._base.registry import tasks

    if not asked:
        return None
    fitting = [name for name in tasks if all(key in options_of(tasks[name]) for key in asked)]
    if not fitting:
        raise OptionError(
            f"task.{next(iter(asked))}: expected an option of some task, got one that none has. "
            "Name the task, for example 'undamped diagnose copy unicornn task.delay=500'."
        )
    return next((name for name in ("copy", "digits", "adding") if name in fitting), fitting[0])
