"""Columns of a table as numbers; an error names the column and the row of a wrong value."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from undamped._base.errors import DataError
from undamped.lab.data.recordings.formats.table.rows import NO_NUMBER
from undamped.lab.data.recordings.series import Resolution

if TYPE_CHECKING:
    from pandas import DataFrame

_WITH_COMMAS = r"\s*[+-]?[0-9.]*,[0-9.,]*[0-9]\s*"
_NUMBER = re.compile(
    r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*|[+-]?inf(inity)?", re.IGNORECASE
)


class Position(NamedTuple):
    """Where a block of a table begins.

    Args:
        path: The file.
        rows_before: How many rows precede the block.
        decimal: The decimal mark of the file.
    """

    path: str
    rows_before: int
    decimal: str = "."

    def error(self, column: str, row: int, problem: str) -> DataError:
        """Return the error for a value; `row` counts from the beginning of the block.

        Args:
            column: The column.
            row: The row in the block.
            problem: What is wrong, and what to do.
        """
        return DataError(
            f"{self.path}: column '{column}', row {self.rows_before + row + 1}: {problem}"
        )


def is_text(block: DataFrame, name: str, decimal: str = ".") -> bool:
    """Whether a column has values, and none of them is a number.

    Numbers with commas are not text, even if they are ambiguous: they raise an error later.
    """
    from pandas.api.types import is_numeric_dtype

    column: Any = block[name]
    if is_numeric_dtype(column) or not column.notna().any():
        return False
    if np.isfinite(numbers_in(column, decimal)).any():
        return False
    words = column.dropna().astype(str)
    return not bool(words.str.fullmatch(_WITH_COMMAS).all())


def numbers_in(column: Any, decimal: str = ".") -> np.ndarray:
    """Return a column as float64 (rows,), NaN where there is no number.

    Text is read by Python and not by pandas, whose parser crashes at large exponents.
    """
    from pandas.api.types import is_numeric_dtype

    if is_numeric_dtype(column):
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    if column.dtype.kind in "mM":
        return np.full(len(column), np.nan)
    return np.array([_number(value, decimal) for value in column.tolist()], dtype=np.float64)


def _number(value: Any, decimal: str) -> float:
    if isinstance(value, str):
        if decimal != ".":
            value = value.replace(".", "x").replace(decimal, ".")  # a point is no decimal mark then
        if not _NUMBER.fullmatch(value):
            return np.nan
    try:
        return float(value)
    except (TypeError, ValueError):
        return np.nan
    except OverflowError:  # an integer beyond all floats
        return np.inf


def numbers_of(
    block: DataFrame, columns: list[str], position: Position, width: int, resolution: Resolution
) -> np.ndarray:
    """Return columns as float32 (rows, columns), NaN where a value is missing.

    Args:
        block: Some rows of the table.
        columns: Which columns.
        position: Where the block begins.
        width: How many channels there are; with a row per series, each has several columns.
        resolution: Records the rounding errors of the channels.
    """
    from pandas.api.types import is_numeric_dtype

    frame: Any = block[columns]
    if all(is_numeric_dtype(dtype) for dtype in frame.dtypes):
        values = frame.to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        values = np.stack([_numbers_of_column(block, name, position) for name in columns], axis=1)
    with np.errstate(over="ignore"):
        array = values.astype(np.float32)
    resolution.add(values.reshape(-1, width), array.reshape(-1, width))
    infinite = np.argwhere(np.isinf(array))
    if len(infinite):
        row, column = infinite[0]
        raise position.error(columns[column], int(row), "the number is infinite.")
    return array


def _numbers_of_column(block: DataFrame, name: str, position: Position) -> np.ndarray:
    column: Any = block[name]
    numbers = numbers_in(column, position.decimal)
    bad = np.flatnonzero(np.isnan(numbers) & column.notna().to_numpy())
    if len(bad):
        row = int(bad[0])
        text = str(column.iloc[row])[:40]
        remedy = f"Give na={text} if it means a missing value, or select channels with channels=."
        if position.decimal == "." and not np.isnan(_number(text, ",")):
            remedy = "Give decimal=, if the comma is the decimal mark of this file."
        raise position.error(name, row, f"'{text}' is not a number. {remedy}")
    return numbers


def without_words(block: DataFrame, name: str) -> DataFrame:
    """Return a column, as a frame, without the words that stand for a missing number."""
    column: Any = block[[name]]
    return column.mask(column.isin(list(NO_NUMBER)))


def text_codes(
    block: DataFrame, name: str, codes: dict[str, int], position: Position
) -> np.ndarray:
    """Return a column of names as numbers (rows,), and add new names to `codes`."""
    import pandas as pd

    numbers, kinds = pd.factorize(block[name])
    if (numbers < 0).any():
        row = int(np.flatnonzero(numbers < 0)[0])
        raise position.error(name, row, "the name is missing.")
    values = [codes.setdefault(str(kind), len(codes)) for kind in kinds]
    return np.array(values, dtype=np.int32)[numbers]


def label_codes(
    block: DataFrame, name: str, codes: dict[str, int] | None, position: Position
) -> np.ndarray:
    """Return targets as numbers (rows,), NaN where missing, and add new labels to `codes`.

    Args:
        block: Some rows of the table.
        name: The column.
        codes: The number of each label; None where targets are numbers.
        position: Where the block begins.
    """
    import pandas as pd

    if codes is None:
        return _numbers_of_column(without_words(block, name), name, position)
    numbers, kinds = pd.factorize(block[name])
    values = [codes.setdefault(str(kind).strip(), len(codes)) for kind in kinds]
    return np.array([*values, np.nan], dtype=np.float64)[numbers]  # −1 is the last: missing
