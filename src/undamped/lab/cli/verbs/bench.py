"""`undamped bench`: ours beside what a user would otherwise pick, measured in one run."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer


def bench(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Which one.")],
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...",
            help="Settings of its own; 'undamped show NAME --kind benchmark' lists them.",
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="How often each candidate is timed.")] = 7,
    quick: Annotated[bool, typer.Option(help="Smaller shapes, to see that it works.")] = False,
    device: Annotated[
        str | None, typer.Option(help="Where: cpu or cuda, for those that can choose.")
    ] = None,
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
    from undamped._base.options import settings_of
    from undamped._base.registry import benchmarks
    from undamped.lab.cli.members import read_settings, ticking
    from undamped.lab.cli.screen import console, print_json

    run = benchmarks[name]
    common = {"rounds": rounds, "quick": quick}
    understood = {key: value for key, value in common.items() if key in settings_of(run)}
    settings = {**understood, **read_settings(name, run, words or [])}
    if device is not None:
        settings["device"] = _for_those_that_choose(name, device, settings_of(run))
    check_table(table, name)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    with ticking(f"bench {name}") as tick:
        result = run(**settings, progress=tick)
    if out is not None:
        for title, figure in result.figures().items():
            figure.savefig(out / f"{name}-{title}.png", dpi=110)
    if table is not None:
        fill_table(table, name, result.markdown())
    if as_json:
        print_json(result.to_dict())
    else:
        console().print(result.summary())


def _for_those_that_choose(name: str, device: str, known: Collection[str]) -> str:
    """Return the device, or refuse it for a benchmark that has no choice."""
    from undamped._base.errors import OptionError

    if "device" in known:
        return device
    raise OptionError(
        f"--device: expected a benchmark that can choose its device, got '{name}', which runs on "
        "the CPU. Leave it out."
    )


def markers(name: str) -> tuple[str, str]:
    """Return the lines between which a table stands in a Markdown file."""
    return f"<!-- bench {name} -->", "<!-- end -->"


def check_table(path: Path | None, name: str) -> None:
    """Refuse a file without a marked place before anything is measured."""
    from undamped._base.errors import OptionError

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
    from undamped._base.files import write_text

    start, end = markers(name)
    before, _, rest = path.read_text(encoding="utf-8").partition(start)
    _, _, after = rest.partition(end)
    write_text(path, f"{before}{start}\n{table.strip()}\n{end}{after}")
