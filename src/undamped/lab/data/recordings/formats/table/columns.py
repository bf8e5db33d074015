"""The roles of the columns of a table: target, id, time, group, channels."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from undamped._base.errors import DataError, OptionError
from undamped._base.options import unknown_name

Layout = Literal["auto", "long", "wide"]
Decimal = Literal[".", ","]
Duplicates = Literal["refuse", "first", "mean"]
_COMMON = {
    "target": ("label", "target", "class", "y"),
    "id": ("id", "series", "series_id", "case", "case_id", "recording", "recording_id"),
    "time": ("time", "timestamp", "datetime", "date"),
    "group": ("subject", "subject_id", "patient", "patient_id", "participant", "group"),
}
_NUMBERED = re.compile(r"^(.*?)[\s_.\-]*(\d+)$")
_MANY_STEPS = 8


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
