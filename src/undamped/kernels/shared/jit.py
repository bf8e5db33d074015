"""Numba's compiler for the kernels, with a cache that never stands in the way.

Compiled code is kept beside the package or in the user's own cache, wherever Numba may write. Where
it may write nowhere, a folder of this user in the system's temporary place stands in, and where
that fails too the code is compiled anew in every process. A file of the cache that cannot be read
is replaced, and so is one that was made from other kernels: kernels are put together from several
files, of which Numba looks at one. Whoever sits at a terminal is told what takes so long.
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
"""How `njit` compiles an elementwise kernel."""
# Arrays are not counted (`_nrt`), which is only possible where none is allocated, and C cannot call
# the function. Without these two the first call of LSTM takes 2.0 s instead of 1.8 s and that of
# RelLSTM 4.1 s instead of 3.3 s (CPU seconds, forward and backward pass, empty cache).
_BARE: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "no_cfunc_wrapper": True,
    "_nrt": False,
}
LOOP: dict[str, Any] = _BARE | {"cache": True}
"""How it compiles a loop over time that allocates no array."""
PART: dict[str, Any] = _BARE | {"no_cpython_wrapper": True}
"""How it compiles a function that only loops call; also for the `jit_options` of an overload."""


class ForgivingCache(FunctionCache):
    """Numba's cache of a function; a file that is damaged or cannot be written is no error.

    Args:
        function: The function.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file._source_stamp = (self._cache_file._source_stamp, _all_kernels())

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Load compiled code; None if there is none, or none that can be read."""
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # unpickling rubbish ends in any of them
            with contextlib.suppress(OSError):
                self.flush()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep compiled code, if there is room for it."""
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
"""Decorator for functions that are put into the loops that call them as source.

Passing a named tuple of forty arrays takes longer to compile than the function itself.
"""


def _refuse_compiled_closures(function: Callable[..., Any]) -> None:
    """Refuse a kernel that closes over a compiled one: no later process would find it.

    The key of the cache is made of what a function closes over, and a compiled function is another
    object in every process.
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
    with contextlib.suppress(RuntimeError, OSError):  # no place that can be written
        return ForgivingCache(function)
    settings: Any = config  # its names are made at import, where no type checker sees them
    folder, before = _temporary_place(), settings.CACHE_DIR
    if folder is None:
        return None
    settings.CACHE_DIR = str(folder)  # a cache looks for its place once, when it is made
    try:
        return ForgivingCache(function)
    except (RuntimeError, OSError):
        return None
    finally:
        settings.CACHE_DIR = before


@cache
def _all_kernels() -> tuple[tuple[str, int, int], ...]:
    """Return what tells these kernels from those of another version: files, times, sizes."""
    folder = Path(__file__).parents[1]
    files = [(path, path.stat()) for path in sorted(folder.rglob("*.py"))]
    return tuple(
        (path.relative_to(folder).as_posix(), stat.st_mtime_ns, stat.st_size)
        for path, stat in files
    )


def _temporary_place() -> Path | None:
    """Return a folder that this user alone can write to: what lies there is run."""
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
    """Tells a terminal what is compiled, once that has taken a moment.

    Args:
        delay: Seconds of compiling after which somebody at a terminal wonders.
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
    sys.stderr.write(f"compiling {kernel} for this machine; later runs find it ready\n")


event.register("numba:compile", _Compiling())
