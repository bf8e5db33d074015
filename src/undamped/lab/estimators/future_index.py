"""The index of a pandas object, and the one that comes after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd


def index_of(X: Any) -> pd.Index | None:
    """Return the index of a series or frame of pandas; None of anything else."""
    # Nothing can have one in a process that never imported pandas.
    import sys

    pandas = sys.modules.get("pandas")
    if pandas is None or not isinstance(X, (pandas.Series, pandas.DataFrame)):
        return None
    return X.index


def seconds_of(index: pd.Index) -> np.ndarray | None:
    """Return dates or periods in seconds since 1970; None of other indices, and out of order.

    Args:
        index: The index of one series.
    """
    import pandas as pd

    if isinstance(index, pd.PeriodIndex):
        index = index.to_timestamp()
    if not isinstance(index, pd.DatetimeIndex) or index.hasnans:
        return None
    utc = index.tz_convert("UTC") if index.tz is not None else index.tz_localize("UTC")
    seconds = ((utc - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(1, "s")).to_numpy(np.float64)
    return seconds if (np.diff(seconds) > 0).all() else None


def following(index: pd.Index, steps: int) -> pd.Index:
    """Return the index of so many steps after the last one.

    Dates and periods go on at their frequency, numbers by their step; where those are uneven,
    steps are counted from 1.

    Args:
        index: The index of one series.
        steps: How many.

    Example:
        >>> import pandas as pd
        >>> months = pd.date_range("2024-01-31", periods=3, freq="ME")
        >>> following(months, 2).strftime("%d.%m.").tolist()
        ['30.04.', '31.05.']
    """
    import pandas as pd

    if isinstance(index, pd.PeriodIndex):
        return pd.period_range(index[-1] + 1, periods=steps, freq=index.freq, name=index.name)
    if isinstance(index, pd.DatetimeIndex):
        frequency = index.freq or (pd.infer_freq(index) if len(index) > 2 else None)
        if frequency is not None:
            dates = pd.date_range(index[-1], periods=steps + 1, freq=frequency, name=index.name)
            return dates[1:]
    if isinstance(index, (pd.DatetimeIndex, pd.TimedeltaIndex)) or index.dtype.kind in "iuf":
        gaps = index[1:] - index[:-1] if len(index) > 1 else index[:0]
        if len(gaps) and bool(np.all(gaps == gaps[0])) and gaps[0] != 0 * gaps[0]:
            ahead = [index[-1] + (step + 1) * gaps[0] for step in range(steps)]
            return pd.Index(ahead, name=index.name)
    return pd.RangeIndex(1, steps + 1, name="step")
