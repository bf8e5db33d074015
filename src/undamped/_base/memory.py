"""Memory: what is available, what this process uses, and the peak of a function."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

from undamped._base.errors import OptionError


def memory_available() -> int | None:
    """Return how many bytes are available, or None if the system does not tell (Linux does)."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return int(dict(line.split(":", 1) for line in lines)["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None


def refuse_beyond_memory(size: int, what: str) -> None:
    """Raise an `OptionError` for `what` if its `size` in bytes exceeds the available memory.

    Linux allocates memory that it does not have, and kills processes that use it.
    """
    available = memory_available()
    if available is not None and size > available:
        raise OptionError(
            f"{what} needs {size / 1e9:.3g} GB of weights, but only {available / 1e9:.3g} GB are "
            "free. Choose smaller sizes."
        )


def reset_peak_memory() -> None:
    """Reset the peak of the memory use, if the system supports it (Linux does)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def memory_use() -> tuple[int, int]:
    """Return the resident memory of this process in bytes, and its peak."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        fields = dict(line.split(":", 1) for line in lines)
        now, peak = (int(fields[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM"))
        return now, peak
    except (OSError, KeyError):
        import resource
        import sys

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        peak *= 1 if sys.platform == "darwin" else 1024
        return peak, peak


def peak_memory(function: Callable[..., Any], *arguments: Any) -> int:
    """Return by how many bytes `function` raised the peak memory of a fresh process.

    `function` must be importable (module level), because it runs in a spawned process. If it
    returns a callable, only that is measured, so that the function can prepare libraries, compiled
    kernels and inputs.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_measure, args=(sender, function, arguments))
    process.start()
    sender.close()
    try:
        result = receiver.recv()
    except EOFError:
        process.join()
        raise RuntimeError(
            f"{function.__name__}: the measuring process ended with code {process.exitcode}"
        ) from None
    process.join()
    if isinstance(result, Exception):
        raise result
    return result


def _measure(sender: Any, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        work = function(*arguments)
        before, _ = memory_use()
        reset_peak_memory()
        if callable(work):
            work()
        _, peak = memory_use()
        sender.send(max(0, peak - before))
    except Exception as error:
        sender.send(error)
    finally:
        sender.close()
