"""Arrays from files, never objects: a pickle in the place of an array is refused unread."""

from __future__ import annotations

import lzma
import tokenize
import zipfile
import zlib
from pathlib import Path

import numpy as np

from undamped._base.errors import DataError, explain

DAMAGE = (
    OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, lzma.LZMAError,
    tokenize.TokenError, SyntaxError, NotImplementedError, RuntimeError, MemoryError,
    LookupError, TypeError, AttributeError, ArithmeticError,
)  # fmt: skip
"""What NumPy and the readers below it raise where a file is damaged."""


def check_array_file(path: Path) -> None:
    """Refuse a `.npy` or `.npz` file that holds anything but plain numbers or text."""
    try:
        loaded = np.load(path, mmap_mode="r", allow_pickle=False)
        if isinstance(loaded, np.lib.npyio.NpzFile):
            with loaded:
                for name in loaded.files:
                    loaded[name]
    except DAMAGE as error:
        # numpy says "pickled", or "Python objects" where it would map the file into memory.
        told = str(error).lower()
        got = "a pickled object" if "pickle" in told or "objects" in told else "a damaged file"
        raise DataError(
            explain(
                path.name,
                expected="an array of numbers or text",
                got=got,
                remedy="Pickles can run code and are never opened; save the array itself.",
            )
        ) from None
