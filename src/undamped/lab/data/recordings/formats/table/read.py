"""Tables as recordings: CSV and Parquet, a row per time step or a row per series."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from undamped.lab.data.recordings.formats.kept import (
    IN_MEMORY,
    READ_IN_PIECES,
    MemoryStore,
    Store,
    kept,
    key_of,
    new_copy,
)
from undamped.lab.data.recordings.formats.table.columns import (
    Columns,
    Decimal,
    Duplicates,
    Layout,
    assign,
    lay_out,
)
from undamped.lab.data.recordings.formats.table.dates import Timestamps, holds_dates
from undamped.lab.data.recordings.formats.table.places import Place
from undamped.lab.data.recordings.formats.table.plain import read_numbers
from undamped.lab.data.recordings.formats.table.rows import ROWS_AT_ONCE, Table, open_table
from undamped.lab.data.recordings.formats.table.series import series_of_rows, steps_to_series
from undamped.lab.data.recordings.formats.table.values import (
    is_text,
    label_codes,
    numbers_in,
    numbers_of,
    text_codes,
    without_words,
)
from undamped.lab.data.recordings.reader import reads
from undamped.lab.data.recordings.resolution import Resolution
from undamped.lab.data.recordings.series import SeriesSet

if TYPE_CHECKING:
    from pandas import DataFrame

_FEW_REPEATED = 0.1


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
    decimal: Decimal | None = None,
    na: Sequence[str] = (),
    dayfirst: bool | None = None,
    duplicates: Duplicates = "refuse",
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
        time: Column of time stamps, numbers or dates.
        group: Column of whom a series belongs to.
        channels: Columns a model may see; all others by default.
        layout: "long" for a row per time step, "wide" for a row per series.
        decimal: The decimal mark of a CSV file; found if not given.
        na: What stands for a missing value, beside the usual words.
        dayfirst: Whether 1/2/2024 is the first of February; found if not given.
        duplicates: What becomes of rows of a series with the same time stamp.
        needs_target: Whether a target is looked for among usual names.
        forecast: Whether values to come are asked for; then a table is one long series, and dates
            that are missing in it are steps without values.
        in_memory: A larger file is copied into the cache piece by piece and stays on disk.
        rows: Rows of a piece.
    """
    path = Path(path)
    table = open_table(path, decimal=decimal, na=na)
    found = assign(
        table.columns,
        target=target,
        id=id,
        time=time,
        group=group,
        channels=channels,
        needs_target=needs_target and not forecast,
    )
    said = {"decimal": decimal, "na": list(na), "dayfirst": dayfirst, "duplicates": duplicates}
    usual = {"decimal": None, "na": [], "dayfirst": None, "duplicates": "refuse"}
    found.written = {name: value for name, value in said.items() if value != usual[name]}
    if table.decimal == "," and decimal is None:
        found.notes.append("Numbers have decimal commas.")
    first = next(table.pieces(_text(found), _labels(found), rows))
    text = _leave_text_out(first, found, table.decimal) if channels is None else []
    share = None if found.id is None else first[found.id].nunique() / max(1, len(first))
    lay_out(found, layout, share, forecast)
    if found.layout == "long" and found.time is None:
        text = _find_time(first, found, [name for name in table.columns if name in text])
    if text:
        found.notes.append(f"Text, and left out: {', '.join(text)}.")
        found.warnings += _ask_for_group(first, found, text)
    if path.stat().st_size <= in_memory:
        store = MemoryStore()
        meta = _fill(store, table, found, rows)
        columns = store.finish()
    else:
        columns, meta = _copied(table, found, rows)
        found.notes.append(READ_IN_PIECES)
    found.notes += meta.get("time_notes", [])
    if meta.get("dayfirst") is not None:  # later files are read in the same order
        found.written["dayfirst"] = meta["dayfirst"]
    if found.layout == "long":
        made = steps_to_series(columns, meta, found, str(path), forecast)
    else:
        made = series_of_rows(columns, meta, found, str(path))
    return replace(made, blurred=tuple(meta.get("blurred", ())), warnings=tuple(found.warnings))


def _leave_text_out(first: DataFrame, found: Columns, decimal: str) -> list[str]:
    """Drop columns without a single number, and return them: names are no measurements."""
    text = [name for name in found.channels if is_text(first, name, decimal)]
    if len(text) == len(found.channels):
        return []
    found.channels = [name for name in found.channels if name not in text]
    return text


def _find_time(first: DataFrame, found: Columns, text: list[str]) -> list[str]:
    """Take a column of dates as time stamps, and return the columns of text that are left."""
    dates = [name for name in text if holds_dates(first[name]) and _moves_on(first, found.id, name)]
    if len(dates) > 1:
        found.notes.append(f"{' and '.join(dates)} hold dates: name one of them with time=.")
    if len(dates) != 1:
        return text
    found.time = dates[0]
    found.notes.append(f"Column '{dates[0]}' holds dates and is taken as time.")
    return [name for name in text if name != dates[0]]


def _moves_on(first: DataFrame, id: str | None, name: str) -> bool:
    """Whether dates tell the steps of a series apart, but for a few."""
    return float(first.duplicated([name] if id is None else [id, name]).mean()) < _FEW_REPEATED


def _ask_for_group(first: DataFrame, found: Columns, text: list[str]) -> list[str]:
    """Ask whether names that several series share are those of a group."""
    if found.group is not None or (found.layout == "long" and found.id is None):
        return []
    asked = []
    for name in text:
        names = first[name]
        if found.layout == "long":
            by_series = first.groupby(found.id, sort=False)[name]
            if (by_series.nunique(dropna=False) > 1).any():
                continue
            names = by_series.first()
        if 1 < names.nunique() <= len(names) / 2:
            asked.append(
                f"Several series have the same '{name}': is it a group? Then say group={name}, so "
                "that its series stay on one side of the split."
            )
    return asked


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
    stamps = Timestamps(found.time or "", found.written.get("dayfirst"))
    row = 0
    for piece in table.pieces(_text(found), _labels(found), rows):
        place = Place(str(table.path), row, table.decimal)
        store.append("values", numbers_of(piece, wanted, place, len(names_of_channels), seen))
        for part, column in (("id", found.id), ("group", found.group)):
            if column is not None:
                store.append(part, text_codes(piece, column, names[part], place))
        if found.time is not None:
            store.append("time", stamps.seconds(piece, place))
        if found.target is not None:
            if row == 0 and not _is_numeric(piece, found.target, table):
                labels = {}
            store.append("target", label_codes(piece, found.target, labels, place))
        row += len(piece)
    return {
        "ids": list(names["id"]),
        "groups": list(names["group"]),
        "labels": None if labels is None else list(labels),
        "blurred": list(seen.blurred(names_of_channels)),
        "dates": stamps.dates,
        "zoned": stamps.zoned,
        "time_notes": stamps.notes,
        "dayfirst": stamps.day_comes_first,
    }


def _is_numeric(piece: DataFrame, column: str, table: Table) -> bool:
    """Whether targets are numbers; a CSV file may have words among them for missing ones."""
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    values: Any = piece[column]
    if is_numeric_dtype(values) or table.delimiter is None:
        return is_numeric_dtype(values) and not is_bool_dtype(values)
    known = without_words(piece, column)[column].dropna()
    return len(known) > 0 and not np.isnan(numbers_in(known, table.decimal)).any()
