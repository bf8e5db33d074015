"""A set of recordings: series of unequal length with targets, groups and timestamps."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from undamped._base.errors import DataError
from undamped._base.options import unknown_name
from undamped.lab.data.recordings.on_disk import (
    from_file_arrays,
    mapped_from,
    release,
    to_file_arrays,
)

Targets = np.ndarray | list[np.ndarray] | None
BLOCK = 1 << 20
"""Numbers that are read at once."""
_RELEASE = 1 << 26  # bytes of a file that may stay in memory after they were read
_WORST = 0.01  # largest rounding error, as a fraction of the range of a channel
_PER_SERIES = ("series", "targets", "ids", "groups", "times", "parts", "origin")
_LISTS = ("series", "times", "targets")


@dataclass(frozen=True)
class SeriesSet:
    """Recordings and their labels, before any preparation.

    Args:
        series: One float32 array (time, channels) per recording, NaN where a value is missing;
            an array may be on disk (`numpy.memmap`).
        channels: The names of the channels.
        targets: One label or number per series (n,), or one array (time,) per series for labels at
            every step, or None.
        ids: The names of the series.
        groups: The group of each series (n,), such as a subject; or None.
        times: Timestamps (time,) per series, or None where steps are evenly spaced.
        parts: "train", "valid" or "test" per series, or None where the source has no split.
        source: The file or object it was read from, for messages.
        origin: For windows: the recording they were cut from and their first step (n, 2).
        notes: What was done while reading, in sentences.
        columns: The roles of the columns of a table.
        blurred: Channels whose differences single precision cannot represent.
        warnings: What looked suspicious while reading, in sentences.

    Example:
        >>> import numpy as np
        >>> waves = [np.sin(np.arange(n) / 5)[:, None] for n in (50, 80)]
        >>> SeriesSet.of(waves, targets=["slow", "fast"]).describe()
        '2 series of 50 to 80 steps with 1 channel'
    """

    series: list[np.ndarray]
    channels: list[str]
    targets: Targets = None
    ids: list[str] = field(default_factory=list)
    groups: np.ndarray | None = None
    times: list[np.ndarray] | None = None
    parts: np.ndarray | None = None
    source: str = "data"
    origin: np.ndarray | None = None
    notes: tuple[str, ...] = ()
    columns: dict[str, Any] = field(default_factory=dict)
    blurred: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.ids:
            object.__setattr__(self, "ids", [str(number) for number in range(len(self.series))])
        for name in _PER_SERIES:
            values = getattr(self, name)
            if values is not None and len(values) != len(self.series):
                raise DataError(
                    f"{self.source}: there are {len(self.series)} series but {len(values)} {name}."
                )
        self._check_shapes()

    def _check_shapes(self) -> None:
        for number, array in enumerate(self.series):
            name = f"{self.source}: series '{self.ids[number]}'"
            if array.ndim != 2 or array.shape[1] != len(self.channels) or not len(array):
                raise DataError(
                    f"{name} must have the shape (time, {len(self.channels)}) with at least one "
                    f"step, got {array.shape}."
                )
            for kind, values in (("labels", self.targets), ("timestamps", self.times)):
                if isinstance(values, list) and len(values[number]) != len(array):
                    raise DataError(
                        f"{name} has {len(array)} steps but {len(values[number])} {kind}."
                    )

    @classmethod
    def of(
        cls,
        series: Sequence[Any] | np.ndarray,
        targets: Any = None,
        *,
        channels: Sequence[str] | None = None,
        groups: Any = None,
        times: Sequence[Any] | None = None,
        source: str = "data",
    ) -> SeriesSet:
        """Return a set of arrays in memory.

        Args:
            series: (n, time, channels), (n, time), or a list of (time, channels) or (time,).
            targets: (n,) labels or numbers, a list of (time,) arrays, or None.
            channels: Names of the channels; numbers by default.
            groups: (n,) the group of each series.
            times: A list of (time,) arrays.
            source: A name for messages.
        """
        arrays, resolution = [], Resolution()
        for number, values in enumerate(series):
            array = as_numbers(values, f"{source}: series {number}")
            array = array[:, None] if array.ndim == 1 else array
            exact = np.asarray(values)
            if exact.dtype.kind in "iuf" and array.ndim == 2:
                resolution.add(exact.reshape(array.shape), array)
            arrays.append(array)
        if not arrays:
            raise DataError(f"{source} has no series.")
        width = arrays[0].shape[-1]
        if isinstance(targets, list) and targets and np.ndim(targets[0]) == 1:
            targets = [np.asarray(labels) for labels in targets]
        elif targets is not None:
            targets = np.asarray(targets)
        names = [str(name) for name in channels or range(width)]
        return cls(
            arrays,
            names,
            targets,
            groups=None if groups is None else np.asarray(groups),
            times=None if times is None else [np.asarray(t, dtype=np.float64) for t in times],
            source=source,
            blurred=resolution.blurred(names) if len(names) == width else (),
        )

    def __len__(self) -> int:
        return len(self.series)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for another process; arrays on disk are sent as their location."""
        return {**self.__dict__, **{name: to_file_arrays(getattr(self, name)) for name in _LISTS}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the state in another process."""
        self.__dict__.update({**state, **{name: from_file_arrays(state[name]) for name in _LISTS}})

    @property
    def on_disk(self) -> bool:
        """Whether the recordings are memory-mapped."""
        return mapped_from(self.series[0]) is not None

    @property
    def nbytes(self) -> int:
        """How large the recordings are, in memory or on disk; windows that overlap count twice."""
        return sum(series.nbytes for series in self.series)

    @property
    def lengths(self) -> np.ndarray:
        """Steps of every series (n,)."""
        return np.array([len(series) for series in self.series], dtype=np.int64)

    @property
    def stepwise(self) -> bool:
        """Whether there is one target per step."""
        return isinstance(self.targets, list)

    def take(self, index: Sequence[int] | np.ndarray) -> SeriesSet:
        """Return the series with these numbers, in this order."""
        numbers = [int(i) for i in index]

        def some(values: Any) -> Any:
            if values is None:
                return None
            return [values[i] for i in numbers] if isinstance(values, list) else values[numbers]

        return replace(self, **{name: some(getattr(self, name)) for name in _PER_SERIES})

    def check_channels(self, names: Sequence[str]) -> None:
        """Raise an error for a name that is not a channel."""
        for name in names:
            if name not in self.channels:
                raise unknown_name("channel", name, self.channels)

    def select(self, channels: Sequence[str]) -> SeriesSet:
        """Return the same series with these channels only, in this order."""
        self.check_channels(channels)
        if list(channels) == self.channels:
            return self
        columns = [self.channels.index(name) for name in channels]
        return replace(
            self,
            series=[series[:, columns] for series in self.series],
            channels=list(channels),
            blurred=tuple(name for name in self.blurred if name in channels),
        )

    def windows(self, length: int, stride: int) -> SeriesSet:
        """Cut every series into windows of `length` steps, `stride` apart; views, not copies.

        A series shorter than a window is left out. `origin` records where each window was, so that
        a split keeps those of one recording together or splits them by time.
        """
        cuts = [
            (number, start)
            for number, series in enumerate(self.series)
            for start in range(0, len(series) - length + 1, stride)
        ]
        if not cuts:
            raise DataError(
                f"{self.source}: a window must have at most {int(self.lengths.max())} steps, the "
                f"length of the longest series; got {length}."
            )

        def cut(arrays: Any) -> Any:
            if not isinstance(arrays, list):  # None, or one target per series
                return None if arrays is None else np.asarray(arrays)[source]
            return [arrays[number][start : start + length] for number, start in cuts]

        source = [number for number, _ in cuts]
        recording = self.copies()  # identical recordings count as one
        return replace(
            self,
            # Every slice of a memmap has a dictionary; those of an ordinary view are small.
            series=cut([series.view(np.ndarray) for series in self.series]),
            targets=cut(self.targets),
            ids=[f"{self.ids[number]}[{start}:{start + length}]" for number, start in cuts],
            groups=None if self.groups is None else self.groups[source],
            times=cut(self.times),
            parts=None if self.parts is None else self.parts[source],
            origin=np.array([(recording[n], start) for n, start in cuts], dtype=np.int64),
            blurred=(),
        )

    def copies(self) -> np.ndarray:
        """Return a number per series (n,), the same for series whose values are identical."""
        numbers: dict[bytes, int] = {}
        digests = (fingerprint(series) for series in self._each_series())
        return np.array([numbers.setdefault(digest, len(numbers)) for digest in digests])

    def each_block(self) -> Iterator[np.ndarray]:
        """Yield all values, some steps of a series (time, channels) at a time."""
        for series in self._each_series():
            for steps in time_slices(series):
                yield series[steps]

    def _each_series(self) -> Iterator[np.ndarray]:
        """Yield the series; pages of memory-mapped files are released after a while."""
        pending: list[np.ndarray] = []
        size = 0
        for series in self.series:
            yield series
            pending.append(series)
            size += series.nbytes
            if size > _RELEASE:
                release(pending)
                pending, size = [], 0
        release(pending)

    def describe(self) -> str:
        """Return number, length and channels of the series in one line."""
        low, high, count = self.lengths.min(), self.lengths.max(), len(self.channels)
        span = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        channels = "1 channel" if count == 1 else f"{count} channels"
        return f"{len(self):,} series of {span} steps with {channels}"


class Resolution:
    """Detects channels whose differences single precision, with seven digits, cannot represent.

    Values are compared block by block, before and after rounding. A signal of a few units on an
    offset of a billion would be lost silently.
    """

    def __init__(self) -> None:
        self._low = self._high = self._error = np.full(1, np.nan)

    def add(self, exact: np.ndarray, rounded: np.ndarray) -> None:
        """Add some rows (rows, channels), before and after rounding."""
        if exact.dtype == rounded.dtype or not exact.size:
            return
        values = exact.astype(np.float64, copy=False)
        # fmin and fmax ignore missing values.
        self._low = np.fmin(self._low, np.fmin.reduce(values))
        self._high = np.fmax(self._high, np.fmax.reduce(values))
        with np.errstate(invalid="ignore"):  # infinite values raise an error elsewhere
            error = np.fmax.reduce(np.abs(values - rounded))
        self._error = np.fmax(self._error, error)

    def blurred(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the channels that lose too much by rounding."""
        spread = self._high - self._low
        with np.errstate(invalid="ignore"):
            blurred = np.broadcast_to((spread > 0) & (self._error > _WORST * spread), len(names))
        return tuple(name for name, flag in zip(names, blurred, strict=True) if flag)


def as_numbers(values: Any, name: str) -> np.ndarray:
    """Return values as float32, or raise a `DataError`; float32 arrays on disk stay there."""
    if isinstance(values, np.ndarray) and values.dtype == np.float32:
        return values
    try:
        array = np.asarray(values)
        if array.dtype.kind in "OUSmM":
            array = np.asarray(values, dtype=np.float64)
        if array.dtype.kind != "c":
            with np.errstate(over="ignore"):
                return array.astype(np.float32)
    except (TypeError, ValueError):
        raise DataError(
            f"{name} has values that are not numbers. Convert them, or leave that channel out."
        ) from None
    raise DataError(
        f"{name}: complex numbers are not supported. Give real and imaginary part as two channels."
    )


def time_slices(array: np.ndarray, block: int = BLOCK) -> Iterator[slice]:
    """Yield slices over time that cover an array with at most `block` values each.

    The pages of a long memory-mapped array are released after they were read.
    """
    step = max(1, block // max(1, array.shape[1]))
    often = max(1, _RELEASE // max(1, step * array.shape[1] * array.itemsize))
    for count, start in enumerate(range(0, len(array), step), 1):
        yield slice(start, start + step)
        if count % often == 0:
            release([array])


def fingerprint(array: np.ndarray) -> bytes:
    """Return a digest of the values of a series; all missing values are the same."""
    digest = hashlib.sha256(repr(array.shape).encode())
    for steps in time_slices(array):
        values = np.array(array[steps], dtype=np.float32)
        values[np.isnan(values)] = np.nan
        digest.update((values + 0.0).tobytes())  # -0.0 and 0.0 are the same value
    return digest.digest()
