"""Any set of the UCR, UEA and TSER archives, by its name or from its files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Unpack

import numpy as np

from undamped._base.checked import checked
from undamped._base.errors import DataError, OptionError, explain
from undamped._base.options import DropoutRate, NonNegativeInt
from undamped._base.registry import tasks
from undamped.lab.data.published.arrays import DAMAGE
from undamped.lab.data.published.cache import folder
from undamped.lab.data.recordings import splits
from undamped.lab.data.recordings.formats.ucr import find_training_file, read_ucr, read_ucr_file
from undamped.lab.data.recordings.options import PreparationOptions
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.tasks.series import SeriesTask

LEM_SEED = 1234
DROPPING_SEED = 1905


@tasks.register("ucr")
class ArchiveSeries(SeriesTask):
    """Classify or rate the series of a set of the UCR, UEA or TSER archives.

    The test part is the published one unless another split is asked for; validation comes out of
    the training part. Training series that are copies of held-out ones are left out, and said.

    Args:
        dataset: The set, as the archive spells it.
        file: Files of your own instead: Name_TRAIN beside Name_TEST, a folder with the two, or
            a single file, which is then split.
        split: "given" is the archive's own; "stratified" pools both parts and splits anew; "lem"
            pools them and draws 70, 15 and 15 % as the program of LEM does for EigenWorms.
        validation: Share of the training part that validation gets.
        dropped: Share of the steps of every series that is left out, at random; what is left keeps
            its timestamps, which models are then told.
        seed: Where the order of training comes from.

    Example:
        >>> build("ucr", dataset="EigenWorms", split="lem")

    Reference:
        H. A. Dau et al. The UCR time series archive, 2019. A. Bagnall et al. The UEA multivariate
        archive, 2018. C. W. Tan et al. Time series extrinsic regression, 2021. Split by name:
        T. K. Rusch et al. Long expressive memory. ICLR, 2022.
    """

    # As the estimators start.
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
        found = archive_set(dataset, file)
        if dropped:
            found = with_steps_dropped(found, dropped)
        by: Literal["given", "stratified"] = "stratified" if split == "stratified" else "given"
        fractions: tuple[float, ...] = (1 - validation, validation, 0.0)
        if split == "lem":
            found = replace(found, parts=lem_parts(len(found)))
        elif split == "stratified" or found.parts is None:
            found, by = replace(found, parts=None), "stratified"
            fractions = splits.DEFAULT_FRACTIONS
        super().__init__(
            found,
            split=by,
            fractions=fractions,
            seed=seed,
            timestamps=True if dropped else None,
            **options,
        )
        self.split_record = {**self.split_record, "name": split}


def archive_set(name: str, file: str | None = None) -> SeriesSet:
    """Read a set of the archives from the cache, or from files of one's own."""
    if file is not None:
        path = Path(file)
        return read_ucr(path) if find_training_file(path) is not None else read_ucr_file(path)
    place = folder(f"ucr/{name}")
    packed = place / f"{name}.npz"
    found = _packed(packed) if packed.is_file() else read_ucr(place)
    return replace(found, source=name)


def with_steps_dropped(found: SeriesSet, share: float) -> SeriesSet:
    """Return the series without a share of their steps, drawn for every series by itself.

    A series loses the same steps whatever else is in the set, so that results can be compared.

    Args:
        found: The series.
        share: How many of their steps go.
    """
    series, times = [], []
    for number, one in enumerate(found.series):
        steps = len(one)
        kept = max(2, round((1 - share) * steps)) if steps > 1 else 1
        random = np.random.default_rng([DROPPING_SEED, number])
        place = np.sort(random.permutation(steps)[:kept])
        timestamps = (
            np.arange(steps, dtype=np.float64) if found.times is None else found.times[number]
        )
        series.append(np.asarray(one)[place])
        times.append(timestamps[place])
    said = f"{share:.0%} of the steps of every series are left out, at random."
    return replace(found, series=series, times=times, notes=(*found.notes, said))


def lem_parts(count: int) -> np.ndarray:
    """Return the part of each of `count` pooled series, as the program of LEM draws them."""
    from sklearn.model_selection import train_test_split

    if count < 7:
        raise OptionError(
            explain(
                "split",
                expected="at least 7 series for 'lem'",
                got=count,
                remedy="Use split='given'.",
            )
        )
    train, rest = train_test_split(np.arange(count), test_size=0.3, random_state=LEM_SEED)
    valid, test = train_test_split(rest, test_size=0.5, random_state=LEM_SEED)
    parts = np.empty(count, dtype="<U5")
    parts[train], parts[valid], parts[test] = "train", "valid", "test"
    return parts


def _packed(path: Path) -> SeriesSet:
    """Read X_train, y_train, X_test, y_test, the form in which one package carries a set."""
    names = ("X_train", "y_train", "X_test", "y_test")
    arrays: dict[str, Any] = {}
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: np.asarray(file[name]) for name in names}
    except DAMAGE:
        pass
    if not arrays or not all(array.ndim for array in arrays.values()):
        raise DataError(
            explain(
                str(path),
                expected=", ".join(names),
                got="another kind of file",
                remedy="Fetch the data anew.",
            )
        )
    series = [*arrays["X_train"], *arrays["X_test"]]
    labels = np.concatenate([arrays["y_train"], arrays["y_test"]])
    parts = np.array(["train"] * len(arrays["X_train"]) + ["test"] * len(arrays["X_test"]))
    return replace(SeriesSet.of(series, labels.astype(str), source=str(path)), parts=parts)
