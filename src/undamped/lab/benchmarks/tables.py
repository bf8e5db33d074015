"""What several benchmarks print and draw alike: a table for a page, one for a terminal, bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from undamped.lab.benchmarks.timing import Timing


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table for a document; names on the left, numbers on the right.

    Args:
        header: The heading of every column.
        rows: The lines.
    """
    rule = "|---|" + "---:|" * (len(header) - 1)
    return "\n".join([_line(header), rule, *map(_line, rows)])


def terminal_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], title: str, caption: str | None = None
) -> Any:
    """Return the same for a terminal.

    Args:
        header: The heading of every column.
        rows: The lines.
        title: What stands above.
        caption: What stands below.
    """
    from rich.table import Table

    table = Table(title=title, caption=caption, title_justify="left")
    for place, heading in enumerate(header):
        table.add_column(heading, justify="right" if place else "left")
    for row in rows:
        table.add_row(*row)
    return table


def step_bars(timings: Mapping[str, Timing], title: str, *, log: bool = False) -> Any:
    """Return a picture with a bar for the training step of each candidate.

    Args:
        timings: Seconds by candidate.
        title: What stands above.
        log: Whether candidates are factors of ten apart.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 0.5 * len(timings) + 1.2), layout="constrained")
    axes = figure.subplots()
    names = list(timings)[::-1]
    axes.barh(names, [1000 * timings[name].median for name in names], color="#0072B2")
    if log:
        axes.set_xscale("log")
    axes.set_xlabel("ms per training step")
    axes.set_title(title, fontsize=9)
    return figure


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
