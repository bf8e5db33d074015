"""`undamped data`: published data sets and their copies in the cache."""

from __future__ import annotations

import sys
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table

from undamped.lab.cli.commands.catalogue import Fetch, Info, ListSets
from undamped.lab.cli.screen import console, print_json, print_lines
from undamped.lab.data.published import cache, catalogue
from undamped.lab.data.published.fetch import fetch_all
from undamped.lab.data.published.progress import Listener, human
from undamped.lab.data.published.sources import DataSet

LARGE = 50_000_000


def list_sets(options: ListSets) -> None:
    """Print the data sets that can be downloaded, and which of them are in the cache."""
    sets = list(catalogue.all_sets().values())
    cached = {each.name: not cache.quick_problems(each) for each in sets}
    if options.as_json:
        print_json([{**_facts(each), "cached": cached[each.name]} for each in sets])
        return
    table = Table(box=None, header_style="dim", padding=(0, 1))
    table.add_column("set", style="bold", no_wrap=True)
    table.add_column("download", justify="right", no_wrap=True)
    table.add_column("cached")
    table.add_column("about")
    for each in sets:
        size = human(each.download_size) if each.download_size else "?"
        table.add_row(each.name, size, "yes" if cached[each.name] else "", each.about)
    console().print(table)
    print_lines(f"Cache: {cache.root()}")
    console().print("Download a set: [bold]undamped data fetch NAME[/]")


def info(options: Info) -> None:
    """Print the description and the verified state of a data set; exit code 1 if it is damaged."""
    sets = catalogue.find_all(options.name)
    states = [_state(each) for each in sets]
    if options.as_json:
        print_json(states[0] if len(states) == 1 else states)
    else:
        for each, state in zip(sets, states, strict=True):
            console().print(_card(each, state), "")
        print_lines(f"Cache: {cache.root()}")
    if any(state["problems"] for state in states):
        raise typer.Exit(1)


def fetch(options: Fetch) -> None:
    """Download data sets to the cache and print their folders."""
    sets = [each for name in options.names for each in catalogue.find_all(name)]
    progress = DownloadProgress()
    for each in sets:
        progress.note(f"{each.name}: {human(each.download_size)}; licence: {each.licence}")
        if each.note:
            progress.note(f"{each.name}: {each.note}")
    source_dir, as_json = options.source_dir, options.as_json
    if source_dir is None and not options.yes and sys.stdin.isatty() and not as_json:
        _confirm(sets)
    folders = fetch_all([each.name for each in sets], source_dir, progress)
    if as_json:
        pairs = zip(sets, folders, strict=True)
        print_json([{**_state(each), "folder": str(folder)} for each, folder in pairs])
    else:
        print_lines(*map(str, folders))


class DownloadProgress(Listener):
    """Prints the sources that are tried; shows a bar if standard error is a terminal."""

    def __init__(self) -> None:
        self._console = Console(file=sys.stderr, highlight=False)
        self._bar: Progress | None = None
        self._line: Any = None

    def note(self, text: str) -> None:
        """Print a sentence, above the bar if there is one."""
        self._console.print(text, soft_wrap=True, markup=False)

    def begin(self, what: str, total: int | None) -> None:
        """Start a bar; a pulsing one if the size is unknown."""
        if not self._console.is_terminal:
            return
        columns: list[Any] = [TextColumn("{task.description}"), BarColumn(bar_width=24)]
        if total is not None:
            columns += [DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()]
        self._bar = Progress(*columns, console=self._console, transient=True)
        self._bar.start()
        self._line = self._bar.add_task(what, total=total)

    def advance(self, count: int) -> None:
        """Move the bar."""
        if self._bar is not None:
            self._bar.advance(self._line, count)

    def end(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _confirm(sets: list[DataSet]) -> None:
    """Prompt before a large download."""
    missing = [each for each in sets if cache.quick_problems(each)]
    size = sum(each.download_size or 0 for each in missing)
    if size > LARGE:
        typer.confirm(f"Download {human(size)}?", default=True, abort=True, err=True)


def _facts(data_set: DataSet) -> dict[str, Any]:
    """Return the entry of the catalogue."""
    return {
        "name": data_set.name,
        "about": data_set.about,
        "licence": data_set.licence,
        "note": data_set.note,
        "download_bytes": data_set.download_size,
        "sources": [source.title for source in data_set.sources],
    }


def _state(data_set: DataSet) -> dict[str, Any]:
    """Return the entry of the catalogue and the verified state of the copy in the cache."""
    record, folder = cache.manifest(data_set), cache.path_of(data_set)
    exists = folder.exists()
    problems = cache.problems(data_set) if exists else []
    return {
        **_facts(data_set),
        "folder": str(folder),
        "cached": exists and not problems,
        "problems": problems,
        "fetched_from": record["source"] if record else None,
        "files": record["files"] if record else [],
    }


def _card(data_set: DataSet, state: dict[str, Any]) -> Any:
    """Return the table that `info` prints."""
    table = Table(title=f"[bold]{data_set.name}[/]", title_justify="left", box=None)
    table.show_header = False
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("about", data_set.about)
    if data_set.note:
        table.add_row("note", data_set.note)
    table.add_row("licence", data_set.licence)
    for rank, source in enumerate(data_set.sources, start=1):
        table.add_row(f"source {rank}", escape(f"{source.title} ({human(source.size)})"))
    if state["cached"]:
        table.add_row("cached", escape(f"{state['folder']}, from {state['fetched_from']}"))
        for file in state["files"][:12]:
            table.add_row("", escape(f"{file['name']}  {human(file['size'])}  {file['sha256']}"))
        if len(state["files"]) > 12:
            table.add_row("", f"and {len(state['files']) - 12} more files")
        table.add_row("verified", "all checksums match")
    elif state["problems"]:
        table.add_row("[red]damaged[/]", escape("; ".join(state["problems"][:5])))
        table.add_row("remedy", f"undamped data fetch {data_set.name}")
    else:
        table.add_row("cached", f"no; download it with: undamped data fetch {data_set.name}")
    return table
