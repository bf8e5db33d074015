"""Plugins: files given by --with, and packages with entry points `undamped.members`.

A file is Python code that runs with the permissions of the user. It is loaded only if the user
names it (`--with`, `load_file`, the variable UNDAMPED_WITH), never because a run folder does.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from undamped._base.errors import OptionError, UndampedError, shortened
from undamped._base.registry import LOADING, Source

GROUP = "undamped.members"
VARIABLE = "UNDAMPED_WITH"
"""Files to load, separated as in PATH; also read by processes that training starts."""

_loaded: dict[str, Source] = {}
_everything = threading.RLock()
_done = False

__path__: list[str] = []  # files become submodules, so that their classes can be pickled


def load_everything() -> None:
    """Load the installed packages and the files of UNDAMPED_WITH, once."""
    global _done
    with _everything:
        if _done:
            return
        _done = True  # before loading, because a plugin may use a registry itself
        for point in entry_points(group=GROUP):
            _load_package(point)
        for path in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
            load_file(path)


def load_file(path: str | Path) -> Source:
    """Run a Python file whose decorators register something, once, and return its source.

    Args:
        path: The file.

    Example:
        >>> undamped.extend.load_file("my_models.py")
    """
    file = Path(path).expanduser().absolute()
    try:
        content = file.read_bytes()
    except OSError as error:
        raise OptionError(
            f"--with {path}: {error.strerror or 'the file cannot be read'}."
        ) from None
    source = Source("file", str(file), hashlib.sha256(content).hexdigest())
    earlier = _loaded.get(str(file))
    if earlier is not None:
        if earlier != source:
            raise OptionError(
                f"--with {path}: the file has changed since it was loaded. Restart Python."
            )
        return source
    stem = "".join(letter if letter.isalnum() else "_" for letter in file.stem)
    name = f"{__name__}.{stem}_{source.version[:8]}"
    spec = importlib.util.spec_from_loader(name, loader=None, origin=str(file))
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    module.__file__ = str(file)
    sys.modules[name] = module
    try:
        with _registering(source):
            exec(compile(content, str(file), "exec"), vars(module))
    except UndampedError:
        del sys.modules[name]
        raise
    except Exception as error:
        del sys.modules[name]
        line = _line_in(file, error)
        raise OptionError(
            f"--with {path}: {type(error).__name__} in line {line}: {shortened(error)}"
        ) from error
    _loaded[str(file)] = source
    files = [earlier.name for earlier in _loaded.values() if earlier.kind == "file"]
    os.environ[VARIABLE] = os.pathsep.join(files)
    return source


def loaded_sources() -> list[Source]:
    """Return the files and packages that were loaded."""
    return list(_loaded.values())


def _load_package(point: EntryPoint) -> None:
    package = point.dist.name if point.dist is not None else point.value
    version = point.dist.version if point.dist is not None else ""
    source = Source("package", package, version)
    try:
        with _registering(source):
            point.load()
    except Exception as error:  # a broken package must not disable everything else
        warnings.warn(
            f"The plugins of {package} {version} in '{point.value}' are left out, because loading "
            f"them raised {type(error).__name__}: {shortened(error)}.",
            stacklevel=2,
        )
        return
    _loaded[f"{package}:{point.value}"] = source


@contextmanager
def _registering(source: Source) -> Iterator[None]:
    token = LOADING.set(source)
    try:
        yield
    finally:
        LOADING.reset(token)


def _line_in(file: Path, error: BaseException) -> int | str:
    if isinstance(error, SyntaxError):
        return error.lineno or "?"
    line: int | str = "?"
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(file):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


if os.environ.get(VARIABLE):
    # A process that training starts unpickles classes of these files before it uses a registry.
    load_everything()
