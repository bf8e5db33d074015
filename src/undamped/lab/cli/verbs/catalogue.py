"""`undamped list` and `undamped show`: the entries of the registries."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import typer
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from undamped._base.errors import OptionError
from undamped._base.options import unknown_name
from undamped._base.registry import LIBRARY, Registry, Source
from undamped.lab.catalogue import CATALOGUE, REGISTRIES, describe_entry, summary
from undamped.lab.cli.commands.catalogue import List, Show
from undamped.lab.cli.figures import check_figure, save_figure
from undamped.lab.cli.screen import as_typed, console, print_json

TRIALS = 4


def registries_with(name: str) -> list[Registry[Any]]:
    """Return the registries that have a name; some names are a task's and an experiment's."""
    matches = [registry for registry in REGISTRIES.values() if name in registry]
    if not matches:
        kinds = [registry.kind for registry in REGISTRIES.values()]
        names = sorted({name for registry in REGISTRIES.values() for name in registry})
        raise unknown_name(f"{', '.join(kinds[:-1])} or {kinds[-1]}", name, names)
    return matches


def registry_of(kind: str) -> Registry[Any]:
    """Return the registry of a kind of entry: "task", "experiment", …"""
    by_kind = {registry.kind: registry for registry in REGISTRIES.values()}
    if kind not in by_kind:
        raise unknown_name("kind", kind, list(by_kind))
    return by_kind[kind]


def third_party_entries(kind: str) -> dict[str, Source]:
    """Return the third-party entries of a kind ("models", …) and the source of each."""
    registry = REGISTRIES[kind]
    sources = {name: registry.source_of(name) for name in registry}
    return {name: source for name, source in sources.items() if source != LIBRARY}


def page_of(name: str, registry: Registry[Any]) -> dict[str, Any]:
    """Return the description of an entry from the catalogue; third-party entries are imported.

    Args:
        name: The name of the entry.
        registry: Its registry.
    """
    page = _catalogue().get((registry.kind, name))
    return page or describe_entry(name, registry)


@cache
def _catalogue() -> dict[tuple[str, str], dict[str, Any]]:
    with CATALOGUE.open(encoding="utf-8") as lines:
        return {(page["kind"], page["name"]): page for page in map(json.loads, lines)}


def list_entries(options: List) -> None:
    """Print one line for every entry."""
    lines = {
        kind: {name: summary(page_of(name, registry)) for name in registry}
        for kind, registry in REGISTRIES.items()
        if len(registry)
    }
    sources = {
        kind: {name: str(source) for name, source in third_party_entries(kind).items()}
        for kind in lines
    }
    if options.as_json:
        third_party = {kind: names for kind, names in sources.items() if names}
        print_json({**lines, **({"from outside": third_party} if third_party else {})})
        return
    screen = console()
    for kind, entries in lines.items():
        table = Table(title=kind, title_justify="left", box=None, show_header=False)
        for name, line in entries.items():
            source = sources[kind].get(name)
            table.add_row(f"[bold]{name}[/]", Text(f"{line} [{source}]" if source else line))
        screen.print(table, "")
    screen.print("More about an entry: [bold]undamped show NAME[/]")


def show(options: Show) -> None:
    """Print the description of an entry, and trials of a task of images."""
    name, figure = options.name, options.figure
    check_figure(figure)
    kind = options.kind
    page = page_of(name, registries_with(name)[0] if kind is None else registry_of(kind))
    task: Any = None
    if options.words or figure is not None or not options.as_json:
        task = _task_of_images(name, page, options.words or [], figure)
    if figure is not None:
        from undamped.lab.report.trials import some_trials, trials_figure

        trials = trials_figure(some_trials(task, TRIALS), f"{name}: trials and answers")
        save_figure(trials, figure, dpi=110)
    if options.as_json:
        print_json(page)
        return
    _print(page)
    if task is not None:
        _print_trials(task)
    for registry in registries_with(name):
        if registry.kind != page["kind"]:
            command = f"undamped show {name} --kind {registry.kind}"
            typer.echo(f"\nThere is also {_a(registry.kind)} with this name: {command}")


def _task_of_images(name: str, page: dict[str, Any], words: list[str], figure: Path | None) -> Any:
    """Return the task whose trials are drawn, or None if there is nothing to draw."""
    has_images = page.get("inputs") == "pictures"
    if has_images:
        from undamped._base.registry import tasks
        from undamped.lab.cli.settings import read_options

        settings = read_options(name, tasks[name], words)
        required = [o["name"] for o in page["options"] if o["default"] == "required"]
        if all(option in settings for option in required):
            return tasks[name](**settings)
    if words or figure is not None:
        kind = f"{_a(page['kind'])} of {page['inputs']}" if "inputs" in page else _a(page["kind"])
        reason = "needs the option file" if has_images else f"is {kind}"
        raise OptionError(
            f"Only trials of a task of images can be drawn; '{name}' {reason}. For example: "
            "undamped show rmts colours=joint --figure trials.png"
        )
    return None


def _print_trials(task: Any) -> None:
    from undamped.lab.cli.trials import print_trials
    from undamped.lab.report.trials import some_trials

    screen = console()
    screen.print("[bold]Examples of the training split[/]", "")
    print_trials(screen, some_trials(task, TRIALS // 2))
    if task.baseline is not None:
        screen.print(
            f"The chance level is {task.chance.metric:.1%}; the best trivial rule, "
            f"{task.baseline.rule}, has {task.baseline.metric:.1%} on the test split.",
            markup=False,
        )


def _print(page: dict[str, Any]) -> None:
    screen = console()
    origin = "" if page["source"] == "undamped" else f", from {page['source']}"
    screen.print(Text(page["name"], style="bold") + Text(f", {_a(page['kind'])}{origin}"), "")
    screen.print(Text(page["summary"]), "")
    _print_sections(page, "question", "equation", "symbols", "promise")
    if page["promises"]:
        screen.print("[bold]Measured by the tests[/]")
        for promise in page["promises"]:
            screen.print(Padding(Text(f"{promise['kind']}: {promise['claim']}"), (0, 0, 0, 4)))
        screen.print("")
    table = Table(title="Options", title_justify="left", box=None, title_style="bold")
    for column in ("name", "default", "accepts", "about"):
        table.add_column(column, overflow="fold")
    for option in page["options"]:
        default = as_typed(option["default"])
        table.add_row(option["name"], default, option["accepts"], Text(option["about"]))
    screen.print(table, "")
    _print_sections(page, "example", "reference")


def _print_sections(page: dict[str, Any], *headings: str) -> None:
    for heading in headings:
        if page.get(heading):
            console().print(f"[bold]{heading.capitalize()}[/]")
            console().print(Padding(Text(page[heading]), (0, 0, 1, 4)))


def _a(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"
