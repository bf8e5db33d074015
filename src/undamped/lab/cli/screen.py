"""Output of commands: tables, bars of scores, JSON."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table

from undamped._base.errors import printable

if TYPE_CHECKING:  # `undamped list` does not need torch
    from undamped.lab.tasks.task import Task

BAR = 32


class SafeConsole(Console):
    """A console that prints no control characters except its own."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield the segments to print, without control characters in their text."""
        for segment in super().render(renderable, options):
            if segment.control is None:
                yield Segment(printable(segment.text), segment.style)
            else:
                yield segment


def console() -> Console:
    """Return the console on standard output; names that come from files cannot control it."""
    return SafeConsole(highlight=False)


def print_lines(*lines: str, style: str | None = None) -> None:
    """Print plain text, a line each; markup is not interpreted and lines are not wrapped."""
    for line in lines:
        console().print(line, style=style, soft_wrap=True, markup=False)


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


def print_warnings(sentences: Iterable[str]) -> None:
    """Print warnings, a line each."""
    for sentence in sentences:
        console().print(f"  [yellow]![/] {escape(sentence)}", soft_wrap=True)


def as_typed(value: Any) -> str:
    """Return a value as it is written on the command line."""
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def metric_name(task: Task) -> str:
    """Return the name of the metric in words."""
    return task.metric.replace("_", " ")


def number(value: float, task: Task) -> str:
    """Return a score as text: accuracies as percentages, others with four digits."""
    return metric_text(value, task.metric)


def metric_text(value: float, metric: str) -> str:
    """Return a value of a metric as text."""
    return f"{100 * value:.1f} %" if metric.endswith("accuracy") else f"{value:.4g}"


def bars(rows: list[tuple[str, float, str]], task: Task) -> Table:
    """Return one bar per score, all on one scale from zero."""
    table = Table(box=None, show_header=False, padding=(0, 1))
    table.add_column(no_wrap=True, overflow="ellipsis", max_width=26)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(style="dim", overflow="fold")
    largest = max((value for _, value, _ in rows), default=1.0)
    top = 1.0 if task.metric.endswith("accuracy") else largest
    for row, (name, value, note) in enumerate(rows):
        filled = round(BAR * min(1.0, max(0.0, value / top))) if top else 0
        bar = f"[{'yellow' if row else 'blue'}]{'█' * filled}[/]" + "·" * (BAR - filled)
        table.add_row(escape(name), number(value, task), bar, escape(note))
    return table


def baseline_bars(task: Task) -> list[tuple[str, float, str]]:
    """Return the rows of `bars` for the chance level and the trivial baseline of a task."""
    rows = [("chance level", task.chance.metric, task.chance.rule)]
    if task.baseline is not None:
        rows.append(("trivial baseline", task.baseline.metric, task.baseline.rule))
    return rows


def scores_line(split: str, scores: dict[str, float]) -> str:
    """Return all scores of a split in one line."""
    values = (f"{name.replace('_', ' ')} {value:.3g}" for name, value in scores.items())
    return f"  {split}: {', '.join(values)}"


def megabytes(count: float) -> str:
    """Return a number of bytes as text."""
    return f"{count / 2**20:.0f} MB"


def duration(seconds: float) -> str:
    """Return a time as text."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min"
