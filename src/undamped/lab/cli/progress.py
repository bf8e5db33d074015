"""Progress of long commands on standard error: bars on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

if TYPE_CHECKING:
    from undamped.lab.sweeps import Progress as SweepProgress

DESCRIPTION = TextColumn("{task.description}")


@contextmanager
def stages(title: str, *, delay: float = 2.0) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows the current stage: a spinner, or lines in a file or pipe.

    Args:
        title: The name of the command.
        delay: Seconds after which a stage is a line in a file or pipe. Most stages are shorter, and
            those of instruments that do not apply last milliseconds.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        typer.echo(title, err=True)
        timer = threading.Timer(0, lambda: None)

        def start(stage: str) -> None:
            nonlocal timer
            timer.cancel()
            timer = threading.Timer(delay, typer.echo, (f"{title}: {stage}",), {"err": True})
            timer.daemon = True
            timer.start()

        try:
            yield start
        finally:
            timer.cancel()
        return
    columns = (SpinnerColumn(), DESCRIPTION, TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        line = progress.add_task(title)
        yield lambda stage: progress.update(line, description=f"{title}: {stage}")


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[..., None]]:
    """Yield a function that shows the last stage and, if it is known, the completed fraction.

    Args:
        title: The name of the command.
    """
    columns = (SpinnerColumn(), BarColumn(bar_width=20), TimeElapsedColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, DESCRIPTION, console=console, transient=True) as progress:
        line = progress.add_task(title, total=None)

        def update(stage: str, fraction: float | None = None) -> None:
            progress.update(line, description=f"{title}: {stage}")
            if fraction is not None:
                progress.update(line, total=1.0, completed=fraction)

        yield update


@contextmanager
def sweep_progress(title: str) -> Iterator[Callable[[SweepProgress], None]]:
    """Yield a function that shows the progress of a sweep: a bar, or a line per trial.

    Args:
        title: What is searched.
    """
    console = Console(file=sys.stderr)
    columns = [TextColumn("{task.completed}/{task.total}"), TextColumn("{task.fields[words]}")]
    bar = Progress(
        TextColumn("[bold]{task.description}"),
        BarColumn(bar_width=24),
        *columns,
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
    row, finished = bar.add_task(title, total=None, words=""), 0

    def update(progress: SweepProgress) -> None:
        nonlocal finished
        best = "" if progress.best is None else f"best {progress.best.value:.4g}"
        if console.is_terminal:
            words = f"{best}  [dim]{progress.status}"
            bar.update(row, completed=progress.finished, total=progress.total, words=words)
        elif progress.finished > finished:
            sys.stderr.write(f"{title}: {progress.finished} of {progress.total} trials {best}\n")
        finished = progress.finished

    if not console.is_terminal:
        yield update
        return
    with bar:
        yield update
