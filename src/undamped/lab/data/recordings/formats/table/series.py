"""Series from columns of numbers: rows grouped by id and sorted by time."""

from __future__ import annotations

from typing import Any

import numpy as np

from undamped._base.errors import DataError, shortened
from undamped.lab.data.recordings.formats.table.columns import Columns
from undamped.lab.data.recordings.grid import fill_holes
from undamped.lab.data.recordings.series import SeriesSet

Arrays = dict[str, np.ndarray]
Meta = dict[str, Any]
Spans = list[tuple[int, int]]
_BLOCK = 1 << 22


def steps_to_series(
    columns: Arrays, meta: Meta, roles: Columns, source: str, forecast: bool = False
) -> SeriesSet:
    """Return the series of a table with one row per time step."""
    notes = list(roles.notes)
    columns = _sort(columns, source, notes)
    columns = _without_duplicates(columns, meta, roles, source, notes)
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
    dates = {}
    if meta.get("dates"):  # predictions write timestamps as dates too
        dates = {"dates": "utc" if meta.get("zoned") else "local"}
    return SeriesSet(
        series,
        roles.channels,
        _targets(columns, meta, spans),
        ids,
        _groups(columns, meta, spans, ids, source),
        times,
        source=source,
        notes=tuple(notes),
        columns={**roles.record(), **dates},
    )


def series_of_rows(columns: Arrays, meta: Meta, roles: Columns, source: str) -> SeriesSet:
    """Return the series of a table with one row per series."""
    values, width = columns["values"], len(roles.steps)
    ids = [str(row) for row in range(len(values))]
    if "id" in columns:
        ids = [meta["ids"][code] for code in columns["id"]]
        counts = np.bincount(columns["id"])
        repeated = np.flatnonzero(counts > 1)
        if len(repeated):
            code = int(repeated[0])
            raise DataError(
                f"{source}: id '{meta['ids'][code]}' is in {counts[code]} rows, but every row is a "
                "series. Give every series an id, or set layout=long if a row is a step."
            )
    series, shorter = [], 0
    for row in values:
        steps = row.reshape(-1, width)
        observed = np.flatnonzero(~np.isnan(steps).all(1))
        end = int(observed[-1]) + 1 if len(observed) else len(steps)
        shorter += end < len(steps)
        series.append(steps[:end])
    notes = list(roles.notes)
    if shorter:
        notes.append(f"{shorter:,} rows end in missing values and are read as shorter series.")
    targets = None
    if "target" in columns:
        targets = _decode(np.asarray(columns["target"]), meta["labels"])
    groups = None
    if "group" in columns:
        groups = np.array(meta["groups"])[columns["group"]]
    return SeriesSet(
        series,
        list(roles.steps),
        targets,
        ids,
        groups,
        source=source,
        notes=tuple(notes),
        columns=roles.record(),
    )


def _changes(codes: np.ndarray) -> np.ndarray:
    """Return the rows at which a column changes, computed block by block."""
    changes = []
    for start in range(0, len(codes), _BLOCK):
        block = np.asarray(codes[max(0, start - 1) : start + _BLOCK])
        changes.append(np.flatnonzero(block[1:] != block[:-1]) + max(1, start))
    return np.concatenate(changes)


def _sort(columns: Arrays, source: str, notes: list[str]) -> Arrays:
    """Return rows sorted by series and time."""
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
            f"{source}: the rows of a file larger than memory must be sorted by series and time. "
            "Sort the file first."
        )
    keys = [key for key in (times, codes) if key is not None]
    order = np.lexsort(keys)
    notes.append("Rows are sorted by time." if late else "Rows are grouped by their id.")
    return {name: column[order] for name, column in columns.items()}


def _without_duplicates(
    columns: Arrays, meta: Meta, roles: Columns, source: str, notes: list[str]
) -> Arrays:
    """Return the columns with one row per timestamp of a series, as `duplicates` says."""
    times, codes = columns.get("time"), columns.get("id")
    if times is None:
        return columns
    repeated = np.concatenate([[False], np.diff(times) == 0])
    if codes is not None:
        repeated[1:] &= codes[1:] == codes[:-1]
    if not repeated.any():
        return columns
    kind = roles.syntax.get("duplicates", "refuse")
    on_disk = isinstance(columns["values"], np.memmap)
    if kind == "refuse" or on_disk:
        row = int(np.flatnonzero(repeated)[0])
        name = "0" if codes is None else meta["ids"][codes[row]]
        option = "" if on_disk else " set duplicates=first or duplicates=mean,"
        raise DataError(
            f"{source}: series '{shortened(name)}' has two rows with the timestamp "
            f"{_format_timestamp(times[row], meta)}. Remove one of them,{option} or name the id "
            "column with id=."
        )
    first = np.flatnonzero(~repeated)
    single = {name: column[first] for name, column in columns.items()}
    if kind == "mean":
        values = np.asarray(columns["values"], dtype=np.float64)
        observed = ~np.isnan(values)
        count = np.add.reduceat(observed, first, dtype=np.int64)
        total = np.add.reduceat(np.where(observed, values, 0.0), first)
        mean = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
        single["values"] = mean.astype(np.float32)
    how = "left out" if kind == "first" else "averaged"
    notes.append(f"Rows with a repeated timestamp are {how}: {int(repeated.sum()):,}.")
    return single


def _format_timestamp(timestamp: float, meta: Meta) -> str:
    """Return a timestamp as text: a date where timestamps are dates."""
    if not meta.get("dates"):
        return f"{timestamp:.12g}"
    date = str(np.datetime64(round(timestamp * 1000), "ms")).replace("T", " ")
    return date.removesuffix(".000").removesuffix(" 00:00:00")


def _decode(codes: np.ndarray, labels: list[str] | None) -> np.ndarray:
    """Return the labels of codes, empty where missing; numbers if there are no labels."""
    if labels is None:
        return codes
    return np.array([*labels, ""])[np.where(np.isnan(codes), len(labels), codes).astype(np.int64)]


def _targets(columns: Arrays, meta: Meta, spans: Spans) -> np.ndarray | list[np.ndarray] | None:
    if "target" not in columns:
        return None
    column = columns["target"]
    single = np.full(len(spans), np.nan)
    constant = len(spans) > 1
    for number, (start, stop) in enumerate(spans):
        values = np.asarray(column[start:stop])
        values = values[~np.isnan(values)]
        if len(values):
            single[number] = values[0]
            constant = constant and bool((values == values[0]).all())
        if not constant:
            break
    if constant:
        return _decode(single, meta["labels"])
    return [_decode(column[start:stop], meta["labels"]) for start, stop in spans]


def _groups(
    columns: Arrays, meta: Meta, spans: Spans, ids: list[str], source: str
) -> np.ndarray | None:
    if "group" not in columns:
        return None
    groups = []
    for (start, stop), name in zip(spans, ids, strict=True):
        codes = np.unique(columns["group"][start:stop])
        if len(codes) > 1:
            names = ", ".join(shortened(meta["groups"][code]) for code in codes[:2])
            raise DataError(
                f"{source}: series '{shortened(name)}' belongs to {len(codes)} groups ({names}, "
                "…), but should belong to one. Check the id and group columns."
            )
        groups.append(meta["groups"][codes[0]])
    return np.array(groups)
