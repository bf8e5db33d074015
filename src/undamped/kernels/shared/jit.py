"""Numba's compiler for the kernels, with a cache whose failures are no errors.

Compiled code is cached beside the package or in the user's cache folder, if Numba can write there.
Otherwise a folder of this user in the system's temporary directory is used, and if that fails too
the code is compiled in every process. A cache file that cannot be read is replaced, and so is one
of other kernels: kernels consist of several files, of which Numba checks one. On a terminal, a
message names kernels that take long to compile.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core import config, event
from numba.core.caching import FunctionCache
from numba.core.dispatcher import Dispatcher

KERNEL: dict[str, Any] = {
    "nogil": True,
    "cache": True,
    "error_model": "numpy",
    "fastmath": {"contract"},
}
"""Options of `njit` for an elementwise kernel."""
# No reference counts (`_nrt`), which is possible where no array is allocated, and no wrapper for C.
# Without these two the first call of LSTM takes 2.0 s instead of 1.8 s and that of RelLSTM 4.1 s
# instead of 3.3 s (CPU seconds, forward and backward pass, empty cache).
_BARE: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "no_cfunc_wrapper": True,
    "_nrt": False,
}
LOOP: dict[str, Any] = _BARE | {"cache": True}
"""Options for a loop over time that allocates no array."""
PART: dict[str, Any] = _BARE | {"no_cpython_wrapper": True}
"""Options for a function that only loops call; also for the `jit_options` of an overload."""


class ForgivingCache(FunctionCache):
    """Numba's cache of a function, which ignores files that are damaged or cannot be written.

    Args:
        function: The function.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file._source_stamp = (self._cache_file._source_stamp, _all_kernels())

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Load compiled code; None if there is no readable file."""
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # unpickling damaged data raises any of them
            with contextlib.suppress(OSError):
                self.flush()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save compiled code, if possible."""
        with contextlib.suppress(OSError):
            super().save_overload(sig, data)


def njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile as `numba.njit` does; `cache=True` never fails."""
    caching = options.pop("cache", False)

    def decorate(function: Callable[..., Any]) -> Any:
        if caching:
            _refuse_compiled_closures(function)
        compiled: Any = numba.njit(**options)(function)
        cache = _cache(function) if caching else None
        if cache is not None:
            compiled._cache = cache
        return compiled

    return decorate


inlined: Any = njit(**_BARE, inline="always")
"""Decorator for functions that are inlined as source in the loops that call them.
Passing a named tuple of forty arrays takes longer to compile than the function itself.
"""


def _refuse_compiled_closures(function: Callable[..., Any]) -> None:
    """Raise an error for a kernel that closes over a compiled one: it could not be cached.

    The cache key contains the closure of a function, and a compiled function is another object in
    every process.
    """
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        if isinstance(cell.cell_contents, Dispatcher):
            raise TypeError(
                f"{function.__qualname__} closes over the compiled function {name}, with which it "
                "could not be kept in the cache. Call it by its name, or close over a "
                "register_jitable function of a module."
            )


def _cache(function: Callable[..., Any]) -> ForgivingCache | None:
    """Return a cache for a function where it can be written, or None."""
    with contextlib.suppress(RuntimeError, OSError):  # no writable folder
        return ForgivingCache(function)
    settings: Any = config  # its names are defined at import, which type checkers do not see
    folder, before = _temporary_place(), settings.CACHE_DIR
    if folder is None:
        return None
    settings.CACHE_DIR = str(folder)  # a cache selects its folder once, when it is created
    try:
        return ForgivingCache(function)
    except (RuntimeError, OSError):
        return None
    finally:
        settings.CACHE_DIR = before


@cache
def _all_kernels() -> tuple[tuple[str, int, int], ...]:
    """Return an identifier of the version of these kernels: files, times, sizes."""
    folder = Path(__file__).parents[1]
    files = [(path, path.stat()) for path in sorted(folder.rglob("*.py"))]
    return tuple(
        (path.relative_to(folder).as_posix(), stat.st_mtime_ns, stat.st_size)
        for path, stat in files
    )


def _temporary_place() -> Path | None:
    """Return a folder that only this user can write to, since code in it is executed."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    folder = Path(tempfile.gettempdir()) / f"undamped-numba-{user}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return None
    if not stat.S_ISDIR(status.st_mode):
        return None
    if hasattr(os, "getuid") and (status.st_uid != user or status.st_mode & 0o022):
        return None
    return folder


class _Compiling(event.Listener):
    """Names kernels on a terminal whose compilation takes longer than a delay.

    Args:
        delay: Seconds of compilation before the message.
    """

    def __init__(self, delay: float = 0.5) -> None:
        self.delay, self.depth, self.timer = delay, 0, None

    def on_start(self, event: Any) -> None:
        """Start a timer for the message."""
        self.depth += 1
        module = event.data["dispatcher"].py_func.__module__ or ""
        if self.depth > 1 or not module.startswith("undamped.") or not sys.stderr.isatty():
            return
        self.timer = threading.Timer(self.delay, _report, [module])
        self.timer.daemon = True
        self.timer.start()

    def on_end(self, event: Any) -> None:
        """Cancel the message if it was quick."""
        self.depth -= 1
        if not self.depth and self.timer is not None:
            self.timer.cancel()
            self.timer = None


def _report(module: str) -> None:
    kernel = module.removeprefix("undamped.kernels.")
    sys.stderr.write(f"compiling {kernel} for this machine; later runs load it from the cache\n")


event.register("numba:compile", _Compiling())
