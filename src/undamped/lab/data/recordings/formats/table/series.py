"""From columns of numbers to a set of series: rows gathered by id and ordered in time."""

from __future__ import annotations

from typing import Any

import numpy as np

from undamped._base.errors import DataError, explain
from undamped.lab.data.recordings.formats.table.columns import Columns
from undamped.lab.data.recordings.grid import fill_holes
from undamped.lab.data.recordings.series import SeriesSet

_PIECE = 1 << 22


def steps_to_series(
    columns: dict[str, np.ndarray],
    meta: dict[str, Any],
    found: Columns,
    source: str,
    forecast: bool = False,
) -> SeriesSet:
    """Make series of a table with one row per time step."""
    notes = list(found.notes)
    columns = _in_order(columns, source, notes)
    columns = _without_duplicates(columns, meta, found, source, notes)
    codes, rows = columns.get("id"), len(columns["values"])
    starts = np.concatenate([[0], np.zeros(0, int) if codes is None else _changes(codes)])
    spans = list(zip(starts.tolist(), [*starts[1:].tolist(), rows], strict=True))
    ids = ["0"] if codes is None else [meta["ids"][codes[start]] for start in starts]
    series = [columns["values"][a:b] for a, b in spans]
    times = None
    if "time" in columns:
        times = [columns["time"][a:b] for a, b in spans]
        if forecast and meta.get("dates") and not isinstance(columns["values"], np.memmap):
            series, times = fill_holes(series, times, notes)
    return SeriesSet(
        series,
        found.channels,
        _targets(columns, meta, spans),
        ids,
        _groups(columns, meta, spans, ids, source),
        times,
        source=source,
        notes=tuple(notes),
        columns={**found.plain(), **_kind_of_dates(meta)},
    )


def _kind_of_dates(meta: dict[str, Any]) -> dict[str, str]:
    """Return how time stamps are to be written again: as dates, with or without an offset."""
    if not meta.get("dates"):
        return {}
    return {"dates": "utc" if meta.get("zoned") else "local"}


def series_of_rows(
    columns: dict[str, np.ndarray], meta: dict[str, Any], found: Columns, source: str
) -> SeriesSet:
    """Make series of a table with one row per series."""
    values, width = columns["values"], len(found.steps)
    ids = [str(row) for row in range(len(values))]
    if "id" in columns:
        ids = [meta["ids"][code] for code in columns["id"]]
        twice = np.flatnonzero(np.bincount(columns["id"]) > 1)
        if len(twice):
            raise DataError(
                explain(
                    f"{source}: id '{meta['ids'][int(twice[0])]}'",
                    expected="one row, since a row is a whole series",
                    got=f"{np.bincount(columns['id'])[twice[0]]} rows",
                    remedy="Give every series its own id, or say layout=long if a row is a step.",
                )
            )
    series, cut = [], 0
    for row in values:
        steps = row.reshape(-1, width)
        there = np.flatnonzero(~np.isnan(steps).all(1))
        end = int(there[-1]) + 1 if len(there) else len(steps)
        cut += end < len(steps)
        series.append(steps[:end])
    notes = list(found.notes)
    if cut:
        notes.append(f"{cut:,} rows end in missing values and are taken as shorter series.")
    targets = None
    if "target" in columns:
        targets = _named(np.asarray(columns["target"]), meta["labels"])
    groups = None
    if "group" in columns:
        groups = np.array(meta["groups"])[columns["group"]]
    return SeriesSet(
        series,
        list(found.steps),
        targets,
        ids,
        groups,
        source=source,
        notes=tuple(notes),
        columns=found.plain(),
    )


def _changes(codes: np.ndarray) -> np.ndarray:
    """Return where a column changes, looking at one piece after the other."""
    found = []
    for start in range(0, len(codes), _PIECE):
        piece = np.asarray(codes[max(0, start - 1) : start + _PIECE])
        found.append(np.flatnonzero(piece[1:] != piece[:-1]) + max(1, start))
    return np.concatenate(found)


