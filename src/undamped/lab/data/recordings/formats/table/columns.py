"""Which column of a table is what, where that was not said."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from undamped._base.errors import DataError, OptionError, explain
from undamped._base.options import unknown_name

Layout = Literal["auto", "long", "wide"]
Decimal = Literal[".", ","]
Duplicates = Literal["refuse", "first", "mean"]
_USUAL = {
    "target": ("label", "target", "class", "y"),
    "id": ("id", "series", "series_id", "case", "case_id", "recording", "recording_id"),
    "time": ("time", "timestamp", "datetime", "date"),
    "group": ("subject", "subject_id", "patient", "patient_id", "participant", "group"),
}
_NUMBERED = re.compile(r"^(.*?)[\s_.\-]*(\d+)$")
_MANY_STEPS = 8


@dataclass
class Columns:
    """The parts that the columns of a table play."""

    target: str | None = None
    id: str | None = None
    time: str | None = None
    group: str | None = None
    channels: list[str] = field(default_factory=list)
    layout: Literal["long", "wide"] = "long"
    steps: dict[str, list[str]] = field(default_factory=dict)
    """For one series per row: the columns of each channel, in the order of time."""
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    written: dict[str, Any] = field(default_factory=dict)
    """How values are written, where that was said: decimal, na, dayfirst, duplicates."""

    def plain(self) -> dict[str, Any]:
        """Return the parts for a run to remember."""
        parts = {name: getattr(self, name) for name in ("target", "id", "time", "group", "layout")}
        return {**{name: part for name, part in parts.items() if part is not None}, **self.written}


def assign(
    columns: Sequence[str],
    *,
    target: str | None = None,
    id: str | None = None,
    time: str | None = None,
    group: str | None = None,
    channels: Sequence[str] | None = None,
    needs_target: bool = True,
) -> Columns:
    """Return which column is what; what was not said is looked up among usual names.

    Args:
        columns: All names.
        target: What is to be learnt.
        id: To which series a row belongs.
        time: Time stamps.
        group: Whom a series belongs to.
        channels: What a model may see; everything else by default.
        needs_target: Whether a target is looked for.
    """
    said = {"target": target, "id": id, "time": time, "group": group}
    parts = {part: name for part, name in said.items() if name is not None}
    shown = list(channels or ())
    _check_said(columns, list(parts.values()), shown)
    found = Columns(target, id, time, group)
    taken = set(parts.values())
    for part, usual in _USUAL.items():
        if part in parts or (part == "target" and not needs_target):
            continue
        free = {n.lower(): n for n in columns if n not in taken and n not in shown}
        name = next((free[word] for word in usual if word in free), None)
        if name is not None:
            setattr(found, part, name)
            taken.add(name)
            found.notes.append(f"Column '{name}' is taken as {part}.")
    found.channels = shown or [n for n in columns if n not in taken]
    if not found.channels:
        raise DataError(
            explain(
                "columns",
                expected="at least one channel beside target, id, time and group",
                got="none",
                remedy="Give the table the values that were measured.",
            )
        )
    return found


def _check_said(columns: Sequence[str], parts: list[str], channels: list[str]) -> None:
    """Refuse columns that are not there or were given two parts to play."""
    for name in (*parts, *channels):
        if name not in columns:
            raise unknown_name("column", name, list(columns))
    if len(set(parts)) != len(parts) or set(parts) & set(channels):
        raise OptionError(
            "columns: expected every column to be one thing, got one named twice. Give each of "
            "target, id, time, group and channels columns of its own."
        )


def numbered(names: Sequence[str]) -> dict[str, list[str]] | None:
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


def lay_out(found: Columns, layout: Layout, share_of_ids: float | None, forecast: bool) -> None:
    """Decide whether a row is a time step or a whole series.

    Args:
        found: The parts of the columns; completed here.
        layout: What was asked for.
        share_of_ids: How many different ids there are per row; None without ids.
        forecast: Whether values to come are asked for, which one long series has.
    """
    steps = numbered(found.channels)
    if layout == "auto":
        many = steps is not None and all(len(s) >= _MANY_STEPS for s in steps.values())
        repeats = share_of_ids is not None and share_of_ids <= 0.5
        wide = many and found.time is None and not forecast and not repeats
        layout = "wide" if wide else "long"
        if wide:
            found.notes.append("A row is taken as a whole series; say layout=long if it is a step.")
        elif found.id is None:
            found.notes.append("No id column: the table is taken as one recording.")
    found.layout = layout
    if layout == "wide":
        found.steps = steps or {"value": found.channels}
