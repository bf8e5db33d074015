"""Conversion of an input X to a list of arrays (time, channels).

Accepted are numpy arrays (n, time, channels) and (n, time), lists of arrays of unequal length,
lists of pandas frames or series, a frame with an index of (series, time), a frame whose cells
hold entire series, a plain frame with one row per series, and a `SeriesSet`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from undamped._base.errors import DataError, shortened
from undamped.lab.data.recordings.series import Resolution, SeriesSet

if TYPE_CHECKING:
    import pandas as pd

SHORTEST = 2  # steps
ACCEPTED = (
    "an array (series, time, channels) or (series, time), a list of arrays (time, channels), "
    "or pandas frames"
)


@dataclass(frozen=True)
class Collection:
    """The series of an input.

    Args:
        series: One float32 array (time, channels) per series; NaN where a value is missing.
        channels: The names of the channels, if the input had any.
        blurred: Channels whose values single precision cannot tell apart.
        times: Timestamps (time,) of each series, if the input had any.
    """

    series: list[np.ndarray]
    channels: list[str] | None = None
    blurred: tuple[str, ...] = ()
    times: list[np.ndarray] | None = None

    @property
    def width(self) -> int:
        """The number of channels of every series."""
        return self.series[0].shape[1]

    def names(self) -> list[str]:
        """Return the names of the channels; "channel 0", … if the input had none."""
        return self.channels or [f"channel {index}" for index in range(self.width)]


def collect(X: Any, what: str = "X", *, shortest: int = SHORTEST) -> Collection:
    """Convert an input to a list of series.

    Args:
        X: Any of the accepted forms.
        what: Its name in an error message.
        shortest: The smallest number of steps of a series.
    """
    raw, channels = _series_of(X, what)
    times = _times_of(X, raw, what)
    if not raw:
        raise DataError(f"{what} must hold at least one series, got 0 samples.")
    series = [_matrix(values, f"{what}[{index}]") for index, values in enumerate(raw)]
    _check(series, what, shortest)
    if isinstance(X, SeriesSet):
        return Collection(series, channels, X.blurred, times)
    resolution = Resolution()
    for values, rounded in zip(raw, series, strict=True):
        exact = np.asarray(values)
        if exact.dtype.kind in "iuf":
            resolution.add(exact.reshape(rounded.shape), rounded)
    collection = Collection(series, channels, times=times)
    return replace(collection, blurred=resolution.blurred(collection.names()))


def one_or_many(X: Any) -> tuple[Any, str]:
    """Return an input as a set of series; a single series becomes a set of length 1.

    Returns:
        The set, and the form of the input: "numbers" (time,), "frame" (time, channels), "rows"
        (n, time) or "set".
    """
    if _is_frame(X) and X.index.nlevels == 1:
        return [X], "frame"
    if isinstance(X, (list, tuple)):
        numbers = bool(X) and all(np.ndim(value) == 0 for value in X)
        return ([np.asarray(X)], "numbers") if numbers else (X, "set")
    dimensions = getattr(X, "ndim", None)
    if dimensions == 1 and np.asarray(X).dtype.kind != "O":
        return [np.asarray(X)], "numbers"
    return X, "rows" if dimensions == 2 and not _is_frame(X) else "set"


def _series_of(X: Any, what: str) -> tuple[list[Any], list[str] | None]:
    """Return the series of a container, unchecked, and the names of the channels."""
    if isinstance(X, SeriesSet):
        return list(X.series), list(X.channels)
    if _is_frame(X):
        return _series_of_frame(X, what)
    if isinstance(X, (list, tuple)):
        if X and all(_is_frame(part) for part in X):
            return list(X), _shared_columns(X, what)
        return list(X), None
    if hasattr(X, "toarray"):  # a sparse matrix
        raise _unusable(what, "a sparse matrix", "Call its toarray().")
    if X is None or isinstance(X, (str, bytes, dict)) or not hasattr(X, "__array__"):
        raise _unusable(what, f"a {type(X).__name__}", "Put the series into a list.")
    array = np.asarray(X)
    if array.ndim not in (2, 3) and array.dtype != object:
        raise DataError(
            f"{what} must have 2 or 3 dimensions (series, time[, channels]), got shape "
            f"{array.shape}. Reshape your data: a single series of numbers is X.reshape(1, -1)."
        )
    narrow = array.ndim == 2 and array.shape[1] < SHORTEST and len(array) > 0
    if narrow and array.dtype.kind != "c":
        # Probably a table of features: scikit-learn's checks expect these words.
        raise DataError(
            f"{what} must have one row of values over time per series, got {array.shape[1]} "
            f"feature(s) (shape={array.shape}) while a minimum of {SHORTEST} is required. Reshape "
            "your data to (series, time, channels)."
        )
    return list(array), None


def _times_of(X: Any, raw: list[Any], what: str) -> list[np.ndarray] | None:
    """Return the timestamps of each series, if the input has any."""
    if isinstance(X, SeriesSet):
        return X.times
    if not raw or not all(_is_frame(frame) for frame in raw):
        return None
    times = []
    for frame in raw:
        timestamps = _index_times(frame.index, pairs=_is_frame(X))
        if timestamps is None:
            return None
        times.append(timestamps)
    for index, timestamps in enumerate(times):
        if not (np.isfinite(timestamps).all() and (np.diff(timestamps) > 0).all()):
            raise DataError(
                f"{what}[{index}] must have an index of increasing times. Sort the rows and drop "
                "repeated ones, or reset the index."
            )
    return times


def _index_times(index: Any, pairs: bool) -> np.ndarray | None:
    """Return an index of dates in seconds, an index of numbers unchanged, and otherwise None.

    Args:
        index: The index of one series.
        pairs: Whether it is an index of (series, time). Then integers are times; otherwise they
            are row numbers.
    """
    import pandas as pd

    values = index.get_level_values(-1)
    if isinstance(values, pd.DatetimeIndex):
        return seconds_of_dates(values)
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
                f"{what} has several rows for the same series and time. Drop or average them."
            )
        groups = frame.groupby(level=0, sort=False)
        return [rows.sort_index() for _, rows in groups], names
    if frame.index.nlevels > 2:
        raise _unusable(
            what,
            f"a frame with an index of {frame.index.nlevels} levels",
            "Keep two levels, (series, time).",
        )
    if len(frame) and len(names) and all(dtype.kind == "O" for dtype in frame.dtypes):
        first = frame.iloc[0, 0]
        if np.ndim(first) == 1:  # cells hold entire series
            rows = [list(frame.iloc[row]) for row in range(len(frame))]
            series = [_row_of_cells(row, f"{what}, row {i}") for i, row in enumerate(rows)]
            return series, names
    return list(frame.to_numpy()), None


def _row_of_cells(cells: list[Any], what: str) -> np.ndarray:
    lengths = {len(cell) if np.ndim(cell) == 1 else -1 for cell in cells}
    if len(lengths) > 1 or -1 in lengths:
        raise DataError(
            f"{what} must have channels of the same length, got lengths {sorted(lengths)}. Bring "
            "the channels of a series to one time grid; NaN may fill gaps."
        )
    return np.stack([_numbers(np.asarray(cell), what) for cell in cells], axis=-1)


def _shared_columns(frames: list[Any] | tuple[Any, ...], what: str) -> list[str]:
    names = [str(name) for name in frames[0].columns]
    for index, frame in enumerate(frames):
        columns = [str(name) for name in frame.columns]
        if columns != names:
            raise DataError(
                f"{what}[{index}] must have the columns of the first frame, {shortened(names)}, in "
                f"the same order, got {shortened(columns)}."
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
            f"{what} must be an array (time, channels), got rows of unequal length."
        ) from None
    array = _numbers(array, what)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2:
        raise DataError(
            f"{what} must be a series (time,) or (time, channels), got shape {array.shape}. "
            "Reshape your data."
        )
    return array


def _numbers(array: np.ndarray, what: str) -> np.ndarray:
    if np.iscomplexobj(array):
        raise DataError(
            f"{what} must be real, got complex numbers. Complex data not supported; use the real "
            "and imaginary parts as two channels."
        )
    if array.dtype.kind not in "biufO":
        raise _unusable(what, f"values of type {array.dtype}", "Convert them to numbers.")
    try:
        with np.errstate(over="ignore"):  # infinite values raise an error below
            numbers = np.ascontiguousarray(array, dtype=np.float32)
    except (TypeError, ValueError) as error:
        # An object column may hold pandas' missing value, which cannot be converted to float.
        if array.dtype == object and "NA" in str(error):
            import pandas as pd

            return _numbers(np.where(np.asarray(pd.isna(array)), np.nan, array), what)
        raise _unusable(
            what,
            f"a value that is not a number: the argument must be a string or a number ({error})",
            "Convert it to a number, or to NaN if it is missing.",
        ) from None
    if np.isinf(numbers).any():
        raise DataError(
            f"{what} must be finite, or NaN for missing values, got infinity or a value too large "
            "for float32."
        )
    return numbers


def _check(series: list[np.ndarray], what: str, shortest: int) -> None:
    width = series[0].shape[1]
    if width == 0:
        raise DataError(
            f"{what} must have at least one channel, got 0 feature(s) (shape={series[0].shape}) "
            "while a minimum of 1 is required. Each series is (time, channels)."
        )
    for index, values in enumerate(series):
        if values.shape[1] != width:
            raise DataError(
                f"{what}[{index}] must have {width} channels, like the first series, got "
                f"{values.shape[1]}. Only the lengths of series may differ."
            )
        if len(values) < shortest:
            raise DataError(
                f"{what}[{index}] must have at least {shortest} steps, got {len(values)}. Leave it "
                "out, or check the order of dimensions: (series, time, channels)."
            )


def _is_frame(value: Any) -> bool:
    pandas = sys.modules.get("pandas")  # without it no value can be a frame
    return pandas is not None and isinstance(value, pandas.DataFrame)


def _unusable(what: str, got: str, remedy: str) -> DataError:
    return DataError(f"{what} must be {ACCEPTED}, got {shortened(got)}. {remedy}")


def index_of(X: Any) -> pd.Index | None:
    """Return the index of a pandas series or frame, and None for other inputs."""
    pandas = sys.modules.get("pandas")
    if pandas is None or not isinstance(X, (pandas.Series, pandas.DataFrame)):
        return None
    return X.index


def seconds_of(index: pd.Index) -> np.ndarray | None:
    """Return increasing dates or periods in seconds since 1970, and None for other indices."""
    import pandas as pd

    if isinstance(index, pd.PeriodIndex):
        index = index.to_timestamp()
    if not isinstance(index, pd.DatetimeIndex) or index.hasnans:
        return None
    seconds = seconds_of_dates(index)
    return seconds if (np.diff(seconds) > 0).all() else None


def seconds_of_dates(index: pd.DatetimeIndex) -> np.ndarray:
    """Return dates in seconds since 1970, in UTC unless they have a time zone."""
    import pandas as pd

    utc = index.tz_convert("UTC") if index.tz is not None else index.tz_localize("UTC")
    return ((utc - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(1, "s")).to_numpy(np.float64)
