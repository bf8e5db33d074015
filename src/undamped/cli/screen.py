"""What a person sees at the end: scores as bars, and a hint what to do next."""

from __future__ import annotations

import json
import sys
from typing import Any

from rich.console import Console
from rich.table import Table

from undamped.tasks.task import Task

BAR = 32


def console() -> Console:
    """Return the console on standard output."""
    return Console(highlight=False)


def print_json(value: Any) -> None:
    """Print JSON for a script."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def metric_name(task: Task) -> str:
    """Return the metric as a person says it."""
    return task.metric.replace("_", " ")


def number(value: float, task: Task) -> str:
    """Write a score: shares as percentages, the rest with four digits."""
    return f"{100 * value:.1f} %" if task.metric.endswith("accuracy") else f"{value:.4g}"


def bars(rows: list[tuple[str, float, str]], task: Task) -> Table:
    """Draw one bar per score, all on one scale from zero."""
    table = Table(box=None, show_header=False, padding=(0, 1))
    table.add_column(no_wrap=True, overflow="ellipsis", max_width=26)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(style="dim", overflow="fold")
    top = (
        1.0
        if task.metric.endswith("accuracy")
        else max((value for _, value, _ in rows), default=1.0)
    )
    for place, (name, value, note) in enumerate(rows):
        filled = round(BAR * min(1.0, max(0.0, value / top))) if top else 0
        colour = "blue" if place == 0 else "yellow"
        drawn = f"[{colour}]{'█' * filled}[/]" + "·" * (BAR - filled)
        table.add_row(name, number(value, task), drawn, note)
    return table


def scores_line(part: str, scores: dict[str, float]) -> str:
    """Write all scores of a part of the data in one line."""
    shown = (f"{name.replace('_', ' ')} {value:.3g}" for name, value in scores.items())
    return f"  {part}: {', '.join(shown)}"


def megabytes(count: float) -> str:
    """Write a number of bytes for a person."""
    return f"{count / 2**20:.0f} MB"


def duration(seconds: float) -> str:
    """Write a time for a person."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min"