def _in_order(
    columns: dict[str, np.ndarray], source: str, notes: list[str]
) -> dict[str, np.ndarray]:
    """Bring rows of a series together and in the order of time."""
    codes, times = columns.get("id"), columns.get("time")
    scattered = late = False
    if codes is not None:
        first = np.asarray(codes)[np.concatenate([[0], _changes(codes)])]
        scattered = len(np.unique(first)) != len(first)
    if times is not None:
        same = np.ones(len(times) - 1, bool) if codes is None else codes[1:] == codes[:-1]
        late = bool((same & (times[1:] < times[:-1])).any())
    if not scattered and not late:
        return columns
    if isinstance(columns["values"], np.memmap):
        raise DataError(
            explain(
                source,
                expected="rows sorted by series and time, since the file is read in pieces",
                got="others",
                remedy="Sort the file first.",
            )
        )
    keys = [key for key in (times, codes) if key is not None]
    order = np.lexsort(keys)
    notes.append("Rows are sorted by time." if late else "Rows are gathered by their id.")
    return {name: column[order] for name, column in columns.items()}


def _without_duplicates(
    columns: dict[str, np.ndarray],
    meta: dict[str, Any],
    found: Columns,
    source: str,
    notes: list[str],
) -> dict[str, np.ndarray]:
    """Return the columns with one row per time stamp of a series, or refuse repeated ones."""
    times, codes = columns.get("time"), columns.get("id")
    if times is None:
        return columns
    repeated = np.concatenate([[False], np.diff(times) == 0])
    if codes is not None:
        repeated[1:] &= codes[1:] == codes[:-1]
    if not repeated.any():
        return columns
    kind = found.written.get("duplicates", "refuse")
    on_disk = isinstance(columns["values"], np.memmap)
    if kind == "refuse" or on_disk:
        row = int(np.flatnonzero(repeated)[0])
        name = "0" if codes is None else meta["ids"][codes[row]]
        way = "say duplicates=first or duplicates=mean" if not on_disk else "sort it out there"
        raise DataError(
            explain(
                f"{source}: series '{name}'",
                expected="a different time stamp in every row",
                got=f"{_written(times[row], meta)} twice",
                remedy=f"Remove the repeated rows, {way}, or name the id column with id=.",
            )
        )
    first = np.flatnonzero(~repeated)
    single = {name: column[first] for name, column in columns.items()}
    if kind == "mean":
        values = np.asarray(columns["values"], dtype=np.float64)
        there = ~np.isnan(values)
        count = np.add.reduceat(there, first, dtype=np.int64)
        total = np.add.reduceat(np.where(there, values, 0.0), first)
        mean = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
        single["values"] = mean.astype(np.float32)
    how = "left out" if kind == "first" else "averaged"
    notes.append(f"Rows with a repeated time stamp are {how}: {int(repeated.sum()):,}.")
    return single


def _written(stamp: float, meta: dict[str, Any]) -> str:
    """Return a time stamp as it stands in a file: a date where stamps are dates."""
    if not meta.get("dates"):
        return f"{stamp:.12g}"
    date = str(np.datetime64(round(stamp * 1000), "ms")).replace("T", " ")
    return date.removesuffix(".000").removesuffix(" 00:00:00")


def _named(codes: np.ndarray, labels: list[str] | None) -> np.ndarray:
    """Return numbers as they are, or the labels they stand for, empty where missing."""
    if labels is None:
        return codes
    return np.array([*labels, ""])[np.where(np.isnan(codes), len(labels), codes).astype(np.int64)]


def _targets(
    columns: dict[str, np.ndarray], meta: dict[str, Any], spans: list[tuple[int, int]]
) -> np.ndarray | list[np.ndarray] | None:
    if "target" not in columns:
        return None
    column = columns["target"]
    single = np.full(len(spans), np.nan)
    constant = len(spans) > 1
    for number, (start, stop) in enumerate(spans):
        known = np.asarray(column[start:stop])
        known = known[~np.isnan(known)]
        if len(known):
            single[number] = known[0]
            constant = constant and bool((known == known[0]).all())
        if not constant:
            break
    if constant:
        return _named(single, meta["labels"])
    return [_named(column[start:stop], meta["labels"]) for start, stop in spans]


def _groups(
    columns: dict[str, np.ndarray],
    meta: dict[str, Any],
    spans: list[tuple[int, int]],
    ids: list[str],
    source: str,
) -> np.ndarray | None:
    if "group" not in columns:
        return None
    found = []
    for (start, stop), name in zip(spans, ids, strict=True):
        own = np.unique(columns["group"][start:stop])
        if len(own) > 1:
            names = ", ".join(meta["groups"][code] for code in own[:2])
            raise DataError(
                explain(
                    f"{source}: series '{name}'",
                    expected="one group",
                    got=f"{len(own)} ({names}…)",
                    remedy="A series belongs to one group; check the id and group columns.",
                )
            )
        found.append(meta["groups"][own[0]])
    return np.array(found)
