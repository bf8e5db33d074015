"""The form of Weka, in which the UCR and UEA archives come too: values with the label last."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np

from undamped.lab.data.recordings.formats.lines import as_set, lines_of, numbers_in, wrong
from undamped.lab.data.recordings.reader import reads
from undamped.lab.data.recordings.series import SeriesSet


@reads(".arff")
def read_arff(path: Path) -> SeriesSet:
    """Read attributes, which are skipped, then one series per line."""
    series, labels, in_data = [], [], False
    for number, line in lines_of(path):
        if line.startswith("%"):
            continue
        if not in_data:
            in_data = line.lower().startswith("@data")
            continue
        quoted = re.match(r"""(['"])(.*?)\1\s*,\s*(.*)$""", line)
        if quoted:  # a relation: channels apart by a written \n
            rows = [row.split(",") for row in quoted[2].split("\\n")]
            columns = [numbers_in(row, path, number) for row in rows]
            if len({len(column) for column in columns}) != 1:
                raise wrong(path, number, "channels of one length", "others")
            label = quoted[3]
        else:
            try:
                words = next(csv.reader([line], quotechar="'", skipinitialspace=True))
            except csv.Error:
                raise wrong(path, number, "values apart by commas", "a broken line") from None
            columns, label = [numbers_in(words[:-1], path, number)], words[-1] if words else ""
        array = np.stack(columns, axis=1).astype(np.float32)
        if not len(array):
            raise wrong(path, number, "values and a label", "no values")
        series.append(array)
        labels.append(label.strip().strip("'\""))
    return as_set(series, labels, path)
