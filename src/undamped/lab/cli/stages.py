"""What a long command is busy with, on standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer


@contextmanager
def stages(title: str) -> Iterator[Callable[[str], None]]:
    """Yield a function that says what is done next: a spinner, or a line each in a file or pipe.

    Args:
        title: What the command is called.
    """
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda stage: typer.echo(f"{title}: {stage}", err=True)
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        line = progress.add_task(title)
        yield lambda stage: progress.update(line, description=f"{title}: {stage}")
