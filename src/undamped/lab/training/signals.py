"""Ctrl-C, SIGTERM and SIGUSR1: the first stops after the present batch, the second at once."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

# What a scheduler sends some time before it takes the machine away; Windows has no SIGUSR1.
_SIGNALS = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name)
]


@dataclass
class Stop:
    """Whether somebody wants the training to end."""

    requested: bool = False


@contextlib.contextmanager
def stop_gently(stop: Stop, processes: int) -> Iterator[None]:
    """Turn the first Ctrl-C, SIGTERM or SIGUSR1 into a stop after the present batch.

    There is a checkpoint then. Signals belong to the main thread, and with processes that training
    starts itself to whoever started them: then nothing is done.
    """
    if threading.current_thread() is not threading.main_thread() or processes > 1:
        yield
        return

    def ask(_number: int, _frame: Any) -> None:
        if stop.requested:
            raise KeyboardInterrupt
        stop.requested = True

    before = {number: signal.signal(number, ask) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
