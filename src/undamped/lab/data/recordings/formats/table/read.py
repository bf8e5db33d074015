"""Tables as recordings: CSV and Parquet, a row per time step or a row per series."""

from __future__ import annotations

import contextlib
import warnings
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from undamped._base.errors import DataError, shortened
from undamped.lab.data.recordings.formats.table.columns import (
    Columns,
    Position,
    assign,
    choose_layout,
    is_text,
    label_codes,
    numbers_in,
    numbers_of,
    text_codes,
    without_words,
)
from undamped.lab.data.recordings.formats.table.dates import Timestamps, holds_dates
from undamped.lab.data.recordings.formats.table.rows import (
    ROWS_AT_ONCE,
    Table,
    is_number,
    open_table,
)
from undamped.lab.data.recordings.formats.table.series import series_of_rows, steps_to_series
from undamped.lab.data.recordings.on_disk import (
    IN_MEMORY,
    READ_IN_BLOCKS,
    Append,
    cached_copy,
    copy_key,
)
from undamped.lab.data.recordings.options import SYNTAX, ReadingOptions, complete_reading
from undamped.lab.data.recordings.reader import reads
from undamped.lab.data.recordings.series import Resolution, SeriesSet

if TYPE_CHECKING:
    from pandas import DataFrame

_FEW_REPEATED = 0.1


def read_numbers(path: Path) -> np.ndarray:
    """Read a CSV file of numbers only (time, features), with or without a line of names."""
    try:
        with path.open(encoding="utf-8-sig") as file, warnings.catch_warnings():
            warnings.simplefilter("error")  # NumPy only warns about an empty file
            header = 0 if all(map(is_number, file.readline().split(","))) else 1
            file.seek(0)
            return np.loadtxt(file, delimiter=",", ndmin=2, skiprows=header)
    except (ValueError, OSError, UserWarning) as error:  # text that is not UTF-8 is a ValueError
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise DataError(
            f"Cannot read {path} as rows of numbers, one per time step: {shortened(reason)}."
        ) from None


@reads(".csv", columns=True, array=read_numbers)
@reads(".parquet", ".pq", columns=True)
def read_table(
    path: str | Path,
    *,
    needs_target: bool = True,
    forecast: bool = False,
    in_memory: int = IN_MEMORY,
    rows: int = ROWS_AT_ONCE,
    **reading: Unpack[ReadingOptions],
) -> SeriesSet:
    """Read a CSV or Parquet file.

    A target that is constant within every series is one target per series, otherwise one per step.

    Args:
        path: The file.
        needs_target: Whether a target column is inferred from usual names.
        forecast: Whether the task is a forecast; then a table is one long series, and missing dates
            are steps without values.
        in_memory: A file of more bytes is copied into the cache block by block and stays on disk.
        rows: Rows of a block.
        reading: The roles of columns and the syntax of values; see
            `undamped.lab.data.recordings.options.ReadingOptions`.
    """
    path, options = Path(path), complete_reading("read_table", reading)
    with open_table(path, decimal=options["decimal"], na=options["na"]) as table:
        roles = _assign_roles(table, options, rows, needs_target, forecast)
        if path.stat().st_size <= in_memory:
            blocks: dict[str, list[np.ndarray]] = defaultdict(list)
            meta = _fill(lambda name, block: blocks[name].append(block), table, roles, rows)
            columns = {name: np.concatenate(parts) for name, parts in blocks.items()}
        else:
            key = copy_key(path, {**roles.record(), "channels": roles.channels})
            columns, meta = cached_copy(key, lambda append: _fill(append, table, roles, rows))
            roles.notes.append(READ_IN_BLOCKS)
    roles.notes += meta.get("time_notes", [])
    if meta.get("dayfirst") is not None:  # later files are read in the same order
        roles.syntax["dayfirst"] = meta["dayfirst"]
    if roles.layout == "long":
        series = steps_to_series(columns, meta, roles, str(path), forecast)
    else:
        series = series_of_rows(columns, meta, roles, str(path))
    return replace(series, blurred=tuple(meta.get("blurred", ())), warnings=tuple(roles.warnings))


