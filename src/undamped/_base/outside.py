"""Members from outside: files given by --with, and packages with entry points `undamped.members`.

A file is Python that runs with the rights of whoever gives it. It is loaded only where a person
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
from undamped._base.source import LOADING, Source

GROUP = "undamped.members"
VARIABLE = "UNDAMPED_WITH"
"""Files to load, separated as in PATH; processes that training starts find theirs here."""

_loaded: dict[str, Source] = {}
_everything = threading.RLock()
_done = False

__path__: list[str] = []  # files become modules of this one, so that pickles find their classes


def load_everything() -> None:
    """Load the packages that are installed and the files of UNDAMPED_WITH, once."""
    global _done
    with _everything:
        if _done:
            return
        _done = True  # what is loaded may look something up
        for point in entry_points(group=GROUP):
            _load_package(point)
        for path in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
            load_file(path)


def load_file(path: str | Path) -> Source:
    """Run a Python file whose decorators enter members, once; return what is remembered of it.

    Args:
        path: The file.

    Example:
        >>> undamped._base.outside.load_file("my_models.py")
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
    name = f"{__name__}.{_identifier(file.stem)}_{source.version[:8]}"
    spec = importlib.util.spec_from_loader(name, loader=None, origin=str(file))
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    module.__file__ = str(file)
    sys.modules[name] = module
    try:
        with _entering(source):
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
        with _entering(source):
            point.load()
    except Exception as error:  # a package of somebody else must not take everything down
        warnings.warn(
            f"The plugins of {package} {version} in '{point.value}' are left out, because loading "
            f"them raised {type(error).__name__}: {shortened(error)}.",
            stacklevel=2,
        )
        return
    _loaded[f"{package}:{point.value}"] = source


@contextmanager
def _entering(source: Source) -> Iterator[None]:
    token = LOADING.set(source)
    try:
        yield
    finally:
        LOADING.reset(token)


def _identifier(stem: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in stem)


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
    # A process that training starts unpickles classes of these files before it asks a registry.
    load_everything()
