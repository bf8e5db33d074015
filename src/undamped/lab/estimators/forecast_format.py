"""The format of forecasts: arrays, or pandas objects whose index continues that of the input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from undamped.lab.estimators.inputs import index_of

if TYPE_CHECKING:
    import pandas as pd

_INDEX_STEPS = 64  # steps of an index that are stored, enough to infer its frequency


class ForecastFormat:
    """The format of forecasts, which follows that of the input: an array or a pandas object.

    Args:
        X: The series to continue.
        shape: Its form according to `one_or_many`.
    """

    def __init__(self, X: Any, shape: str) -> None:
        index = index_of(X)
        self.shape, self.name, self.index, self.pairs = shape, None, None, None
        if index is not None and index.nlevels == 1 and shape in ("numbers", "frame"):
            self.index = index[-_INDEX_STEPS:]
            self.name = X.name if shape == "numbers" else None
        elif index is not None and index.nlevels == 2 and shape == "set":
            self.pairs = [
                (name, rows.index.get_level_values(1).sort_values()[-_INDEX_STEPS:])
                for name, rows in X.groupby(level=0, sort=False)
            ]
            self.names = list(index.names)

    def values(self, forecasts: np.ndarray, channels: list[str]) -> Any:
        """Return forecasts (n, horizon, channels) in this format."""
        if self.index is None and self.pairs is None:
            return _shaped(forecasts, self.shape)
        import pandas as pd

        if self.index is not None and self.shape == "numbers":
            return pd.Series(forecasts[0, :, 0], self._future_index(forecasts), name=self.name)
        table = forecasts.reshape(-1, forecasts.shape[2])
        return pd.DataFrame(table, self._future_index(forecasts), pd.Index(channels))

    def quantiles(self, bounds: np.ndarray, channels: list[str], levels: list[float]) -> Any:
        """Return quantiles (n, horizon, channels, levels) in this format."""
        if self.index is None and self.pairs is None:
            return _shaped(bounds, self.shape)
        import pandas as pd

        table = bounds.reshape(-1, len(channels) * len(levels))
        columns: Any = pd.Index(levels, name="quantile")
        if self.shape != "numbers":
            columns = pd.MultiIndex.from_product([channels, levels], names=[None, "quantile"])
        return pd.DataFrame(table, self._future_index(bounds), columns)

    def _future_index(self, values: np.ndarray) -> pd.Index:
        """Return the index of forecasts (n, horizon, …)."""
        import pandas as pd

        steps = values.shape[1]
        if self.index is not None:
            return following(self.index, steps)
        assert self.pairs is not None
        rows = [(name, when) for name, index in self.pairs for when in following(index, steps)]
        return pd.MultiIndex.from_tuples(rows, names=self.names)


def _shaped(values: np.ndarray, shape: str) -> np.ndarray:
    if shape == "numbers":
        return values[0, :, 0]
    if shape == "frame":
        return values[0]
    return values[:, :, 0] if shape == "rows" else values


def following(index: pd.Index, steps: int) -> pd.Index:
    """Return the index of the steps after the last one.

    Dates and periods continue at their frequency, numbers at their step; an index with uneven
    steps is continued by 1, 2, ….

    Args:
        index: The index of one series.
        steps: The number of steps.

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
            values = [index[-1] + (step + 1) * gaps[0] for step in range(steps)]
            return pd.Index(values, name=index.name)
    return pd.RangeIndex(1, steps + 1, name="step")
