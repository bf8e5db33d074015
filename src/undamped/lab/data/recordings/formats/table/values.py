"""From the columns of a table to numbers, with the place of whatever is none."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from undamped.lab.data.recordings.formats.table.places import Place, wrong_value
from undamped.lab.data.recordings.formats.table.rows import NO_NUMBER
from undamped.lab.data.recordings.resolution import Resolution

if TYPE_CHECKING:
    from pandas import DataFrame

_WITH_COMMAS = r"\s*[+-]?[0-9.]*,[0-9.,]*[0-9]\s*"
_NUMBER = re.compile(
    r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*|[+-]?inf(inity)?", re.IGNORECASE
)


def is_text(piece: DataFrame, name: str, decimal: str = ".") -> bool:
    """Whether a column has values, and none of them is a number.

    Numbers with commas are no text, even if it is unclear what they mean: they are refused later.
    """
    from pandas.api.types import is_numeric_dtype

    column: Any = piece[name]
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
    except OverflowError:  # a whole number beyond all floats
        return np.inf


def numbers_of(
    piece: DataFrame, columns: list[str], place: Place, width: int, resolution: Resolution
) -> np.ndarray:
    """Return columns as float32 (rows, columns), NaN where a value is missing.

    Args:
        piece: Some rows of the table.
        columns: Which columns.
        place: Where the piece begins.
        width: How many channels there are; with a row per series, each has several columns.
        resolution: Told what rounding does to the channels.
    """
    from pandas.api.types import is_numeric_dtype

    chosen: Any = piece[columns]
    if all(is_numeric_dtype(dtype) for dtype in chosen.dtypes):
        values = chosen.to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        values = np.stack([_numbers_of_one(piece, name, place) for name in columns], axis=1)
    with np.errstate(over="ignore"):
        array = values.astype(np.float32)
    resolution.add(values.reshape(-1, width), array.reshape(-1, width))
    infinite = np.argwhere(np.isinf(array))
    if len(infinite):
        row, column = infinite[0]
        raise wrong_value(place, columns[column], int(row), "a finite number", "an infinite one")
    return array


def _numbers_of_one(piece: DataFrame, name: str, place: Place) -> np.ndarray:
    column: Any = piece[name]
    numbers = numbers_in(column, place.decimal)
    bad = np.flatnonzero(np.isnan(numbers) & column.notna().to_numpy())
    if len(bad):
        row = int(bad[0])
        text = str(column.iloc[row])[:40]
        remedy = "Correct it, say na= if it stands for a missing value, or name the channels with "
        remedy += "channels=."
        if place.decimal == "." and not np.isnan(_number(text, ",")):
            remedy = "Say decimal=, if the comma is the decimal mark of this file."
        raise wrong_value(place, name, row, "a number", f"'{text}'", remedy)
    return numbers


def without_words(piece: DataFrame, name: str) -> DataFrame:
    """Return a column, as a frame, without the words that stand for a missing number."""
    column: Any = piece[[name]]
    return column.mask(column.isin(list(NO_NUMBER)))


def text_codes(piece: DataFrame, name: str, known: dict[str, int], place: Place) -> np.ndarray:
    """Return a column of names as numbers (rows,); `known` grows with every new name."""
    import pandas as pd

    numbers, kinds = pd.factorize(piece[name])
    if (numbers < 0).any():
        row = int(np.flatnonzero(numbers < 0)[0])
        raise wrong_value(place, name, row, "a name in every row", "an empty field")
    codes = np.array([known.setdefault(str(kind), len(known)) for kind in kinds], dtype=np.int32)
    return codes[numbers]


def label_codes(
    piece: DataFrame, name: str, known: dict[str, int] | None, place: Place
) -> np.ndarray:
    """Return targets as numbers (rows,), NaN where missing; labels by their number in `known`."""
    import pandas as pd

    if known is None:
        return _numbers_of_one(without_words(piece, name), name, place)
    numbers, kinds = pd.factorize(piece[name])
    codes = np.array(
        [known.setdefault(str(kind).strip(), len(known)) for kind in kinds], dtype=np.float64
    )
    return np.append(codes, np.nan)[numbers]  # −1 is the last: missing
