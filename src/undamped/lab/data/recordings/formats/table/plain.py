"""A CSV file that holds nothing but numbers, a row per time step."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np

from undamped._base.errors import DataError, explain


def read_numbers(path: Path) -> np.ndarray:
    """Read the numbers (time, features), below a line of names if there is one."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # an empty file is only warned about
            return np.loadtxt(path, delimiter=",", ndmin=2, skiprows=_header_rows(path))
    except (ValueError, OSError, UserWarning) as error:  # text that is no UTF-8 is a ValueError
        raise DataError(
            explain(
                str(path),
                expected="rows of numbers, one per time step",
                got=getattr(error, "strerror", None) or str(error).splitlines()[0],
                remedy="Correct that place.",
            )
        ) from None


def _header_rows(path: Path) -> int:
    with path.open(encoding="utf-8-sig") as file:
        first = file.readline()
    try:
        [float(value) for value in first.split(",")]
    except ValueError:
        return 1
    return 0