def _assign_roles(
    table: Table, options: dict[str, Any], rows: int, needs_target: bool, forecast: bool
) -> Columns:
    """Return the roles of the columns, inferred from their names and the first rows."""
    roles = assign(table.columns, options, needs_target and not forecast)
    syntax = {**{name: options[name] for name in SYNTAX}, "na": list(options["na"])}
    defaults = {"decimal": None, "na": [], "dayfirst": None, "duplicates": "refuse"}
    roles.syntax = {name: value for name, value in syntax.items() if value != defaults[name]}
    if table.decimal == "," and options["decimal"] is None:
        roles.notes.append("Numbers have decimal commas.")
    with contextlib.closing(table.blocks(roles.text, roles.labels, rows)) as blocks:
        first = next(blocks)
    text = _drop_text(first, roles, table.decimal) if options["channels"] is None else []
    ids_per_row = None if roles.id is None else first[roles.id].nunique() / max(1, len(first))
    choose_layout(roles, options["layout"], ids_per_row, forecast)
    if roles.layout == "long" and roles.time is None:
        text = _infer_time(first, roles, [name for name in table.columns if name in text])
    if text:
        roles.notes.append(f"Text columns that are left out: {', '.join(text)}.")
        roles.warnings += _group_questions(first, roles, text)
    return roles


def _drop_text(first: DataFrame, roles: Columns, decimal: str) -> list[str]:
    """Remove columns without a single number from the channels, and return them."""
    text = [name for name in roles.channels if is_text(first, name, decimal)]
    if len(text) == len(roles.channels):
        return []
    roles.channels = [name for name in roles.channels if name not in text]
    return text


def _infer_time(first: DataFrame, roles: Columns, text: list[str]) -> list[str]:
    """Use a column of dates as timestamps, and return the remaining columns of text."""
    keys = [] if roles.id is None else [roles.id]
    dates = [
        name
        for name in text
        # Nearly all steps of a series must have different dates.
        if holds_dates(first[name]) and first.duplicated([*keys, name]).mean() < _FEW_REPEATED
    ]
    if len(dates) > 1:
        roles.notes.append(f"{' and '.join(dates)} hold dates: choose one of them with time=.")
    if len(dates) != 1:
        return text
    roles.time = dates[0]
    roles.notes.append(f"Column '{dates[0]}' holds dates and is used as time.")
    return [name for name in text if name != dates[0]]


def _group_questions(first: DataFrame, roles: Columns, text: list[str]) -> list[str]:
    """Return warnings about columns whose names several series share, as groups do."""
    if roles.group is not None or (roles.layout == "long" and roles.id is None):
        return []
    questions = []
    for name in text:
        names = first[name]
        if roles.layout == "long":
            by_series = first.groupby(roles.id, sort=False)[name]
            if (by_series.nunique(dropna=False) > 1).any():
                continue
            names = by_series.first()
        if 1 < names.nunique() <= len(names) / 2:
            questions.append(
                f"Several series have the same '{name}': is it a group? Then set group={name}, so "
                "that its series stay in one split."
            )
    return questions


def _fill(append: Append, table: Table, roles: Columns, rows: int) -> dict[str, Any]:
    """Read the table block by block into columns; return the names that the codes stand for."""
    names: dict[str, dict[str, int]] = {"id": {}, "group": {}}
    labels: dict[str, int] | None = None
    if roles.layout == "wide":  # time first, so that a row is a series as it is stored
        columns = [name for step in zip(*roles.steps.values(), strict=True) for name in step]
        channels = list(roles.steps)
    else:
        columns = channels = roles.channels
    resolution = Resolution()
    timestamps = Timestamps(roles.time or "", roles.syntax.get("dayfirst"))
    row = 0
    for block in table.blocks(roles.text, roles.labels, rows):
        position = Position(str(table.path), row, table.decimal)
        append("values", numbers_of(block, columns, position, len(channels), resolution))
        for role, column in (("id", roles.id), ("group", roles.group)):
            if column is not None:
                append(role, text_codes(block, column, names[role], position))
        if roles.time is not None:
            append("time", timestamps.seconds(block, position))
        if roles.target is not None:
            if row == 0 and not _is_numeric(block, roles.target, table):
                labels = {}
            append("target", label_codes(block, roles.target, labels, position))
        row += len(block)
    return {
        "ids": list(names["id"]),
        "groups": list(names["group"]),
        "labels": None if labels is None else list(labels),
        "blurred": list(resolution.blurred(channels)),
        "dates": timestamps.dates,
        "zoned": timestamps.zoned,
        "time_notes": timestamps.notes,
        "dayfirst": timestamps.day_first,
    }


def _is_numeric(block: DataFrame, column: str, table: Table) -> bool:
    """Whether targets are numbers; a CSV file may contain words for missing ones."""
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    values: Any = block[column]
    if is_numeric_dtype(values) or table.file is None:
        return is_numeric_dtype(values) and not is_bool_dtype(values)
    targets = without_words(block, column)[column].dropna()
    return len(targets) > 0 and not np.isnan(numbers_in(targets, table.decimal)).any()
