"""The older text form of the UCR archive: one series per line, the label first."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from undamped.lab.data.recordings.formats.lines import as_set, lines_of, numbers_in, wrong
from undamped.lab.data.recordings.labels import label_of
from undamped.lab.data.recordings.reader import reads
from undamped.lab.data.recordings.series import SeriesSet


@reads(".tsv", ".txt")
def read_label_first(path: Path) -> SeriesSet:
    """Read one series per line, the label first; NaN at the end of a line is padding."""
    series, labels = [], []
    for number, line in lines_of(path):
        words = [word for word in re.split(r"[,\s]+", line) if word]
        values = numbers_in(words, path, number)
        there = np.flatnonzero(~np.isnan(values[1:]))
        if not len(there):
            raise wrong(path, number, "a label and values", "no values")
        labels.append(label_of(values[0]))
        series.append(values[1 : 2 + there[-1]].astype(np.float32)[:, None])
    return as_set(series, labels, path)
