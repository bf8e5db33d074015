"""A folder as recordings: one table per series, labelled by subfolder or by a list."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Unpack, cast

import numpy as np

from undamped._base.errors import DataError, OptionError
from undamped.lab.data.recordings.formats.table.read import read_table
from undamped.lab.data.recordings.formats.table.rows import SUFFIXES, open_table
from undamped.lab.data.recordings.on_disk import IN_MEMORY
from undamped.lab.data.recordings.options import ReadingOptions, complete_reading
from undamped.lab.data.recordings.series import SeriesSet

LIST = "labels.csv"
_NUMBER_AT_END = re.compile(r"[\s_.\-]*\d+$")


def read_folder(
    path: str | Path,
    *,
    needs_target: bool = True,
    forecast: bool = False,
    in_memory: int = IN_MEMORY,
    **reading: Unpack[ReadingOptions],
) -> SeriesSet:
    """Read a folder of tables, each of them one recording.

    Labels are the names of the subfolders, or are listed in `labels.csv` with the columns file,
    label and, if there are groups, group; or every table has a target column with a label per step.

    Args:
        path: The folder.
        needs_target: Whether labels are needed.
        forecast: Whether the task is a forecast.
        in_memory: If the files have more bytes than this together, all of them stay on disk.
        reading: As for `read_table`; the target is a column of every table, with a label per step,
            or the column of `labels.csv`.
    """
    path, options = Path(path), complete_reading("read_folder", reading)
    for name in ("id", "group"):
        if options[name] is not None:
            raise OptionError(
                f"{name} does not apply to a folder, in which every file is a series. List groups "
                f"in {path / LIST}."
            )
    files, target = _tables_in(path), options["target"]
    if sum(file.stat().st_size for file in files) > in_memory:
        in_memory = 0
    with open_table(files[0]) as table:
        inside = target if target in table.columns else None
    options |= {"target": inside, "layout": "long"}
    sets = [
        read_table(file, **options, needs_target=False, forecast=forecast, in_memory=in_memory)
        for file in files
    ]
    series_set = _merge(path, [str(file.relative_to(path)) for file in files], sets)
    if inside or forecast or not needs_target:
        return series_set
    label_file = path / LIST
    if label_file.is_file():
        return _labels_from_list(series_set, label_file, target)
    return _labels_from_folders(_question_about_names(series_set))


def _tables_in(path: Path) -> list[Path]:
    files = sorted(
        file
        for file in path.rglob("*")
        if file.is_file() and file.suffix.lower() in SUFFIXES and file.name != LIST
    )
    if files:
        return files
    raise DataError(
        f"{path} has no .csv or .parquet files. Put one file per series there, in one subfolder "
        "per class."
    )


def _merge(path: Path, names: list[str], sets: list[SeriesSet]) -> SeriesSet:
    """Return the recordings of all files, which must have the same columns and date order."""
    orders = {table.columns.get("dayfirst"): name for name, table in zip(names, sets, strict=True)}
    if len(orders.keys() - {None}) > 1:
        raise DataError(
            f"{path}: the order of dates differs: day first in {orders[True]}, month first in "
            f"{orders[False]}. Set dayfirst=true or dayfirst=false."
        )
    channels = sets[0].channels
    for name, table in zip(names, sets, strict=True):
        if len(table) != 1:
            raise DataError(f"{path / name} has {len(table)} series, but should have one.")
        if table.channels != channels:
            raise DataError(
                f"{path / name} has the channels {', '.join(table.channels)}, but {names[0]} has "
                f"{', '.join(channels)}."
            )
    stepwise = sets[0].targets is not None
    return SeriesSet(
        [table.series[0] for table in sets],
        channels,
        [cast(list, table.targets)[0] for table in sets] if stepwise else None,
        names,
        times=None if sets[0].times is None else [table.times[0] for table in sets if table.times],
        source=str(path),
        notes=tuple(dict.fromkeys(n for n in sets[0].notes if "one recording" not in n)),
        columns=sets[0].columns,
        blurred=tuple(dict.fromkeys(name for table in sets for name in table.blurred)),
    )


def _labels_from_folders(series_set: SeriesSet) -> SeriesSet:
    """Use the names of subfolders as labels, if every file is in one."""
    folders = [Path(name).parent for name in series_set.ids]
    if len(set(folders)) < 2 or Path() in folders:
        return series_set
    labels = np.array([Path(name).parts[0] for name in series_set.ids])
    note = "Labels are the names of the subfolders."
    return replace(series_set, targets=labels, notes=(*series_set.notes, note))


def _question_about_names(series_set: SeriesSet) -> SeriesSet:
    """Warn where file names look like labels, as ok_0.csv, ok_1.csv, inner_0.csv do."""
    stems = [Path(name).stem for name in series_set.ids if Path(name).parent == Path()]
    counts = Counter(_NUMBER_AT_END.sub("", stem) for stem in stems)
    names = [name for name, count in counts.items() if name and count > 1]
    if len(stems) < len(series_set) or len(names) < 2 or len(names) < len(counts):
        return series_set
    few = ", ".join(names[:3])
    question = (
        f"Are the names of the files labels ({few})? Then put them into one subfolder per label, "
        f"or list them in {LIST} with the columns file and label."
    )
    return replace(series_set, warnings=(*series_set.warnings, question))


def _labels_from_list(series_set: SeriesSet, path: Path, target: str | None) -> SeriesSet:
    import pandas as pd

    with open_table(path) as table:
        columns = table.columns
        frame = pd.concat(table.blocks([columns[0]], columns[1:]))
    label = target if target in columns else next(iter(columns[1:]), None)
    if label is None:
        raise DataError(f"{path} needs the columns file and label, got {columns[0]} only.")
    files = [str(file) for file in frame[columns[0]]]
    rows = {file: row for row, file in enumerate(files)}
    if len(rows) < len(files):
        repeated = next(file for file, count in Counter(files).items() if count > 1)
        raise DataError(f"{path} has two rows for '{repeated}'. Remove one of them.")
    order = [rows.get(i, rows.get(Path(i).name, rows.get(Path(i).stem))) for i in series_set.ids]
    if None in order:
        missing = series_set.ids[order.index(None)]
        raise DataError(f"{path} has no row for '{missing}'. Add it, or remove the file.")
    shared = next((row for row, count in Counter(order).items() if count > 1), None)
    if shared is not None:
        ids = [name for name, row in zip(series_set.ids, order, strict=True) if row == shared]
        raise DataError(
            f"{path} has one row for both '{ids[0]}' and '{ids[1]}'. Write the subfolder in front "
            "of the name."
        )
    selected = frame.iloc[order]
    values = selected[label]
    if values.dtype == object:
        values = values.fillna("").astype(str)
    groups = selected["group"].astype(str).to_numpy() if "group" in columns else None
    note = f"Labels are from column '{label}' of {path.name}."
    return replace(
        series_set, targets=values.to_numpy(), groups=groups, notes=(*series_set.notes, note)
    )
