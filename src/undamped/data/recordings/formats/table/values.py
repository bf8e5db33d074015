"""From the columns of a table to numbers, with the place of whatever is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from undamped.data.recordings.resolution import Resolution
from undamped.errors import DataError, explain

if TYPE_CHECKING:
    from pandas import DataFrame

Where = tuple[str, int]  # the file, and how many rows came before


def is_text(piece: DataFrame, name: str) -> bool:
    """Whether a column has values, and none of them is a number."""
    import pandas as pd
    from pandas.api.types import is_numeric_dtype

    column: Any = piece[name]
    if is_numeric_dtype(column) or not column.notna().any():
        return False
    numbers: Any = pd.to_numeric(column, errors="coerce")
    return not numbers.notna().any()


def numbers_of(
    piece: DataFrame, columns: list[str], where: Where, width: int, resolution: Resolution
) -> np.ndarray:
    """Return columns as float32 (rows, columns), NaN where a value is missing.

    Args:
        piece: Some rows of the table.
        columns: Which columns.
        where: For messages.
        width: How many channels there are; with a row per series, each has several columns.
        resolution: Told what rounding does to the channels.
    """
    from pandas.api.types import is_numeric_dtype

    chosen: Any = piece[columns]
    if all(is_numeric_dtype(dtype) for dtype in chosen.dtypes):
        values = chosen.to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        values = np.stack([_numbers_of_one(piece, name, where) for name in columns], axis=1)
    with np.errstate(over="ignore"):
        array = values.astype(np.float32)
    resolution.add(values.reshape(-1, width), array.reshape(-1, width))
    infinite = np.argwhere(np.isinf(array))
    if len(infinite):
        row, column = infinite[0]
        raise _wrong(where, columns[column], int(row), "a finite number", "an infinite one")
    return array


def _numbers_of_one(piece: DataFrame, name: str, where: Where) -> np.ndarray:
    import pandas as pd

    column: Any = piece[name]
    numbers: Any = pd.to_numeric(column, errors="coerce")
    bad = np.flatnonzero((numbers.isna() & column.notna()).to_numpy())
    if len(bad):
        row = int(bad[0])
        raise DataError(
            explain(
                f"{where[0]}: column '{name}', row {where[1] + row + 1}",
                expected="a number",
                got=f"'{str(column.iloc[row])[:40]}'",
                remedy="Correct it, or name the channels with channels=.",
            )
        )
    return numbers.to_numpy(dtype=np.float64, na_value=np.nan)


def text_codes(piece: DataFrame, name: str, known: dict[str, int], where: Where) -> np.ndarray:
    """Return a column of names as numbers (rows,); `known` grows with every new name."""
    import pandas as pd

    numbers, kinds = pd.factorize(piece[name])
    if (numbers < 0).any():
        row = int(np.flatnonzero(numbers < 0)[0])
        raise _wrong(where, name, row, "a name in every row", "an empty field")
    codes = np.array([known.setdefault(str(kind), len(known)) for kind in kinds], dtype=np.int32)
    return codes[numbers]


def label_codes(
    piece: DataFrame, name: str, known: dict[str, int] | None, where: Where
) -> np.ndarray:
    """Return targets as numbers (rows,), NaN where missing; labels by their number in `known`."""
    import pandas as pd

    if known is None:
        return _numbers_of_one(piece, name, where)
    numbers, kinds = pd.factorize(piece[name])
    codes = np.array(
        [known.setdefault(str(kind).strip(), len(known)) for kind in kinds], dtype=np.float64
    )
    return np.append(codes, np.nan)[numbers]  # −1 is the last: missing


def seconds_column(piece: DataFrame, name: str, where: Where) -> np.ndarray:
    """Return time stamps (rows,): numbers as they are, dates as seconds since 1970."""
    import pandas as pd
    from pandas.api.types import is_numeric_dtype

    column: Any = piece[name]
    if is_numeric_dtype(column):
        seconds = column.to_numpy(dtype=np.float64, na_value=np.nan)
        if column.dtype.kind in "iu":
            _refuse_rounded(column.to_numpy(), seconds, name, where)
    else:
        dates: Any = pd.to_datetime(column, errors="coerce", utc=True, format="ISO8601")
        seconds = ((dates - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(1, "s")).to_numpy(np.float64)
        words = column if column.dtype.kind != "M" else column.astype(str)  # no nanoseconds
        numbers: Any = pd.to_numeric(words, errors="coerce")
        if numbers.notna().sum() > dates.notna().sum():
            # Mostly numbers: a column is one or the other, and the odd one out is to be named.
            seconds = numbers.to_numpy(dtype=np.float64, na_value=np.nan)
    bad = np.flatnonzero(~np.isfinite(seconds))
    if len(bad):
        row = int(bad[0])
        got = f"'{str(column.iloc[row])[:40]}'"
        raise _wrong(where, name, row, "a number or an ISO date", got)
    return seconds


def _refuse_rounded(exact: np.ndarray, seconds: np.ndarray, name: str, where: Where) -> None:
    """Refuse stamps beyond 2^53, such as nanoseconds since 1970: their distances would be noise."""
    bad = np.flatnonzero(np.abs(seconds) > 2.0**53)
    if len(bad):
        row = int(bad[0])
        raise DataError(
            explain(
                f"{where[0]}: column '{name}', row {where[1] + row + 1}",
                expected="time stamps that double precision holds exactly",
                got=exact[row],
                remedy="Count from the beginning of the recording, or write ISO dates.",
            )
        )


def _wrong(where: Where, column: str, row: int, expected: str, got: str) -> DataError:
    return DataError(
        explain(
            f"{where[0]}: column '{column}', row {where[1] + row + 1}",
            expected=expected,
            got=got,
            remedy="Correct that place.",
        )
    )
