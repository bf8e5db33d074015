"""Data sets of the UCR, UEA and TSER archives, and vital signs from 32 seconds of signals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Unpack

import numpy as np

from undamped._base.checked import checked
from undamped._base.errors import DataError, OptionError
from undamped._base.options import DropoutRate, NonNegativeInt, PositiveFloat, PositiveInt
from undamped._base.registry import tasks
from undamped.lab.data.published.arrays import DAMAGE
from undamped.lab.data.published.cache import folder
from undamped.lab.data.published.formats.vital_signs import (
    STEPS,
    Rate,
    simulated_subjects,
    systole_windows,
)
from undamped.lab.data.recordings import splits
from undamped.lab.data.recordings.formats.ucr import find_training_file, read_ucr, read_ucr_file
from undamped.lab.data.recordings.options import PreparationOptions
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.data.recordings.splits import DEFAULT_FRACTIONS, By
from undamped.lab.tasks.series import SeriesTask
from undamped.lab.tasks.task import COSINE

LEM_SEED = 1234
DROPPING_SEED = 1905


@tasks.register("ucr")
class ArchiveSeries(SeriesTask):
    """Classification or regression on a data set of the UCR, UEA or TSER archives.

    By default the test split is the published one, and validation is a fraction of the training
    split. Training series that are copies of held-out ones are left out, with a note.

    Args:
        dataset: The data set, as the archive spells it.
        file: A file instead: Name_TRAIN next to Name_TEST, a folder with the two, or a single file,
            which is then split.
        split: "given" is that of the archive; "stratified" pools both splits and splits anew; "lem"
            pools them and draws 70, 15 and 15 % as the program of LEM does for EigenWorms.
        validation: Fraction of the training split that is used for validation.
        dropped: Fraction of the steps of every series that is left out, at random; models then
            receive the timestamps of the remaining steps.
        seed: Seed of the order of the batches.

    Example:
        >>> build("ucr", dataset="EigenWorms", split="lem")

    Reference:
        H. A. Dau et al. The UCR time series archive, 2019. A. Bagnall et al. The UEA multivariate
        archive, 2018. C. W. Tan et al. Time series extrinsic regression, 2021. Split by name:
        T. K. Rusch et al. Long expressive memory. ICLR, 2022.
    """

    # The defaults of the estimators.
    recipes: ClassVar = {
        "*": {"model": {"hidden_size": 64}, "train": {"batch_size": 16, "epochs": 60}}
    }

    @checked
    def __init__(
        self,
        dataset: str = "GunPoint",
        *,
        file: str | None = None,
        split: Literal["given", "stratified", "lem"] = "given",
        validation: DropoutRate = 0.2,
        dropped: DropoutRate = 0.0,
        seed: NonNegativeInt = 0,
        **options: Unpack[PreparationOptions],
    ) -> None:
        series_set = archive_set(dataset, file)
        if dropped:
            series_set = with_steps_dropped(series_set, dropped)
        by: Literal["given", "stratified"] = "stratified" if split == "stratified" else "given"
        fractions: tuple[float, ...] = (1 - validation, validation, 0.0)
        if split == "lem":
            series_set = replace(series_set, parts=lem_parts(len(series_set)))
        elif split == "stratified" or series_set.parts is None:
            series_set, by = replace(series_set, parts=None), "stratified"
            fractions = splits.DEFAULT_FRACTIONS
        super().__init__(
            series_set,
            split=by,
            fractions=fractions,
            seed=seed,
            timestamps=True if dropped else None,
            **options,
        )
        self.split_record = {**self.split_record, "name": split}


def archive_set(name: str, file: str | None = None) -> SeriesSet:
    """Read a data set of the archives from the cache, or from a file."""
    if file is not None:
        path = Path(file)
        return read_ucr(path) if find_training_file(path) is not None else read_ucr_file(path)
    directory = folder(f"ucr/{name}")
    archive = directory / f"{name}.npz"
    series_set = _read_npz(archive) if archive.is_file() else read_ucr(directory)
    return replace(series_set, source=name)


def with_steps_dropped(series_set: SeriesSet, fraction: float) -> SeriesSet:
    """Return the series without a random fraction of their steps.

    The steps of a series depend only on its index and length, so that results are comparable.

    Args:
        series_set: The series.
        fraction: The fraction of the steps that is left out.
    """
    selected, times = [], []
    for index, series in enumerate(series_set.series):
        steps = len(series)
        count = max(2, round((1 - fraction) * steps)) if steps > 1 else 1
        random = np.random.default_rng([DROPPING_SEED, index])
        remaining = np.sort(random.permutation(steps)[:count])
        timestamps = np.arange(steps, dtype=np.float64)
        if series_set.times is not None:
            timestamps = series_set.times[index]
        selected.append(np.asarray(series)[remaining])
        times.append(timestamps[remaining])
    note = f"{fraction:.0%} of the steps of every series are left out, at random."
    return replace(series_set, series=selected, times=times, notes=(*series_set.notes, note))


def lem_parts(count: int) -> np.ndarray:
    """Return the split of each of `count` pooled series, as the program of LEM draws them."""
    from sklearn.model_selection import train_test_split

    if count < 7:
        raise OptionError(f"split=lem needs at least 7 series, got {count}. Use split=given.")
    train, rest = train_test_split(np.arange(count), test_size=0.3, random_state=LEM_SEED)
    valid, test = train_test_split(rest, test_size=0.5, random_state=LEM_SEED)
    parts = np.empty(count, dtype="<U5")
    parts[train], parts[valid], parts[test] = "train", "valid", "test"
    return parts


def _read_npz(path: Path) -> SeriesSet:
    """Read the arrays X_train, y_train, X_test and y_test."""
    names = ("X_train", "y_train", "X_test", "y_test")
    arrays: dict[str, Any] = {}
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: np.asarray(file[name]) for name in names}
    except DAMAGE:
        pass
    if not arrays or not all(array.ndim for array in arrays.values()):
        raise DataError(f"{path} must have the arrays {', '.join(names)}. Fetch the data again.")
    series = [*arrays["X_train"], *arrays["X_test"]]
    labels = np.concatenate([arrays["y_train"], arrays["y_test"]])
    parts = np.array(["train"] * len(arrays["X_train"]) + ["test"] * len(arrays["X_test"]))
    return replace(SeriesSet.of(series, labels.astype(str), source=str(path)), parts=parts)


@tasks.register("vitals")
class VitalSigns(SeriesTask):
    """Estimate the respiratory or the heart rate from 32 seconds of recorded signals.

    Windows have 4,000 steps, 125 per second. "systole" is 25.6 minutes of real ECG and respiration
    of one person, split by time with one window left out between the splits; results do not
    generalise to other people. "simulated" people are split by person. TSER's files (BIDMC32RR,
    BIDMC32HR) can be read with `file`; their published splits are random windows, so that a person
    can be in both.

    Args:
        data: "systole" or "simulated".
        rate: The target: "respiratory" or "heart" rate, per minute.
        signals: The channels that models receive; with the ECG alone, respiration is visible only
            in its modulation.
        file: Name_TRAIN.ts of a TSER set, or its folder, instead of `data`.
        stride_seconds: Seconds from one window of systole to the next.
        subjects: How many people are simulated.
        windows: Windows of each of them.
        split_seed: Seed of the simulation and of the split.
        seed: Seed of the order of the batches.

    Example:
        >>> build("vitals", data="simulated", rate="heart")

    Reference:
        Task after T. K. Rusch, S. Mishra. UnICORNN. ICML, 2021, section 4; signals of
        N. Legrand, M. Allen. Systole. JOSS, 2022, and D. Makowski et al. NeuroKit2, 2021.
    """

    # Plain choices, not tuned.
    recipes: ClassVar = {
        "*": {
            "model": {"hidden_size": 64, "readout": "last"},
            "train": {**COSINE, "batch_size": 16, "learning_rate": 0.003, "epochs": 30},
        },
        "unicornn": {"model": {"num_layers": 3, "dt": 0.046, "alpha": 10.0}},
    }

    def __init__(
        self,
        data: Literal["systole", "simulated"] = "systole",
        *,
        rate: Rate = "respiratory",
        signals: Literal["ecg", "ecg+respiration"] = "ecg+respiration",
        file: str | None = None,
        stride_seconds: PositiveFloat = 4.0,
        subjects: PositiveInt = 40,
        windows: PositiveInt = 6,
        split_seed: NonNegativeInt = 0,
        seed: NonNegativeInt = 0,
    ) -> None:
        by: By
        series_set: SeriesSet
        if file is not None:
            if signals == "ecg":
                raise OptionError(
                    "signals=ecg is not possible with a file, whose channels are all used. Leave "
                    "it out."
                )
            series_set = archive_set("", file)
            by = "stratified" if series_set.parts is None else "given"
        elif data == "systole":
            series_set, by = systole_windows(folder("systole"), rate, stride_seconds), "time"
        else:
            series_set, by = simulated_subjects(rate, subjects, windows, split_seed), "group"
        if signals == "ecg":
            series_set = series_set.select(["ecg"])
        super().__init__(
            series_set,
            kind="regression",
            split=by,
            fractions=DEFAULT_FRACTIONS,
            gap=STEPS if by == "time" else 0,
            split_seed=split_seed,
            seed=seed,
        )
