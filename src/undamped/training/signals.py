"""Ctrl-C and SIGTERM: the first stops after the present batch, the second at once."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass
class Stop:
    """Whether somebody wants the training to end."""

    requested: bool = False


@contextlib.contextmanager
def stop_gently(stop: Stop, processes: int) -> Iterator[None]:
    """Turn the first Ctrl-C or SIGTERM into a stop after the present batch, with a checkpoint.

    Signals belong to the main thread, and with several processes to whoever started them: then
    nothing is done.
    """
    if threading.current_thread() is not threading.main_thread() or processes > 1:
        yield
        return

    def ask(_number: int, _frame: Any) -> None:
        if stop.requested:
            raise KeyboardInterrupt
        stop.requested = True

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
