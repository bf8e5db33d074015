"""What a person sees at the end: scores as bars, and a hint what to do next."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table

from undamped._base.errors import printable
from undamped.lab.tasks.task import Task

BAR = 32


class SafeConsole(Console):
    """A console that prints no control character but its own."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield the pieces of what is printed, without control characters in their text."""
        for segment in super().render(renderable, options):
            if segment.control is None:
                yield Segment(printable(segment.text), segment.style)
            else:
                yield segment


def console() -> Console:
    """Return the console on standard output; names that come from files cannot control it."""
    return SafeConsole(highlight=False)


def print_json(value: Any) -> None:
    """Print JSON for a script."""
    if sys.stdout is None:  # closed
        return
    plain = not (sys.stdout.encoding or "").lower().startswith("utf")
    text = json.dumps(value, indent=2, ensure_ascii=plain)
    sys.stdout.write(escape_controls(text) + "\n")


def escape_controls(text: str) -> str:
    """Return JSON in which the control characters that it allows are written as escapes."""
    return re.sub(r"[\x7f-\x9f]", lambda match: f"\\u{ord(match[0]):04x}", text)


def print_warnings(screen: Console, sentences: Iterable[str]) -> None:
    """Print what deserves a look, a line each."""
    for sentence in sentences:
        screen.print(f"  [yellow]![/] {escape(sentence)}", soft_wrap=True)


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
        table.add_row(escape(name), number(value, task), drawn, escape(note))
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
