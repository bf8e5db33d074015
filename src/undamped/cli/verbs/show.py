"""`undamped show NAME`: a model's equation, promise, options and reference."""

from __future__ import annotations

from typing import Annotated, Any

import typer


def show(
    name: Annotated[str, typer.Argument(help="A model, task or other member: unicornn.")],
    kind: Annotated[
        str | None,
        typer.Option(help="What it is, where a name stands for several: task, experiment, …"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a script.")] = False,
) -> None:
    """Show one model, task or other member: what it is, what it promises, what can be set.

    Example: `undamped show unicornn`
    """
    from undamped.cli.screen import print_json
    from undamped.describe import describe_member, find_members, registry_of

    page = describe_member(name, None if kind is None else registry_of(kind))
    if as_json:
        print_json(page)
    else:
        _print(name, page)
        for registry in find_members(name):
            if registry.kind != page["kind"]:
                again = f"undamped show {name} --kind {registry.kind}"
                typer.echo(f"\nThe same name stands for {_a(registry.kind)} too: {again}")


def _print(name: str, page: dict[str, Any]) -> None:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    from undamped.cli.screen import console

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
