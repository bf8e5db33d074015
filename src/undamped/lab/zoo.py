"""The index of the zoo: trained models that come with the library.

`undamped/_zoo` has an index and a run folder for every entry. A name is looked up in the index and
is never part of a path otherwise, and files are compared with the checksums of the index.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import undamped
from undamped._base.errors import RunError
from undamped._base.options import unknown_name
from undamped.lab.files import read_json

ZOO = Path(undamped.__file__).resolve().with_name("_zoo")
FILES = ("run.json", "metrics.csv", "model.safetensors")
"""The files of an entry; checkpoints are not part of it."""


def zoo_index(zoo: Path = ZOO) -> dict[str, dict[str, Any]]:
    """Return the facts about every entry by its name."""
    return read_json(zoo / "index.json")


def zoo_folder(name: str, zoo: Path = ZOO) -> Path:
    """Return the run folder of an entry after its files have been compared with their checksums.

    Args:
        name: The name of the entry.
        zoo: The folder of the zoo.
    """
    index = zoo_index(zoo)
    if name not in index:
        raise unknown_name("entry of the zoo", name, list(index))
    if checksums(zoo / name) != index[name]["sha256"]:
        raise RunError(
            f"The files of the zoo's '{name}' do not match their checksums. Install undamped again."
        )
    return zoo / name


def checksums(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file of an entry that exists."""
    paths = [folder / name for name in FILES]
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in paths if p.is_file()}
