"""A folder as recordings: one table per series, labelled by sub-folder or by a list."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from undamped._base.errors import DataError, explain
from undamped.lab.data.recordings.formats.kept import IN_MEMORY
from undamped.lab.data.recordings.formats.table.read import read_table
from undamped.lab.data.recordings.formats.table.rows import SUFFIXES, open_table
from undamped.lab.data.recordings.series import SeriesSet

LIST = "labels.csv"
_NUMBER_AT_END = re.compile(r"[\s_.\-]*\d+$")


def read_folder(
    path: str | Path,
    *,
    target: str | None = None,
    time: str | None = None,
    channels: Sequence[str] | None = None,
    needs_target: bool = True,
    forecast: bool = False,
    in_memory: int = IN_MEMORY,
    **written: Any,
) -> SeriesSet:
    """Read a folder of tables, each one recording.

    Labels are the names of the sub-folders, or stand in `labels.csv` with the columns file, label
    and, if there are groups, group; or every table has a target column with one label per step.

    Args:
        path: The folder.
        target: Column of labels per step in every table, or the column of `labels.csv`.
        time: Column of time stamps.
        channels: Columns a model may see.
        needs_target: Whether labels are looked for.
        forecast: Whether values to come are asked for.
        written: How values are written: decimal, na, dayfirst, duplicates; see `read_table`.
        in_memory: If the files are larger than this together, all of them stay on disk.
    """
    path = Path(path)
    files = _tables_in(path)
    if sum(file.stat().st_size for file in files) > in_memory:
        in_memory = 0
    inside = target if target in open_table(files[0]).columns else None
    sets = [
        read_table(
            file,
            target=inside,
            time=time,
            channels=channels,
            layout="long",
            needs_target=False,
            forecast=forecast,
            in_memory=in_memory,
            **written,
        )
        for file in files
    ]
    names = [str(file.relative_to(path)) for file in files]
    _check_alike(path, names, sets)
    whole = SeriesSet(
        [one.series[0] for one in sets],
        sets[0].channels,
        _steps(sets) if inside else None,
        names,
        times=None if sets[0].times is None else [one.times[0] for one in sets if one.times],
        source=str(path),
        notes=tuple(dict.fromkeys(n for n in sets[0].notes if "one recording" not in n)),
        columns=sets[0].columns,
        blurred=tuple(dict.fromkeys(name for one in sets for name in one.blurred)),
    )
    if inside or not needs_target:
        return whole
    listed = path / LIST
    if listed.is_file():
        return _with_list(whole, listed, target)
    return _with_folders(_ask_for_labels(whole, listed))


def _tables_in(path: Path) -> list[Path]:
    files = sorted(
        file
        for file in path.rglob("*")
        if file.is_file() and file.suffix.lower() in SUFFIXES and file.name != LIST
    )
    if files:
        return files
    raise DataError(
        explain(
            str(path),
            expected="a folder of .csv or .parquet files, one per series",
            got="a folder without any",
            remedy="Put the recordings there, in one sub-folder per class.",
        )
    )


def _check_alike(path: Path, names: list[str], sets: list[SeriesSet]) -> None:
    """Refuse files with other columns than the first, with several recordings or other dates."""
    orders = {one.columns.get("dayfirst"): name for name, one in zip(names, sets, strict=True)}
    if len(orders.keys() - {None}) > 1:
        raise DataError(
            explain(
                str(path),
                expected="dates in one order",
                got=f"the day first in {orders[True]}, the month first in {orders[False]}",
                remedy="Say dayfirst=true or dayfirst=false.",
            )
        )
    for name, one in zip(names, sets, strict=True):
        if one.channels != sets[0].channels or len(one) != 1:
            got = f"{len(one)} series" if len(one) != 1 else ", ".join(one.channels)
            raise DataError(
                explain(
                    f"{path / name}",
                    expected=f"one series with the channels {', '.join(sets[0].channels)}",
                    got=got,
                    remedy="All files of a folder have the same columns, and one recording each.",
                )
            )


def _with_folders(whole: SeriesSet) -> SeriesSet:
    """Take the names of sub-folders as labels, where every file lies in one."""
    folders = [Path(name).parent for name in whole.ids]
    if len(set(folders)) < 2 or Path() in folders:
        return whole
    labels = np.array([Path(name).parts[0] for name in whole.ids])
    note = "Labels are the names of the sub-folders."
    return replace(whole, targets=labels, notes=(*whole.notes, note))


def _ask_for_labels(whole: SeriesSet, listed: Path) -> SeriesSet:
    """Warn where the names of files seem to be labels, as ok_0.csv, ok_1.csv, inner_0.csv are."""
    stems = [Path(name).stem for name in whole.ids if Path(name).parent == Path()]
    counts = Counter(_NUMBER_AT_END.sub("", stem) for stem in stems)
    names = [name for name, count in counts.items() if name and count > 1]
    if len(stems) < len(whole) or len(names) < 2 or len(names) < len(counts):
        return whole
    few = ", ".join(names[:3])
    question = (
        f"Are the names of the files labels ({few})? Then put them into one sub-folder per label, "
        f"or list them in {listed.name} with the columns file and label."
    )
    return replace(whole, warnings=(*whole.warnings, question))


def _steps(sets: list[SeriesSet]) -> list[np.ndarray]:
    found = []
    for one in sets:
        assert isinstance(one.targets, list)
        found.append(one.targets[0])
    return found


def _with_list(whole: SeriesSet, listed: Path, target: str | None) -> SeriesSet:
    import pandas as pd

    table = open_table(listed)
    frame = pd.concat(table.pieces([table.columns[0]], table.columns[1:]))
    name = table.columns[0]
    label = target if target in table.columns else next(iter(table.columns[1:]), None)
    if label is None:
        raise DataError(
            f"{listed}: expected the columns file and label, got {name} alone. Add the labels."
        )
    rows = {str(file): row for row, file in enumerate(frame[name])}
    if len(rows) < len(frame):
        listing = [str(file) for file in frame[name]]
        twice = next(file for file, count in Counter(listing).items() if count > 1)
        raise DataError(
            explain(
                str(listed),
                expected="one row for every file",
                got=f"two for '{twice}'",
                remedy="Remove one of them.",
            )
        )
    order = [rows.get(i, rows.get(Path(i).name, rows.get(Path(i).stem))) for i in whole.ids]
    known = [row for row in order if row is not None]
    shared = next((row for row, count in Counter(known).items() if count > 1), None)
    if shared is not None:
        first, second = [i for i, row in zip(whole.ids, order, strict=True) if row == shared][:2]
        raise DataError(
            explain(
                str(listed),
                expected="a row for every file",
                got=f"one for both '{first}' and '{second}'",
                remedy="Write the folder in front of the name.",
            )
        )
    if None in order:
        missing = whole.ids[order.index(None)]
        raise DataError(
            explain(
                str(listed),
                expected="a row for every file",
                got=f"none for '{missing}'",
                remedy="Add it, or take the file away.",
            )
        )
    chosen = frame.iloc[order]
    values = chosen[label]
    if values.dtype == object:
        values = values.fillna("").astype(str)
    groups = chosen["group"].astype(str).to_numpy() if "group" in table.columns else None
    note = f"Labels are from column '{label}' of {listed.name}."
    return replace(whole, targets=values.to_numpy(), groups=groups, notes=(*whole.notes, note))
