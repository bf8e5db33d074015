"""Anything that holds several series becomes a list of arrays (time, channels), or a sentence.

Accepted are numpy arrays (n, time, channels) and (n, time), lists of arrays of unequal length,
lists of pandas frames or series, a frame with an index of (series, time), a frame whose cells
hold whole series, a plain frame with one row per series, and a `SeriesSet`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from undamped._base.errors import DataError, explain
from undamped.lab.data.recordings.resolution import Resolution
from undamped.lab.data.recordings.series import SeriesSet

if TYPE_CHECKING:
    import pandas as pd

SHORTEST = 2  # steps; a single one is a point, not a sequence
ACCEPTED = (
    "an array (series, time, channels) or (series, time), a list of arrays (time, channels), "
    "or pandas frames"
)


@dataclass(frozen=True)
class Collection:
    """What was found in an input.

    Args:
        series: One float32 array (time, channels) per series; NaN where a value is missing.
        channels: The names of the channels, if the input had any.
        blurred: Channels whose values single precision cannot tell apart.
        times: Time stamps (time,) of each series, if the input had any.
    """

    series: list[np.ndarray]
    channels: list[str] | None = None
    blurred: tuple[str, ...] = ()
    times: list[np.ndarray] | None = None

    @property
    def width(self) -> int:
        """How many channels every series has."""
        return self.series[0].shape[1]

    def names(self) -> list[str]:
        """Return the names of the channels, made up if the input had none."""
        return self.channels or [f"channel {at}" for at in range(self.width)]


def collect(X: Any, what: str = "X", *, shortest: int = SHORTEST) -> Collection:
    """Turn an input into a list of series.

    Args:
        X: Any of the accepted forms.
        what: What to call it in a message.
        shortest: How many steps a series must have.
    """
    raw, channels = _series_of(X, what)
    times = _stamps_of(X, raw, what)
    if not raw:
        raise DataError(
            explain(what, expected="at least one series", got="0 samples", remedy="Give some data.")
        )
    series = [_matrix(values, f"{what}[{at}]") for at, values in enumerate(raw)]
    _check(series, what, shortest)
    if isinstance(X, SeriesSet):
        return Collection(series, channels, X.blurred, times)
    resolution = Resolution()
    for values, one in zip(raw, series, strict=True):
        exact = np.asarray(values)
        if exact.dtype.kind in "iuf":
            resolution.add(exact.reshape(one.shape), one)
    found = Collection(series, channels, times=times)
    return replace(found, blurred=resolution.blurred(found.names()))


def one_or_many(X: Any) -> tuple[Any, str]:
    """Take a single series for a set of one, where it cannot be taken for several.

    Returns:
        The set, and what it was: "numbers" (time,), "frame" (time, channels), "rows" (n, time) or
        "set".
    """
    if _is_frame(X) and X.index.nlevels == 1:
        return [X], "frame"
    if isinstance(X, (list, tuple)):
        numbers = bool(X) and all(np.ndim(one) == 0 for one in X)
        return ([np.asarray(X)], "numbers") if numbers else (X, "set")
    dimensions = getattr(X, "ndim", None)
    if dimensions == 1 and np.asarray(X).dtype.kind != "O":
        return [np.asarray(X)], "numbers"
    return X, "rows" if dimensions == 2 and not _is_frame(X) else "set"


def _series_of(X: Any, what: str) -> tuple[list[Any], list[str] | None]:
    """Take the container apart; the parts are looked at later."""
    if isinstance(X, SeriesSet):
        return list(X.series), list(X.channels)
    if _is_frame(X):
        return _series_of_frame(X, what)
    if isinstance(X, (list, tuple)):
        if X and all(_is_frame(part) for part in X):
            return list(X), _shared_columns(X, what)
        return list(X), None
    if hasattr(X, "toarray"):  # a sparse matrix has no order in time worth keeping
        raise _unusable(what, "a sparse matrix", "Call its toarray().")
    if X is None or isinstance(X, (str, bytes, dict)) or not hasattr(X, "__array__"):
        raise _unusable(what, f"a {type(X).__name__}", "Put the series into a list.")
    array = np.asarray(X)
    if array.ndim not in (2, 3) and array.dtype != object:
        raise DataError(
            explain(
                what,
                expected="2 or 3 dimensions (series, time[, channels])",
                got=f"shape {array.shape}",
                remedy="Reshape your data: a single series of numbers is X.reshape(1, -1).",
            )
        )
    narrow = array.ndim == 2 and array.shape[1] < SHORTEST and len(array) > 0
    if narrow and array.dtype.kind != "c":
        # Somebody's table of plain features: the words are those scikit-learn's users know.
        got = f"{array.shape[1]} feature(s) (shape={array.shape}) while a minimum of {SHORTEST} is"
        raise DataError(
            explain(
                what,
                expected="one row of values over time per series",
                got=f"{got} required",
                remedy="Reshape your data to (series, time, channels).",
            )
        )
    return list(array), None


def _stamps_of(X: Any, raw: list[Any], what: str) -> list[np.ndarray] | None:
    """Return the time stamps of each series, if the input says any."""
    if isinstance(X, SeriesSet):
        return X.times
    if not raw or not all(_is_frame(one) for one in raw):
        return None
    maybe = [_stamps_of_index(one.index, pairs=_is_frame(X)) for one in raw]
    found = [stamps for stamps in maybe if stamps is not None]
    if len(found) < len(raw):
        return None
    for at, stamps in enumerate(found):
        if not (np.isfinite(stamps).all() and (np.diff(stamps) > 0).all()):
            raise DataError(
                explain(
                    f"{what}[{at}]",
                    expected="an index of times, each later than the one before",
                    got="others",
                    remedy="Sort the rows and drop repeated ones, or reset the index.",
                )
            )
    return found


def _stamps_of_index(index: Any, pairs: bool) -> np.ndarray | None:
    """Return an index of dates in seconds, or of numbers as they are; of others nothing.

    Args:
        index: The index of one series.
        pairs: Whether it is one of (series, time): then whole numbers are times as well, which
            otherwise are numbers of rows.
    """
    import pandas as pd

    values = index.get_level_values(-1)
    if isinstance(values, pd.DatetimeIndex):
        utc = values.tz_convert("UTC") if values.tz is not None else values.tz_localize("UTC")
        return ((utc - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(1, "s")).to_numpy(np.float64)
    if isinstance(values, pd.TimedeltaIndex):
        return (values / pd.Timedelta(1, "s")).to_numpy(np.float64)
    if values.dtype.kind in ("iuf" if pairs else "f"):
        return values.to_numpy(np.float64)
    return None


def _series_of_frame(frame: pd.DataFrame, what: str) -> tuple[list[Any], list[str] | None]:
    names = [str(name) for name in frame.columns]
    if frame.index.nlevels == 2:
        if frame.index.has_duplicates:
            raise DataError(
                explain(
                    what,
                    expected="one row per series and time",
                    got="the same series and time twice",
                    remedy="Drop or average the repeated rows.",
                )
            )
        parts = frame.groupby(level=0, sort=False)
        return [part.sort_index() for _, part in parts], names
    if frame.index.nlevels > 2:
        raise _unusable(
            what,
            f"a frame with an index of {frame.index.nlevels} levels",
            "Keep two levels, (series, time).",
        )
    if len(frame) and len(names) and all(dtype.kind == "O" for dtype in frame.dtypes):
        first = frame.iloc[0, 0]
        if np.ndim(first) == 1:  # cells hold whole series
            return [_row_of_cells(row, f"{what}, row {at}") for at, row in _rows(frame)], names
    return list(frame.to_numpy()), None


def _rows(frame: pd.DataFrame) -> list[tuple[int, list[Any]]]:
    return [(at, list(frame.iloc[at])) for at in range(len(frame))]


def _row_of_cells(cells: list[Any], what: str) -> np.ndarray:
    lengths = {len(cell) if np.ndim(cell) == 1 else -1 for cell in cells}
    if len(lengths) > 1 or -1 in lengths:
        raise DataError(
            explain(
                what,
                expected="channels of one length",
                got=f"lengths {sorted(lengths)}",
                remedy="Bring the channels of a series to one time grid; NaN may fill gaps.",
            )
        )
    return np.stack([_numbers(np.asarray(cell), what) for cell in cells], axis=-1)


def _shared_columns(frames: list[Any] | tuple[Any, ...], what: str) -> list[str]:
    names = [str(name) for name in frames[0].columns]
    for at, frame in enumerate(frames):
        if [str(name) for name in frame.columns] != names:
            raise DataError(
                explain(
                    f"{what}[{at}]",
                    expected=f"the columns of the first frame {names}",
                    got=[str(name) for name in frame.columns],
                    remedy="Give every frame the same columns in the same order.",
                )
            )
    return names


def _matrix(values: Any, what: str) -> np.ndarray:
    """Return one series as float32 (time, channels)."""
    if hasattr(values, "toarray") or isinstance(values, (str, bytes, dict)):
        raise _unusable(what, f"a {type(values).__name__}", "Give each series as an array.")
    try:
        array = np.asarray(values)
    except ValueError:
        raise DataError(
            explain(
                what,
                expected="an array (time, channels)",
                got="rows of unequal length",
                remedy="Every step of one series needs the same channels.",
            )
        ) from None
    array = _numbers(array, what)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2:
        raise DataError(
            explain(
                what,
                expected="a series (time,) or (time, channels)",
                got=f"shape {array.shape}",
                remedy="Reshape your data.",
            )
        )
    return array


def _numbers(array: np.ndarray, what: str) -> np.ndarray:
    if np.iscomplexobj(array):
        raise DataError(
            explain(
                what,
                expected="real numbers",
                got="complex ones (Complex data not supported)",
                remedy="Give real and imaginary part as two channels.",
            )
        )
    if array.dtype.kind not in "biufO":
        raise _unusable(what, f"values of type {array.dtype}", "Turn them into numbers.")
    try:
        with np.errstate(over="ignore"):  # what becomes infinite is refused below
            numbers = np.ascontiguousarray(array, dtype=np.float32)
    except (TypeError, ValueError) as error:
        # pandas' missing value has no float of its own, which an object column may hold.
        if array.dtype == object and "NA" in str(error):
            return _numbers(np.where(_is_missing(array), np.nan, array), what)
        raise _unusable(
            what,
            f"something that is no number: the argument must be a string or a number ({error})",
            "Turn it into a number, or into NaN where it is missing.",
        ) from None
    if np.isinf(numbers).any():
        raise DataError(
            explain(
                what,
                expected="finite numbers or NaN for missing ones",
                got="infinity, or a value too large for float32",
                remedy="Look at the largest values; put NaN where a value is missing.",
            )
        )
    return numbers


def _is_missing(array: np.ndarray) -> np.ndarray:
    import pandas as pd

    return np.asarray(pd.isna(array))


def _check(series: list[np.ndarray], what: str, shortest: int) -> None:
    width = series[0].shape[1]
    if width == 0:
        raise DataError(
            explain(
                what,
                expected="at least one channel",
                got=f"0 feature(s) (shape={series[0].shape}) while a minimum of 1 is required",
                remedy="Give each series as (time, channels).",
            )
        )
    for at, one in enumerate(series):
        if one.shape[1] != width:
            raise DataError(
                explain(
                    f"{what}[{at}]",
                    expected=f"{width} channels, as the first series has",
                    got=one.shape[1],
                    remedy="Every series needs the same channels; only the lengths may differ.",
                )
            )
        if len(one) < shortest:
            raise DataError(
                explain(
                    f"{what}[{at}]",
                    expected=f"a series of at least {shortest} steps",
                    got=f"{len(one)}",
                    remedy="Leave it out. If steps and series are mixed up, the order is (series, "
                    "time, channels).",
                )
            )


def _is_frame(value: Any) -> bool:
    # Nothing can be a frame in a process that never imported pandas.
    import sys

    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(value, pandas.DataFrame)


def _unusable(what: str, got: str, remedy: str) -> DataError:
    return DataError(explain(what, expected=ACCEPTED, got=got, remedy=remedy))
