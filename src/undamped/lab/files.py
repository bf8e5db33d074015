"""Files that are written atomically: they are complete, or they do not exist."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from undamped._base.errors import OptionError, RunError, shortened

_CHECKSUM = "sha256"
_FORMAT = "undamped_format"
_VERSION = "1"  # of the files of tensors; see docs/file-formats.md
_DIGEST = re.compile("[0-9a-f]{64}")
_DEEPEST = 100  # levels of lists in lists in a JSON file
_MOST_DIGITS = 30  # of an integer


def refuse_folder(path: Path | None) -> None:
    """Raise an error if an output file is a folder; also called before long computations."""
    if path is not None and path.is_dir():
        raise OptionError(f"'{path}' is a folder. Give the name of a file.")


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Call `write` on a temporary file next to `path`, then rename it.

    Temporary files of killed processes are removed. A process holds a lock on its temporary file,
    which ends with the process.
    """
    refuse_folder(path)
    _remove_leftovers(path)
    handle, temporary = _locked_temporary(path)
    try:
        write(temporary)
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
        _sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)
        os.close(handle)


def _locked_temporary(path: Path) -> tuple[int, Path]:
    """Create and lock a temporary file next to `path`; return its handle and its path."""
    while True:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        # Before it was locked, another process may have removed it as a leftover.
        if not _lock(handle, wait=True) or Path(name).exists():
            return handle, Path(name)
        os.close(handle)


def _remove_leftovers(path: Path) -> None:
    """Remove temporary files next to `path` that no process has locked."""
    pattern = re.compile(rf"\.{re.escape(path.name)}\.[a-z0-9_]{{8}}\.tmp")
    with contextlib.suppress(OSError):
        for leftover in [file for file in path.parent.iterdir() if pattern.fullmatch(file.name)]:
            handle = os.open(leftover, os.O_RDWR)
            try:
                if _lock(handle, wait=False):
                    leftover.unlink(missing_ok=True)
            finally:
                os.close(handle)


def _lock(handle: int, *, wait: bool) -> bool:
    """Lock an open file; return whether that worked, which depends on the system."""
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except (ModuleNotFoundError, OSError):
        return False
    return True


def _sync_folder(folder: Path) -> None:
    """Write the names in a folder to disk, if the system supports it."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""

    def write(temporary: Path) -> None:
        temporary.write_text(text, encoding="utf-8")

    write_atomically(path, write)


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """Return the contents of a JSON file.

    Nesting and integers are bounded, so that copying or converting the result cannot fail.
    """
    with _reading(path, ValueError, RecursionError):
        value = json.loads(path.read_text(encoding="utf-8"), parse_int=_integer)
        _check_depth(value)
        return value


@contextlib.contextmanager
def _reading(path: Path, *damage: type[Exception]) -> Iterator[None]:
    """Raise a `RunError` for a file that is missing, unreadable or damaged."""
    try:
        yield
        return
    except FileNotFoundError:
        problem = "no such file"
    except RunError as error:
        problem = str(error)
    except damage:
        problem = "the file is damaged"
    except OSError as error:
        problem = error.strerror or "the file cannot be read"
    raise RunError(f"{path}: {problem}. Restore the file from a copy, or train again.")


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError("an integer with too many digits")
    return int(digits)


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(_DEEPEST):
        level = [
            item
            for container in level
            if isinstance(container, (dict, list))
            for item in (container.values() if isinstance(container, dict) else container)
        ]
    if level:
        raise ValueError("nested too deeply")


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> None:
    """Write tensors as a safetensors file, atomically, with a checksum of its contents.

    Equal tensors with equal metadata are equal bytes.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    header = {**(metadata or {}), _FORMAT: _VERSION}
    header[_CHECKSUM] = _checksum(plain, header)

    def write(temporary: Path) -> None:
        try:
            save_file(plain, temporary, header)
            _sort_header(temporary)
        except SafetensorError as error:
            # A full disk, which safetensors does not report as an OSError.
            number = re.search(r"os error (\d+)", str(error))
            if number is None:
                raise
            raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from None

    write_atomically(path, write)


def _sort_header(path: Path) -> None:
    """Sort the header of a safetensors file: the library writes metadata in a random order."""
    with path.open("rb+") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        text = json.dumps(header, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        content = text.encode().ljust(size)  # the header is padded with spaces
        assert len(content) == size
        file.seek(8)
        file.write(content)


def _checksum(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """Return the SHA-256 of names, types, shapes and bytes of tensors, and of the metadata."""
    digest = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors and the metadata of a safetensors file, without executing anything.

    A file whose contents do not match its checksum is refused. Files of earlier versions have no
    checksum.
    """
    from safetensors import SafetensorError, safe_open

    errors = (SafetensorError, ValueError, RuntimeError, TypeError, ArithmeticError)
    with _reading(path, *errors):
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            metadata = dict(file.metadata() or {})
        version = metadata.get(_FORMAT, _VERSION)  # earlier files have none
        if version != _VERSION:
            raise RunError(
                f"the file has format {shortened(version)}, and this version of undamped reads "
                f"format {_VERSION}: update undamped"
            )
        checksum = metadata.pop(_CHECKSUM, None)
        # A digest under another name is a damaged checksum, not a file of an earlier version.
        old = checksum is None and not any(map(_DIGEST.fullmatch, metadata.values()))
        if old or checksum == _checksum(tensors, metadata):
            metadata.pop(_FORMAT, None)
            return tensors, metadata
        raise RunError("the file was changed or damaged after it was written: its checksum differs")


@contextlib.contextmanager
def file_lock(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold a lock that the operating system releases when the process ends; yield whether it holds.

    On systems without such locks it always holds: only one process may then work in a folder.

    Args:
        path: The file that is locked; it is created if necessary.
        wait: Whether to wait for another process that has the lock.
    """
    try:
        import fcntl
    except ModuleNotFoundError:
        yield True
        return
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        yield True
