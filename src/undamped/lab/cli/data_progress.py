"""How a fetch looks on the screen: sentences and a bar, on standard error."""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console

from undamped.lab.data.published.progress import Listener


class ScreenListener(Listener):
    """Prints what is tried and what fails; draws a bar where standard error is a terminal."""

    def __init__(self) -> None:
        self._console = Console(file=sys.stderr, highlight=False)
        self._bar: Any = None
        self._task: Any = None

    def note(self, text: str) -> None:
        """Print a sentence, above the bar if there is one."""
        self._console.print(text, soft_wrap=True, markup=False)

    def begin(self, what: str, total: int | None) -> None:
        """Start a bar; a pulsing one if the size is not known."""
        if not self._console.is_terminal:
            return
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        columns: list[Any] = [TextColumn("{task.description}"), BarColumn(bar_width=24)]
        if total is not None:
            columns += [DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()]
        self._bar = Progress(*columns, console=self._console, transient=True)
        self._bar.start()
        self._task = self._bar.add_task(what, total=total)

    def advance(self, count: int) -> None:
        """Move the bar."""
        if self._bar is not None:
            self._bar.advance(self._task, count)

    def end(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
