"""Arrays from files, never objects: a pickle instead of an array is refused unread."""

from __future__ import annotations

import lzma
import tokenize
import zipfile
import zlib
from pathlib import Path

import numpy as np

from undamped._base.errors import DataError, shortened

DAMAGE = (
    OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, lzma.LZMAError,
    tokenize.TokenError, SyntaxError, NotImplementedError, RuntimeError, MemoryError,
    LookupError, TypeError, AttributeError, ArithmeticError,
)  # fmt: skip
"""What NumPy and the readers below it raise for a damaged file."""


def damaged(path: Path, problem: str) -> DataError:
    """Return the error for a published file that cannot be used.

    Args:
        path: The file.
        problem: What is wrong, as the end of a sentence that begins with the path.
    """
    return DataError(f"{path} {shortened(problem)}. Fetch the data again.")


def check_array_file(path: Path) -> None:
    """Raise an error for a `.npy` or `.npz` file that contains anything but numbers or text."""
    try:
        loaded = np.load(path, mmap_mode="r", allow_pickle=False)
        if isinstance(loaded, np.lib.npyio.NpzFile):
            with loaded:
                for name in loaded.files:
                    loaded[name]
    except DAMAGE as error:
        # numpy says "pickled", or "Python objects" where it would map the file into memory.
        message = str(error).lower()
        pickled = "pickle" in message or "objects" in message
        raise DataError(
            f"{path.name} is {'a pickled object' if pickled else 'damaged'} instead of an array of "
            "numbers or text. Pickles can run code and are never opened; save the array itself."
        ) from None
