"""Tables as recordings: CSV and Parquet, a row per time step or a row per series."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from undamped.data.recordings.formats.kept import (
    IN_MEMORY,
    READ_IN_PIECES,
    MemoryStore,
    Store,
    kept,
    key_of,
    new_copy,
)
from undamped.data.recordings.formats.table.columns import Columns, Layout, assign, lay_out
from undamped.data.recordings.formats.table.plain import read_numbers
from undamped.data.recordings.formats.table.rows import ROWS_AT_ONCE, Table, open_table
from undamped.data.recordings.formats.table.series import series_of_rows, steps_to_series
from undamped.data.recordings.formats.table.values import (
    is_text,
    label_codes,
    numbers_of,
    seconds_column,
    text_codes,
)
from undamped.data.recordings.reader import reads
from undamped.data.recordings.resolution import Resolution
from undamped.data.recordings.series import SeriesSet

if TYPE_CHECKING:
    from pandas import DataFrame


@reads(".csv", columns=True, array=read_numbers)
@reads(".parquet", ".pq", columns=True)
def read_table(
    path: str | Path,
    *,
    target: str | None = None,
    id: str | None = None,
    time: str | None = None,
    group: str | None = None,
    channels: Sequence[str] | None = None,
    layout: Layout = "auto",
    needs_target: bool = True,
    forecast: bool = False,
    in_memory: int = IN_MEMORY,
    rows: int = ROWS_AT_ONCE,
) -> SeriesSet:
    """Read a CSV or Parquet file.

    Args:
        path: The file.
        target: Column of what is to be learnt; constant within a series, it is one target per
            series, else one per step.
        id: Column that says to which series a row belongs.
        time: Column of time stamps, numbers or ISO dates.
        group: Column of whom a series belongs to.
        channels: Columns a model may see; all others by default.
        layout: "long" for a row per time step, "wide" for a row per series.
        needs_target: Whether a target is looked for among usual names.
        forecast: Whether values to come are asked for; then a table is one long series.
        in_memory: A larger file is copied into the cache piece by piece and stays on disk.
        rows: Rows of a piece.
    """
    path = Path(path)
    table = open_table(path)
    found = assign(
        table.columns,
        target=target,
        id=id,
        time=time,
        group=group,
        channels=channels,
        needs_target=needs_target and not forecast,
    )
    first = next(table.pieces(_text(found), _labels(found), rows))
    if channels is None:
        _leave_text_out(first, found)
    share = None if found.id is None else first[found.id].nunique() / max(1, len(first))
    lay_out(found, layout, share, forecast)
    if path.stat().st_size <= in_memory:
        store = MemoryStore()
        meta = _fill(store, table, found, rows)
        columns = store.finish()
    else:
        columns, meta = _copied(table, found, rows)
        found.notes.append(READ_IN_PIECES)
    build = steps_to_series if found.layout == "long" else series_of_rows
    made = build(columns, meta, found, str(path))
    return replace(made, blurred=tuple(meta.get("blurred", ())))


def _leave_text_out(first: DataFrame, found: Columns) -> None:
    """Drop columns without a single number: notes and names are no measurements."""
    text = [name for name in found.channels if is_text(first, name)]
    if text and len(text) < len(found.channels):
        found.channels = [name for name in found.channels if name not in text]
        found.notes.append(f"Text, and left out: {', '.join(text)}.")


def _text(found: Columns) -> list[str]:
    return [name for name in (found.id, found.group) if name is not None]


def _labels(found: Columns) -> list[str]:
    return [name for name in (found.target,) if name is not None]


def _copied(
    table: Table, found: Columns, rows: int
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    key = key_of(table.path, {**found.plain(), "channels": found.channels})
    ready = kept(key)
    if ready is None:
        with new_copy(key) as store:
            store.write_meta(_fill(store, table, found, rows))
        ready = kept(key)
        assert ready is not None
    return ready


def _fill(store: Store, table: Table, found: Columns, rows: int) -> dict[str, Any]:
    """Read the table once, piece by piece; return the names behind the numbers."""
    names: dict[str, dict[str, int]] = {"id": {}, "group": {}}
    labels: dict[str, int] | None = None
    if found.layout == "wide":  # time first, so that a row is a series as it lies there
        wanted = [name for step in zip(*found.steps.values(), strict=True) for name in step]
        names_of_channels = list(found.steps)
    else:
        wanted = names_of_channels = found.channels
    seen = Resolution()
    row = 0
    for piece in table.pieces(_text(found), _labels(found), rows):
        where = (str(table.path), row)
        store.append("values", numbers_of(piece, wanted, where, len(names_of_channels), seen))
        for part, column in (("id", found.id), ("group", found.group)):
            if column is not None:
                store.append(part, text_codes(piece, column, names[part], where))
        if found.time is not None:
            store.append("time", seconds_column(piece, found.time, where))
        if found.target is not None:
            if row == 0 and not _is_numeric(piece, found.target):
                labels = {}
            store.append("target", label_codes(piece, found.target, labels, where))
        row += len(piece)
    return {
        "ids": list(names["id"]),
        "groups": list(names["group"]),
        "labels": None if labels is None else list(labels),
        "blurred": list(seen.blurred(names_of_channels)),
    }


def _is_numeric(piece: DataFrame, column: str) -> bool:
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    return is_numeric_dtype(piece[column]) and not is_bool_dtype(piece[column])
