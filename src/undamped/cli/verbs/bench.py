"""`undamped bench`: ours beside what a user would otherwise pick, measured in one run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, cast, get_args

import typer

Name = Literal["unicornn", "recurrent", "ode"]


def bench(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help=f"What to measure: {', '.join(get_args(Name))}.")
    ],
    rounds: Annotated[int, typer.Option(min=1, help="How often each candidate is timed.")] = 7,
    quick: Annotated[bool, typer.Option(help="Smaller shapes, to see that it works.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the pictures; none are drawn without it.")
    ] = None,
    table: Annotated[
        Path | None,
        typer.Option(help="A Markdown file whose marked place gets the table of this run."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a script.")] = False,
) -> None:
    """Time and measure, interleaved, with medians; the ratios are what to quote.

    Example: `undamped bench unicornn --out pictures/`
    """
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from undamped.cli.screen import console, print_json

    run = _runner(name)
    check_table(table, name)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        line = progress.add_task(f"bench {name}")

        def tick(candidate: str) -> None:
            progress.update(line, description=f"bench {name}: {candidate}")

        result = run(rounds=rounds, quick=quick, tick=tick)
    if out is not None:
        for title, figure in result.figures().items():
            figure.savefig(out / f"{name}-{title}.png", dpi=110)
    if table is not None:
        fill_table(table, name, result.markdown())
    if as_json:
        print_json(result.to_dict())
    else:
        console().print(result.summary())


def _runner(name: str) -> Callable[..., Any]:
    from undamped.options import unknown_name

    if name not in get_args(Name):
        raise unknown_name("benchmark", name, get_args(Name))
    match cast(Name, name):
        case "unicornn":
            from undamped.bench.unicornn import run
        case "recurrent":
            from undamped.bench.recurrent import run
        case "ode":
            from undamped.bench.ode import run
    return run


def markers(name: str) -> tuple[str, str]:
    """Return the lines between which a table stands in a Markdown file."""
    return f"<!-- bench {name} -->", "<!-- end -->"


def check_table(path: Path | None, name: str) -> None:
    """Refuse a file without a marked place before anything is measured."""
    from undamped.errors import OptionError

    if path is None:
        return
    start, end = markers(name)
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    if start not in text or end not in text.partition(start)[2]:
        raise OptionError(
            f"--table: expected a Markdown file with the lines {start} and {end}, got '{path}'. "
            "Add the two lines where the table should stand."
        )


def fill_table(path: Path, name: str, table: str) -> None:
    """Put a table between its markers."""
    from undamped.files import write_text

    start, end = markers(name)
    before, _, rest = path.read_text(encoding="utf-8").partition(start)
    _, _, after = rest.partition(end)
    write_text(path, f"{before}{start}\n{table.strip()}\n{end}{after}")
