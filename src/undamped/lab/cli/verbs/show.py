"""`undamped show NAME`: a model's equation, promise, options and reference; a task's pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

TRIALS = 4


def show(
    name: Annotated[str, typer.Argument(help="A model, task or other member: unicornn.")],
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...",
            help="For tasks of pictures: options of the trials that are drawn, such as "
            "colours=joint.",
        ),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(help="What it is, where a name stands for several: task, experiment, …"),
    ] = None,
    figure: Annotated[
        Path | None,
        typer.Option(help="For tasks of pictures: draw trials into this .png or .svg file."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a script.")] = False,
) -> None:
    """Show one model, task or other member: what it is, what it promises, what can be set.

    A task of pictures draws some of its trials.

    Example: `undamped show unicornn`
    """
    from undamped._base.describe import describe_entry, registries_with, registry_of
    from undamped.lab.cli.figures import check_figure
    from undamped.lab.cli.screen import print_json

    check_figure(figure)
    page = describe_entry(name, None if kind is None else registry_of(kind))
    task = _task_of_pictures(name, page["kind"], words or [], figure)
    if figure is not None:
        _draw(task, name, figure)
    if as_json:
        print_json(page)
    else:
        _print(name, page)
        if task is not None:
            _print_trials(task)
        for registry in registries_with(name):
            if registry.kind != page["kind"]:
                again = f"undamped show {name} --kind {registry.kind}"
                typer.echo(f"\nThe same name stands for {_a(registry.kind)} too: {again}")


def _task_of_pictures(name: str, kind: str, words: list[str], figure: Path | None) -> Any:
    """Return the task whose trials are drawn, or None if there is nothing to draw."""
    from undamped._base.errors import OptionError, explain
    from undamped._base.options import settings_of
    from undamped._base.registry import tasks
    from undamped.lab.cli.members import read_settings

    shows = kind == "task" and getattr(tasks[name], "input_kind", "") == "pictures"
    if shows:
        settings = read_settings(name, tasks[name], words)
        required = [n for n, option in settings_of(tasks[name]).items() if option.required]
        if all(n in settings for n in required):
            return tasks[name](**settings)
    if words or figure is not None:
        got = "one whose data have to be named" if shows else f"{_a(kind)} of another kind"
        raise OptionError(
            explain(
                name,
                expected="a task of pictures, whose trials can be drawn",
                got=got,
                remedy="For example: undamped show rmts colours=joint --figure trials.png",
            )
        )
    return None


def _print_trials(task: Any) -> None:
    from undamped.lab.cli.screen import console
    from undamped.lab.cli.trials import print_trials
    from undamped.lab.report.trials import some_trials

    screen = console()
    screen.print("[bold]Some trials of training[/]", "")
    print_trials(screen, some_trials(task, TRIALS // 2))
    if task.baseline is not None:
        screen.print(
            f"A guess is right in {task.chance.metric:.1%}; the best trivial rule, "
            f"{task.baseline.rule}, in {task.baseline.metric:.1%} of the test.",
            markup=False,
        )


def _draw(task: Any, name: str, path: Path) -> None:
    from undamped._base.files import write_atomically
    from undamped.lab.report.trials import some_trials, trials_figure

    figure = trials_figure(some_trials(task, TRIALS), f"{name}: trials, and their answers")
    kind = path.suffix.lstrip(".")
    write_atomically(path, lambda file: figure.savefig(file, format=kind, dpi=110))


def _print(name: str, page: dict[str, Any]) -> None:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    from undamped.lab.cli.screen import console

    screen = console()
    origin = "" if page["source"] == "undamped" else f", from {page['source']}"
    screen.print(Text(name, style="bold") + Text(f", {_a(page['kind'])}{origin}"), "")
    screen.print(Text(page["summary"]), "")
    for heading in ("question", "equation", "symbols", "promise"):
        if page.get(heading):
            screen.print(f"[bold]{heading.capitalize()}[/]")
            screen.print(Padding(Text(page[heading]), (0, 0, 1, 4)))
    if page["promises"]:
        screen.print("[bold]Measured by the tests[/]")
        for promise in page["promises"]:
            screen.print(Padding(Text(f"{promise['kind']}: {promise['claim']}"), (0, 0, 0, 4)))
        screen.print("")
    table = Table(title="Options", title_justify="left", box=None, title_style="bold")
    for column in ("name", "default", "accepts", "about"):
        table.add_column(column, overflow="fold")
    for option in page["options"]:
        table.add_row(
            option["name"], str(option["default"]), option["accepts"], Text(option["about"])
        )
    screen.print(table, "")
    for heading in ("example", "reference"):
        if page.get(heading):
            screen.print(f"[bold]{heading.capitalize()}[/]")
            screen.print(Padding(Text(page[heading]), (0, 0, 1, 4)))


def _a(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"
