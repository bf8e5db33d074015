"""How a sweep goes, on standard error: a bar on a terminal, a line per trial elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from undamped.lab.sweeps import Progress


@contextlib.contextmanager
def sweep_progress(title: str) -> Iterator[Callable[[Progress], None]]:
    """Give a function that is told how it goes.

    Args:
        title: What is swept.
    """
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    screen = Console(file=sys.stderr)
    if not screen.is_terminal:
        yield _Lines(title)
        return
    columns = ("[bold]{task.description}", "{task.completed}/{task.total}", "{task.fields[words]}")
    with Bar(
        TextColumn(columns[0]),
        BarColumn(bar_width=24),
        *map(TextColumn, columns[1:]),
        TimeElapsedColumn(),
        console=screen,
        transient=True,
    ) as bar:
        row = bar.add_task(title, total=None, words="")

        def draw(progress: Progress) -> None:
            words = f"{_best(progress)}  [dim]{progress.status}"
            bar.update(row, completed=progress.finished, total=progress.total, words=words)

        yield draw


class _Lines:
    """Writes a line whenever a trial is over."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.seen = 0

    def __call__(self, progress: Progress) -> None:
        if progress.finished > self.seen:
            self.seen = progress.finished
            sys.stderr.write(
                f"{self.title}: {self.seen} of {progress.total} trials {_best(progress)}\n"
            )


def _best(progress: Progress) -> str:
    return "" if progress.best is None else f"best {progress.best.value:.4g}"
