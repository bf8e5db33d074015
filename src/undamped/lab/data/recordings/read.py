"""Reading recordings from any supported file or folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Unpack

import numpy as np

from undamped._base.errors import DataError, OptionError, shortened
from undamped._base.options import options_in
from undamped._base.registry import readers
from undamped.lab.data.recordings.formats import folder, ucr
from undamped.lab.data.recordings.on_disk import IN_MEMORY
from undamped.lab.data.recordings.options import SYNTAX, ReadingOptions, complete_reading
from undamped.lab.data.recordings.series import SeriesSet


def is_data_path(word: str) -> bool:
    """Whether a word of a command line names a file or folder of recordings."""
    return Path(word).suffix.lower() in readers or "/" in word or _exists(Path(word))


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # too long for a name, or with a NUL in it
        return False


def read_recordings(
    path: str | Path,
    *,
    needs_target: bool = True,
    forecast: bool = False,
    in_memory: int = IN_MEMORY,
    **reading: Unpack[ReadingOptions],
) -> SeriesSet:
    """Read recordings from a file whose extension has a reader, or from a folder of tables.

    Args:
        path: The file or folder.
        needs_target: Whether labels are needed.
        forecast: Whether the task is a forecast.
        in_memory: A file of more bytes is read in blocks and stays on disk.
        reading: The roles of columns and the syntax of values: target, id, time, group, channels,
            layout, decimal, na, dayfirst, duplicates; see
            `undamped.lab.data.recordings.options.ReadingOptions`.

    Example:
        >>> read_recordings("walks.csv", target="gait", id="walk").describe()  # doctest: +SKIP
        '60 series of 4,000 steps with 3 channels'
    """
    options = complete_reading("read_recordings", reading)
    channels = options["channels"]
    path = Path(path).expanduser()
    if not _exists(path):
        raise DataError(f"No such file or folder: {shortened(path)}")
    if channels is not None and not len(channels):
        raise OptionError("channels is empty. Leave it out to use all channels.")
    suffix = path.suffix.lower()
    if ucr.find_training_file(path) is not None:
        series_set = ucr.read_ucr(path)
    elif not path.is_dir() and suffix not in readers:
        raise DataError(
            f"Cannot read {path}: expected a folder or one of {', '.join(readers)}. Convert it, "
            "for example to CSV."
        )
    elif path.is_dir() or readers[suffix].columns:
        read = folder.read_folder if path.is_dir() else readers[suffix].read
        return read(
            path, **options, needs_target=needs_target, forecast=forecast, in_memory=in_memory
        )
    elif readers[suffix].lazy:
        series_set = readers[suffix].read(path, in_memory=in_memory)
    else:
        series_set = readers[suffix].read(path)
    for name in ("target", "id", "time", "group", *SYNTAX):
        if options[name] != options_in(ReadingOptions)[name].default:
            raise OptionError(
                f"{name}={options[name]} does not apply to {suffix or 'such'} files, which have no "
                "named columns."
            )
    if forecast:
        series_set = replace(series_set, targets=None)
    return series_set if channels is None else series_set.select(channels)


def read_sequences(path: Path, features: int, *, symbols: bool = False) -> np.ndarray:
    """Read sequences as (time, sequences, features), or (time, sequences) of symbols.

    They are for models that were not trained on recordings. A file of plain numbers (.npy, .csv)
    has one sequence, or several of equal length; other files are read as recordings.

    Args:
        path: The file.
        features: Numbers per time step.
        symbols: Whether the sequences are of symbols: one integer per time step.
    """
    array = _read_array(path)
    if symbols and array.ndim == 2 and path.suffix.lower() == ".csv" and array.shape[1] == 1:
        array = array.T  # a column is one sequence
    ndim = 1 if symbols else 2
    if array.ndim == ndim:
        array = array[None]
    valid = array.ndim == ndim + 1 and array.size > 0 and array.dtype.kind in "biuf"
    if not valid or (not symbols and array.shape[-1] != features):
        shape = "([sequences,] time)" if symbols else f"([sequences,] time, {features})"
        raise DataError(
            f"{path} must have numbers of shape {shape}, got {array.dtype} of shape {array.shape}."
        )
    if not np.isfinite(array).all():
        raise DataError(f"{path} has missing or infinite values. Fill the gaps first.")
    if symbols and (array != np.floor(array)).any():
        raise DataError(f"{path} must have symbols, numbered from 0, got other numbers.")
    sequences = np.swapaxes(array, 0, 1)
    return np.ascontiguousarray(sequences, dtype=np.int64 if symbols else np.float32)


def _read_array(path: Path) -> np.ndarray:
    """Return the numbers of a file, or its recordings stacked."""
    if not path.is_file():
        raise DataError(f"No such file: {path}")
    if path.suffix.lower() not in readers:
        raise DataError(
            f"Cannot read {path}: expected one of {', '.join(readers)}. Convert it to .npy or .csv."
        )
    reader = readers[path.suffix.lower()]
    if reader.array is not None:
        return reader.array(path)
    series = reader.read(path).series
    lengths = sorted({len(values) for values in series})
    if len(lengths) > 1:
        raise DataError(
            f"{path}: all sequences must have one length, got {lengths[0]} to {lengths[-1]} steps."
        )
    return np.stack([np.asarray(values) for values in series])
