"""`undamped list`: what there is."""

from __future__ import annotations

from typing import Annotated

import typer


def list_members(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a script.")] = False,
) -> None:
    """List all models and tasks, a line each.

    Example: `undamped list`
    """
    import undamped.tasks  # noqa: F401 (enters the tasks)
    from undamped.cli.screen import console, print_json
    from undamped.docstrings import sections
    from undamped.registry import models, solvers, tasks

    kinds = {"models": models, "tasks": tasks, "solvers": solvers}
    lines = {
        kind: {name: sections(registry[name])[""].splitlines()[0] for name in registry}
        for kind, registry in kinds.items()
        if len(registry)
    }
    if as_json:
        print_json(lines)
        return
    from rich.table import Table

    screen = console()
    for kind, members in lines.items():
        table = Table(title=kind, title_justify="left", box=None, show_header=False)
        for name, line in members.items():
            table.add_row(f"[bold]{name}[/]", line)
        screen.print(table, "")
    screen.print("More about one of them: [bold]undamped show NAME[/]")
