"""The columns of a table: their roles (target, id, time, group, channels) and values as numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from undamped._base.errors import DataError, OptionError, shortened
from undamped._base.options import unknown_name
from undamped.lab.data.recordings.formats.table.rows import NO_NUMBER
from undamped.lab.data.recordings.series import Resolution

if TYPE_CHECKING:
    from pandas import DataFrame

_WITH_COMMAS = r"\s*[+-]?[0-9.]*,[0-9.,]*[0-9]\s*"
_NUMBER = re.compile(
    r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*|[+-]?inf(inity)?", re.IGNORECASE
)

_COMMON = {
    "target": ("label", "target", "class", "y"),
    "id": ("id", "series", "series_id", "case", "case_id", "recording", "recording_id"),
    "time": ("time", "timestamp", "datetime", "date"),
    "group": ("subject", "subject_id", "patient", "patient_id", "participant", "group"),
}
_NUMBERED = re.compile(r"^(.*?)[\s_.\-]*(\d+)$")
_MANY_STEPS = 8


class Position(NamedTuple):
    """Where a block of a table begins.

    Args:
        path: The file.
        rows_before: How many rows precede the block.
        decimal: The decimal mark of the file.
    """

    path: str
    rows_before: int
    decimal: str = "."

    def error(self, column: str, row: int, problem: str) -> DataError:
        """Return the error for a value; `row` counts from the beginning of the block.

        Args:
            column: The column.
            row: The row in the block.
            problem: What is wrong, and what to do.
        """
        position = f"column '{shortened(column)}', row {self.rows_before + row + 1}"
        return DataError(f"{self.path}: {position}: {problem}")


def is_text(block: DataFrame, name: str, decimal: str = ".") -> bool:
    """Whether a column has values, and none of them is a number.

    Numbers with commas are not text, even if they are ambiguous: they raise an error later.
    """
    from pandas.api.types import is_numeric_dtype

    column: Any = block[name]
    if is_numeric_dtype(column) or not column.notna().any():
        return False
    if np.isfinite(numbers_in(column, decimal)).any():
        return False
    words = column.dropna().astype(str)
    return not bool(words.str.fullmatch(_WITH_COMMAS).all())


def numbers_in(column: Any, decimal: str = ".") -> np.ndarray:
    """Return a column as float64 (rows,), NaN where there is no number.

    Text is read by Python and not by pandas, whose parser crashes at large exponents.
    """
    from pandas.api.types import is_numeric_dtype

    if is_numeric_dtype(column):
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    if column.dtype.kind in "mM":
        return np.full(len(column), np.nan)
    return np.array([_number(value, decimal) for value in column.tolist()], dtype=np.float64)


def _number(value: Any, decimal: str) -> float:
    if isinstance(value, str):
        if decimal != ".":
            value = value.replace(".", "x").replace(decimal, ".")  # a point is no decimal mark then
        if not _NUMBER.fullmatch(value):
            return np.nan
    try:
        return float(value)
    except (TypeError, ValueError):
        return np.nan
    except OverflowError:  # an integer beyond all floats
        return np.inf


def numbers_of(
    block: DataFrame, columns: list[str], position: Position, width: int, resolution: Resolution
) -> np.ndarray:
    """Return columns as float32 (rows, columns), NaN where a value is missing.

    Args:
        block: Some rows of the table.
        columns: Which columns.
        position: Where the block begins.
        width: How many channels there are; with a row per series, each has several columns.
        resolution: Records the rounding errors of the channels.
    """
    from pandas.api.types import is_numeric_dtype

    frame: Any = block[columns]
    if all(is_numeric_dtype(dtype) for dtype in frame.dtypes):
        values = frame.to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        values = np.stack([_numbers_of_column(block, name, position) for name in columns], axis=1)
    with np.errstate(over="ignore"):
        array = values.astype(np.float32)
    resolution.add(values.reshape(-1, width), array.reshape(-1, width))
    infinite = np.argwhere(np.isinf(array))
    if len(infinite):
        row, column = infinite[0]
        raise position.error(columns[column], int(row), "the number is infinite.")
    return array


def _numbers_of_column(block: DataFrame, name: str, position: Position) -> np.ndarray:
    column: Any = block[name]
    numbers = numbers_in(column, position.decimal)
    bad = np.flatnonzero(np.isnan(numbers) & column.notna().to_numpy())
    if len(bad):
        row = int(bad[0])
        text = str(column.iloc[row])[:40]
        remedy = f"Give na={text} if it means a missing value, or select channels with channels=."
        if position.decimal == "." and not np.isnan(_number(text, ",")):
            remedy = "Give decimal=, if the comma is the decimal mark of this file."
        raise position.error(name, row, f"'{text}' is not a number. {remedy}")
    return numbers


def without_words(block: DataFrame, name: str) -> DataFrame:
    """Return a column, as a frame, without the words that stand for a missing number."""
    column: Any = block[[name]]
    return column.mask(column.isin(list(NO_NUMBER)))


def text_codes(
    block: DataFrame, name: str, codes: dict[str, int], position: Position
) -> np.ndarray:
    """Return a column of names as numbers (rows,), and add new names to `codes`."""
    import pandas as pd

    numbers, kinds = pd.factorize(block[name])
    if (numbers < 0).any():
        row = int(np.flatnonzero(numbers < 0)[0])
        raise position.error(name, row, "the name is missing.")
    values = [codes.setdefault(str(kind), len(codes)) for kind in kinds]
    return np.array(values, dtype=np.int32)[numbers]


def label_codes(
    block: DataFrame, name: str, codes: dict[str, int] | None, position: Position
) -> np.ndarray:
    """Return targets as numbers (rows,), NaN where missing, and add new labels to `codes`.

    Args:
        block: Some rows of the table.
        name: The column.
        codes: The number of each label; None where targets are numbers.
        position: Where the block begins.
    """
    import pandas as pd

    if codes is None:
        return _numbers_of_column(without_words(block, name), name, position)
    numbers, kinds = pd.factorize(block[name])
    values = [codes.setdefault(str(kind).strip(), len(codes)) for kind in kinds]
    return np.array([*values, np.nan], dtype=np.float64)[numbers]  # −1 is the last: missing


Layout = Literal["auto", "long", "wide"]
Decimal = Literal[".", ","]
Duplicates = Literal["refuse", "first", "mean"]


@dataclass
class Columns:
    """The roles of the columns of a table."""

    target: str | None = None
    id: str | None = None
    time: str | None = None
    group: str | None = None
    channels: list[str] = field(default_factory=list)
    layout: Literal["long", "wide"] = "long"
    steps: dict[str, list[str]] = field(default_factory=dict)
    """For one series per row: the columns of each channel, in temporal order."""
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    syntax: dict[str, Any] = field(default_factory=dict)
    """The options decimal, na, dayfirst and duplicates that differ from their defaults."""

    @property
    def text(self) -> list[str]:
        """The columns that are read as text."""
        return [name for name in (self.id, self.group) if name is not None]

    @property
    def labels(self) -> list[str]:
        """The columns of labels."""
        return [] if self.target is None else [self.target]

    def record(self) -> dict[str, Any]:
        """Return the roles and the syntax as plain values for run.json."""
        roles = {name: getattr(self, name) for name in ("target", "id", "time", "group", "layout")}
        return {**{name: role for name, role in roles.items() if role is not None}, **self.syntax}


def assign(columns: Sequence[str], options: Mapping[str, Any], needs_target: bool) -> Columns:
    """Return the role of each column; roles without a column are inferred from common names.

    Args:
        columns: All names.
        options: The options target, id, time, group and channels; see `ReadingOptions`.
        needs_target: Whether a target is inferred.
    """
    roles = {role: options[role] for role in _COMMON if options[role] is not None}
    inputs: list[str] = list(options["channels"] or ())
    _check_names(columns, roles, inputs)
    assigned, used = Columns(**roles), set(roles.values())
    for role, words in _COMMON.items():
        if role in roles or (role == "target" and not needs_target):
            continue
        free = {n.lower(): n for n in columns if n not in used and n not in inputs}
        name = next((free[word] for word in words if word in free), None)
        if name is not None:
            setattr(assigned, role, name)
            used.add(name)
            assigned.notes.append(f"Column '{name}' is used as {role}.")
    assigned.channels = inputs or [n for n in columns if n not in used]
    if not assigned.channels:
        raise DataError("The table has no channels besides target, id, time and group.")
    return assigned


def _check_names(columns: Sequence[str], roles: Mapping[str, str], inputs: list[str]) -> None:
    for name in (*roles.values(), *inputs):
        if name not in columns:
            raise unknown_name("column", name, list(columns))
    used = set(roles.values())
    if len(used) != len(roles) or used & set(inputs):
        raise OptionError(
            "A column can have one role only: target, id, time, group and channels must differ."
        )


def _number_steps(names: Sequence[str]) -> dict[str, list[str]] | None:
    """Return the columns of each channel in order if names are numbered steps, else None.

    `x_0, x_1, …, y_0, y_1, …` are two channels, `0, 1, 2, …` is one.
    """
    channels: dict[str, list[tuple[int, str]]] = {}
    for name in names:
        match = _NUMBERED.match(name)
        if match is None or len(match[2]) > 12:
            return None
        channels.setdefault(match[1] or "value", []).append((int(match[2]), name))
    if len({len(steps) for steps in channels.values()}) != 1:
        return None
    return {channel: [name for _, name in sorted(steps)] for channel, steps in channels.items()}


def choose_layout(
    columns: Columns, layout: Layout, ids_per_row: float | None, forecast: bool
) -> None:
    """Decide whether a row is a time step or a whole series.

    Args:
        columns: The roles of the columns; completed here.
        layout: The option `layout`.
        ids_per_row: Number of different ids per row; None without ids.
        forecast: Whether the task is a forecast, which needs long series.
    """
    steps = _number_steps(columns.channels)
    if layout == "auto":
        many = steps is not None and all(len(s) >= _MANY_STEPS for s in steps.values())
        repeats = ids_per_row is not None and ids_per_row <= 0.5
        wide = many and columns.time is None and not forecast and not repeats
        layout = "wide" if wide else "long"
        if wide:
            columns.notes.append("Every row is read as a series; set layout=long if it is a step.")
        elif columns.id is None:
            columns.notes.append("No id column: the table is read as one recording.")
    columns.layout = layout
    if layout == "wide":
        columns.steps = steps or {"value": columns.channels}
