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
from undamped._base.registry import LIBRARY, Registry, Source, models
from undamped.lab.catalogue import CATALOGUE, REGISTRIES, describe_entry, summary
from undamped.lab.cli.commands.catalogue import List, Show
from undamped.lab.cli.figures import check_figure, save_figure
from undamped.lab.cli.screen import as_typed, console, print_json, print_lines

TRIALS, NARROW = 4, 100
STARTERS = {
    "models": ("unicornn", "linoss", "lstm", "bank", "ridge-lags", "ode-rnn", "hnn"),
    "tasks": ("flags", "digits", "copy", "recordings", "pendulum"),
    "solvers": ("dopri5", "tsit5", "rk4", "radau5", "leapfrog"),
    "instruments": ("gradient_flow", "retention", "spectrum", "confusion", "cost"),
    "experiments": ("annuli", "copy", "ucr", "hnn", "forecasts"),
    "benchmarks": ("recurrent", "unicornn", "ode", "memory"),
}
"""Entries to begin with, by kind."""
FAMILIES = {
    "oscillators": ("nn.unicornn", "nn.cornn", "nn.linoss"),
    "gated networks": ("nn.lstm", "nn.latch_gru", "nn.layer_norm", "nn.light", "nn.fastrnn"),
    "simple and independent units": ("nn.rnn", "nn.indrnn"),
    "linear recurrences": ("nn.lru", "nn.s4d", "nn.lmu"),
    "orthogonal and unitary": ("nn.orthogonal", "nn.unitary", "nn.spectral"),
    "antisymmetric and Lipschitz": ("nn.euler",),
    "momentum": ("nn.momentum",),
    "attention over stored states": ("nn.relrnn", "nn.sab"),
    "irregular samples": ("models.irregular",),
    "latent variables": ("models.latent",),
    "physics": ("models.physics",),
    "neural ODEs and residual networks": ("models.continuous",),
    "relations": ("models.relational",),
    "baselines": ("lab.baselines",),
}
"""The modules of each family of models."""
OTHER_FAMILY = "others"


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
    """Print an overview, or one line for every entry of a kind that contains some words."""
    entries = _selected(options)
    sources = {kind: _sources(kind, pages) for kind, pages in entries.items()}
    if options.as_json:
        lines = {kind: _summaries(pages) for kind, pages in entries.items()}
        third_party = {kind: names for kind, names in sources.items() if names}
        print_json({**lines, **({"from outside": third_party} if third_party else {})})
    elif not (options.words or options.purpose or options.everything):
        _print_overview(entries, sources)
    elif not entries:
        print_lines("Nothing matches. 'undamped list' shows the kinds of entries.")
    else:
        for kind, pages in entries.items():
            _print_kind(kind, pages, sources[kind])
        console().print("More about an entry: [bold]undamped show NAME[/]")


def _selected(options: List) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the descriptions of the entries to list, by kind and name."""
    words, kinds = list(options.words or []), list(REGISTRIES)
    if words and (kind := _kind(words[0])) is not None:
        kinds, words = [kind], words[1:]
    elif options.purpose is not None:
        kinds = ["models"]
    entries = {kind: _entries(kind, words, options.purpose) for kind in kinds}
    return {kind: pages for kind, pages in entries.items() if pages}


def _summaries(pages: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {name: summary(page) for name, page in pages.items()}


def _sources(kind: str, pages: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Return the sources of third-party entries."""
    sources = third_party_entries(kind)
    return {name: str(source) for name, source in sources.items() if name in pages}


def _kind(word: str) -> str | None:
    """Return the kind that a word names: "models" for "model" and "models"."""
    return next((kind for kind in REGISTRIES if word in (kind, kind.removesuffix("s"))), None)


def _entries(kind: str, words: list[str], purpose: str | None) -> dict[str, dict[str, Any]]:
    """Return the descriptions of the entries of a kind that contain all words."""
    pages = {name: page_of(name, REGISTRIES[kind]) for name in REGISTRIES[kind]}
    return {
        name: page
        for name, page in pages.items()
        if (purpose is None or purpose in page.get("for", ()))
        and all(w.lower() in f"{name} {summary(page)}".lower() for w in words)
    }


def _print_overview(entries: dict[str, dict[str, Any]], sources: dict[str, dict[str, str]]) -> None:
    screen = console()
    for kind, pages in entries.items():
        starters = [name for name in STARTERS[kind] if name in pages]
        screen.print(f"[bold]{len(pages)} {kind}[/]: undamped list {kind}")
        if kind not in ("models", "tasks"):
            print_lines(f"  {', '.join(starters)}, …")
        else:
            for name in starters:
                line = Text(f"  {name:<12}", style="bold") + Text(summary(pages[name]), "not bold")
                screen.print(line, no_wrap=True, overflow="ellipsis")
        for name, source in sources[kind].items():
            print_lines(f"  {name} [{source}]")
    screen.print("")
    print_lines(
        "undamped list models --for forecast | streaming | irregular | physics",
        "undamped list models orthogonal      entries that contain a word",
        "undamped list --all                  everything",
        "undamped show NAME                   more about an entry",
    )


def _print_kind(kind: str, pages: dict[str, dict[str, Any]], sources: dict[str, str]) -> None:
    """Print one line for every entry; models are grouped by family."""
    groups: dict[str, list[str]] = {}
    for name in pages:
        groups.setdefault(family_of(name) if kind == "models" else kind, []).append(name)
    order = [*FAMILIES, OTHER_FAMILY, kind]
    for group in sorted(groups, key=order.index):
        title = f"models: {group}" if kind == "models" else kind
        table = Table(title=title, title_justify="left", box=None, show_header=False)
        for name in groups[group]:
            line, source = summary(pages[name]), sources.get(name)
            table.add_row(f"[bold]{name}[/]", Text(f"{line} [{source}]" if source else line))
        console().print(table, "")


def family_of(model: str) -> str:
    """Return the family of a model, which follows from the module that defines it."""
    module = models.index.get(model, "").partition(":")[0].removeprefix("undamped.")
    for family, modules in FAMILIES.items():
        if any(f"{module}.".startswith(f"{prefix}.") for prefix in modules):
            return family
    return OTHER_FAMILY


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
    screen.print(Text(unwrapped(page["summary"])), "")
    _print_sections(page, "question", "equation", "symbols", "promise")
    if page["promises"]:
        screen.print("[bold]Measured by the tests[/]")
        for promise in page["promises"]:
            screen.print(Padding(Text(f"{promise['kind']}: {promise['claim']}"), (0, 0, 0, 4)))
        screen.print("")
    if screen.width < NARROW:
        screen.print("[bold]Options[/]")
        for option in page["options"]:
            accepts = f" ({as_typed(option['default'])}; {option['accepts']})"
            line = Text(option["name"], style="bold") + Text(accepts, style="not bold")
            screen.print(Padding(line, (0, 0, 0, 4)), Padding(Text(option["about"]), (0, 0, 0, 8)))
        screen.print("")
    else:
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
        if text := page.get(heading):
            text = text if heading in ("equation", "example") else unwrapped(text)
            console().print(f"[bold]{heading.capitalize()}[/]")
            console().print(Padding(Text(text), (0, 0, 1, 4)))


def unwrapped(text: str) -> str:
    """Return the paragraphs of a docstring, a line each; the terminal wraps them."""
    return "\n\n".join(" ".join(part.split("\n")) for part in text.split("\n\n"))


def _a(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"
