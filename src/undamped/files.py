"""Files that are either wholly there or not there at all."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from undamped.errors import OptionError, RunError, explain


def refuse_folder(path: Path | None) -> None:
    """Refuse a folder where a file is to be written; worth asking before long work."""
    if path is not None and path.is_dir():
        raise OptionError(
            explain(
                f"'{path}'",
                expected="a file to write",
                got="a folder",
                remedy="Name a file in it.",
            )
        )


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Call `write` on a temporary neighbour of `path`, then put it in place in one move."""
    refuse_folder(path)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        with temporary.open("rb+") as written:
            os.fsync(written.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""

    def write(temporary: Path) -> None:
        temporary.write_text(text, encoding="utf-8")

    write_atomically(path, write)


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file, or say what is wrong with it."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        got = "no such file"
    except (json.JSONDecodeError, UnicodeDecodeError):
        got = "a damaged one"
    except OSError as error:
        got = error.strerror or "a file that cannot be read"
    raise RunError(
        explain(
            str(path),
            expected="a JSON file",
            got=got,
            remedy="Restore it from a copy, or train anew.",
        )
    )


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> None:
    """Write tensors as a safetensors file, atomically."""
    from safetensors.torch import save_file

    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    write_atomically(path, lambda temporary: save_file(plain, temporary, dict(metadata or {})))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read a safetensors file, tensors and metadata; nothing in it is ever executed."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except FileNotFoundError:
        got = "no such file"
    except (SafetensorError, ValueError):
        got = "a damaged one"
    except OSError as error:
        got = error.strerror or "a file that cannot be read"
    raise RunError(
        explain(
            str(path),
            expected="a safetensors file",
            got=got,
            remedy="Restore it from a copy, or train anew.",
        )
    )
