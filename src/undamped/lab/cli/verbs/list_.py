"""`undamped list`: what there is."""

from __future__ import annotations

from typing import Annotated

import typer


def list_members(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a script.")] = False,
) -> None:
    """List everything there is, a line each: models, tasks, solvers and more.

    Example: `undamped list`
    """
    from undamped._base.describe import REGISTRIES, summary, third_party_entries
    from undamped.lab.cli.screen import console, print_json

    lines = {
        kind: {name: summary(registry[name]) for name in registry}
        for kind, registry in REGISTRIES.items()
        if len(registry)
    }
    foreign = {
        kind: {name: str(where) for name, where in third_party_entries(kind).items()}
        for kind in lines
    }
    if as_json:
        found = {kind: names for kind, names in foreign.items() if names}
        print_json({**lines, **({"from outside": found} if found else {})})
        return
    from rich.table import Table
    from rich.text import Text

    screen = console()
    for kind, members in lines.items():
        table = Table(title=kind, title_justify="left", box=None, show_header=False)
        for name, line in members.items():
            where = foreign[kind].get(name)
            table.add_row(f"[bold]{name}[/]", line if where is None else Text(f"{line} [{where}]"))
        screen.print(table, "")
    screen.print("More about one of them: [bold]undamped show NAME[/]")
