"""A set of recordings: series of unequal length, with what is known about each of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from undamped._base.errors import DataError, explain
from undamped.lab.data.recordings.on_disk import (
    as_arrays,
    as_places,
    let_go,
    mapped_from,
    plain_view,
)
from undamped.lab.data.recordings.resolution import Resolution

Targets = np.ndarray | list[np.ndarray] | None
_PIECE = 1 << 20  # numbers looked at in one go
_LET_GO = 1 << 26  # bytes of a file that may stay in memory after they were looked at
_LISTS = ("series", "times", "targets")


@dataclass(frozen=True)
class SeriesSet:
    """Recordings and their labels, before any preparation.

    Args:
        series: One float32 array (time, channels) per recording, NaN where a value is missing;
            an array may lie on disk (`numpy.memmap`).
        channels: The names of the channels.
        targets: One label or number per series (n,), or one array (time,) per series for labels at
            every step, or None.
        ids: What the series are called.
        groups: Whom or what each series belongs to (n,), such as a subject; or None.
        times: Time stamps (time,) per series, or None where steps are evenly spaced.
        parts: "train", "valid" or "test" per series, or None where the source has no split.
        source: Where it came from, for messages.
        origin: For windows: the recording they were cut from and their first step (n, 2).
        notes: What was done while reading, in sentences.
        columns: Which column of a table was taken as what.
        blurred: Channels whose values single precision cannot tell apart.
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
        beside = {
            "targets": self.targets,
            "ids": self.ids,
            "groups": self.groups,
            "times": self.times,
            "parts": self.parts,
            "origin": self.origin,
        }
        for name, values in beside.items():
            if values is not None and len(values) != len(self.series):
                raise DataError(
                    explain(
                        f"{self.source}: {name}",
                        expected=f"one for each of the {len(self.series)} series",
                        got=len(values),
                        remedy="Give as many as there are series.",
                    )
                )
        self._check_shapes()

    def _check_shapes(self) -> None:
        for number, array in enumerate(self.series):
            what = f"{self.source}: series '{self.ids[number]}'"
            if array.ndim != 2 or array.shape[1] != len(self.channels) or not len(array):
                raise DataError(
                    explain(
                        what,
                        expected=f"one or more steps of {len(self.channels)} channels",
                        got=f"an array of shape {array.shape}",
                        remedy="Arrange every series as (time, channels).",
                    )
                )
            for name, values in (("labels", self.targets), ("time stamps", self.times)):
                if isinstance(values, list) and len(values[number]) != len(array):
                    raise DataError(
                        explain(
                            f"{what}, {name}",
                            expected=f"{len(array)}, one per step",
                            got=len(values[number]),
                            remedy="Give one for every time step.",
                        )
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
        """Make a set from arrays in memory.

        Args:
            series: (n, time, channels), (n, time), or a list of (time, channels) or (time,).
            targets: (n,) labels or numbers, a list of (time,) arrays, or None.
            channels: Names of the channels; numbers if none are given.
            groups: (n,) whom each series belongs to.
            times: A list of (time,) arrays.
            source: Where it came from, for messages.
        """
        arrays, resolution = [], Resolution()
        for number, one in enumerate(series):
            array = as_numbers(one, f"{source}: series {number}")
            array = array[:, None] if array.ndim == 1 else array
            exact = np.asarray(one)
            if exact.dtype.kind in "iuf" and array.ndim == 2:
                resolution.add(exact.reshape(array.shape), array)
            arrays.append(array)
        if not arrays:
            raise DataError(f"{source}: expected at least one series, got none. Give some data.")
        width = arrays[0].shape[-1]
        stepwise = isinstance(targets, list) and bool(targets) and np.ndim(targets[0]) == 1
        names = [str(name) for name in channels or range(width)]
        return cls(
            arrays,
            names,
            [np.asarray(one) for one in targets]
            if stepwise
            else (None if targets is None else np.asarray(targets)),
            groups=None if groups is None else np.asarray(groups),
            times=None if times is None else [np.asarray(t, dtype=np.float64) for t in times],
            source=source,
            blurred=resolution.blurred(names) if len(names) == width else (),
        )

    def __len__(self) -> int:
        return len(self.series)

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process is sent: of what lies on disk, only where."""
        return {**self.__dict__, **{name: as_places(getattr(self, name)) for name in _LISTS}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Arrive in another process."""
        self.__dict__.update({**state, **{name: as_arrays(state[name]) for name in _LISTS}})

    @property
    def on_disk(self) -> bool:
        """Whether the recordings lie in a file, of which parts are read when they are needed."""
        return mapped_from(self.series[0]) is not None

    @property
    def nbytes(self) -> int:
        """How large the recordings are, in memory or on disk; windows that overlap count twice."""
        return sum(one.nbytes for one in self.series)

    @property
    def lengths(self) -> np.ndarray:
        """Steps of every series (n,)."""
        return np.array([len(one) for one in self.series], dtype=np.int64)

    @property
    def stepwise(self) -> bool:
        """Whether every step has a label of its own."""
        return isinstance(self.targets, list)

    def take(self, index: Sequence[int] | np.ndarray) -> SeriesSet:
        """Return the series with these numbers, in this order."""
        chosen = [int(i) for i in index]

        def some(values: Any) -> Any:
            if values is None:
                return None
            return [values[i] for i in chosen] if isinstance(values, list) else values[chosen]

        return replace(
            self,
            series=some(self.series),
            targets=some(self.targets),
            ids=some(self.ids),
            groups=some(self.groups),
            times=some(self.times),
            parts=some(self.parts),
            origin=some(self.origin),
        )

    def select(self, channels: Sequence[str]) -> SeriesSet:
        """Return the same series with these channels only, in this order."""
        from undamped._base.options import unknown_name

        for name in channels:
            if name not in self.channels:
                raise unknown_name("channel", name, self.channels)
        if list(channels) == self.channels:
            return self
        places = [self.channels.index(name) for name in channels]
        return replace(
            self,
            series=[one[:, places] for one in self.series],
            channels=list(channels),
            blurred=tuple(name for name in self.blurred if name in channels),
        )

    def windows(self, length: int, stride: int) -> SeriesSet:
        """Cut every series into windows of `length` steps, `stride` apart; views, not copies.

        A series shorter than a window is left out; the windows remember where they lay, so that a
        split keeps those of one recording together or parts them by time.
        """
        series, ids, origin, source = [], [], [], []
        recording = self.copies()  # identical recordings count as one
        times: list[np.ndarray] | None = None if self.times is None else []
        steps: list[np.ndarray] | None = [] if isinstance(self.targets, list) else None
        for number, whole in enumerate(self.series):
            one = plain_view(whole)
            for start in range(0, len(one) - length + 1, stride):
                stop = start + length
                series.append(one[start:stop])
                ids.append(f"{self.ids[number]}[{start}:{stop}]")
                origin.append((recording[number], start))
                source.append(number)
                if times is not None and self.times is not None:
                    times.append(self.times[number][start:stop])
                if steps is not None and isinstance(self.targets, list):
                    steps.append(self.targets[number][start:stop])
        if not series:
            raise DataError(
                explain(
                    f"{self.source}: window",
                    expected=f"at most {int(self.lengths.max())} steps, the longest series",
                    got=length,
                    remedy="Choose a shorter window.",
                )
            )
        labels = None if self.targets is None or steps is not None else self.targets
        return SeriesSet(
            series,
            self.channels,
            steps if steps is not None else None if labels is None else np.asarray(labels)[source],
            ids,
            None if self.groups is None else self.groups[source],
            times,
            None if self.parts is None else self.parts[source],
            self.source,
            np.array(origin, dtype=np.int64),
            self.notes,
            self.columns,
            warnings=self.warnings,
        )

    def copies(self) -> np.ndarray:
        """Return a number per series (n,), the same for series whose values are identical."""
        seen: dict[bytes, int] = {}
        prints = (fingerprint(one) for one in self._looked_through())
        return np.array([seen.setdefault(one, len(seen)) for one in prints])

    def each_piece(self) -> Iterator[np.ndarray]:
        """Give all values, some steps of a series (time, channels) at a time."""
        for one in self._looked_through():
            for piece in pieces(one):
                yield one[piece]

    def _looked_through(self) -> Iterator[np.ndarray]:
        """Give the series one by one; what lies on disk is let go of as soon as it is much."""
        seen: list[np.ndarray] = []
        size = 0
        for one in self.series:
            yield one
            seen.append(one)
            size += one.nbytes
            if size > _LET_GO:
                let_go(seen)
                seen, size = [], 0
        let_go(seen)

    def describe(self) -> str:
        """Say in one line what this is."""
        lengths, count = self.lengths, len(self.channels)
        span = (
            f"{lengths.min():,}"
            if lengths.min() == lengths.max()
            else f"{lengths.min():,} to {lengths.max():,}"
        )
        return (
            f"{len(self):,} series of {span} steps with {count} channel{'s' if count != 1 else ''}"
        )


def as_numbers(values: Any, what: str) -> np.ndarray:
    """Return values as float32, or say why that cannot be; arrays on disk stay there."""
    try:
        if isinstance(values, np.ndarray) and values.dtype == np.float32:
            return values
        array = np.asarray(values)
        if array.dtype.kind == "c":
            raise DataError(
                explain(
                    what,
                    expected="real numbers",
                    got="complex ones",
                    remedy="Give real and imaginary part as two channels.",
                )
            )
        if array.dtype == object or array.dtype.kind in "OUSmM":
            array = np.asarray(values, dtype=np.float64)
        with np.errstate(over="ignore"):
            return array.astype(np.float32)
    except DataError:
        raise
    except (TypeError, ValueError):
        raise DataError(
            explain(
                what,
                expected="numbers",
                got="something else",
                remedy="Turn text into numbers, or leave that channel out.",
            )
        ) from None


def pieces(array: np.ndarray) -> Iterator[slice]:
    """Give slices over time that cover an array with a bounded number of values each.

    Of a long one that lies on disk, what was looked at is let go of.
    """
    step = max(1, _PIECE // max(1, array.shape[1]))
    often = max(1, _LET_GO // max(1, step * array.shape[1] * array.itemsize))
    for place, start in enumerate(range(0, len(array), step), 1):
        yield slice(start, start + step)
        if place % often == 0:
            let_go([array])


def fingerprint(array: np.ndarray) -> bytes:
    """Return a digest of the values of a series; missing values are all alike."""
    digest = hashlib.sha256(repr(array.shape).encode())
    for piece in pieces(array):
        part = np.array(array[piece], dtype=np.float32)
        part[np.isnan(part)] = np.nan
        digest.update((part + 0.0).tobytes())  # -0.0 and 0.0 are the same value
    return digest.digest()
