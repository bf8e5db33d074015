"""The live page of `undamped train --watch`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from undamped.lab.training.run import Run


@contextlib.contextmanager
def live_page(wanted: bool) -> Iterator[Callable[[Run], None] | None]:
    """Give what `fit` calls when a run has begun; its page is served until this ends.

    Args:
        wanted: Whether there is to be a page at all.
    """
    if not wanted:
        yield None
        return
    from undamped.lab.report.watch import Watch

    served: list[Any] = []

    def serve(run: Run) -> None:
        served.append(Watch(run.path))
        # Beside the progress bar and, with --json, away from what a script reads.
        sys.stderr.write(f"Watch it at {served[-1].url}\n")

    try:
        yield serve
    finally:
        for watch in served:
            watch.stop()
