"""Splits without leakage: nothing that a model was trained on recurs in the data it is tested on.

Series that must stay together form a bundle: identical ones always, windows of one recording unless
the split is by time, and series of one group if the split is by group. A bundle goes to one split.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Literal

import numpy as np

from undamped._base.errors import DataError, OptionError
from undamped._base.options import unknown_name
from undamped.lab.data.recordings.series import SeriesSet

By = Literal["stratified", "group", "time", "given"]
Fractions = tuple[float, float, float]
Parts = dict[str, np.ndarray]
PARTS = ("train", "valid", "test")
DEFAULT_FRACTIONS = (0.7, 0.15, 0.15)
_FEW_RECORDINGS = 3


def choose(series_set: SeriesSet, kind: str = "classification") -> tuple[By, str]:
    """Return the kind of split that suits a set, and the reason.

    Args:
        series_set: The set.
        kind: The kind of task, such as "regression" or "forecast".
    """
    if series_set.parts is not None:
        return "given", "the source has a split"
    if series_set.groups is not None:
        return "group", "every group is in one split"
    origin = series_set.origin
    if origin is not None and kind == "forecast":
        return "time", "the past of every series for training, its future for the test"
    if origin is not None and len(np.unique(origin[:, 0])) < _FEW_RECORDINGS:
        return "time", "the windows are from one or two recordings"
    if kind in ("classification", "steps"):
        return "stratified", "stratified by class"
    return "stratified", "complete series"


def describe(by: By, why: str, parts: Parts) -> str:
    """Return a sentence about a split.

    Args:
        by: The kind of split.
        why: The reason, in a few words.
        parts: The splits.
    """
    how = {"stratified": "at random", "given": "as given"}.get(by, f"by {by}")
    sizes = ", ".join(f"{len(index):,} {name}" for name, index in parts.items())
    return f"Split {how} ({why}): {sizes}."


def time_edges(
    length: int, fractions: Sequence[float], least: int = 0, gap: int = 0
) -> tuple[int, int, int, int]:
    """Return the steps at which training, validation and test begin, and the length.

    Args:
        length: Steps of a recording.
        fractions: Of training, validation and test.
        least: The least number of steps of a split, unless its fraction is zero.
        gap: Steps that are left out at the beginning of validation and of test.
    """
    edges = np.round(np.cumsum([0.0, *fractions]) * length).astype(int)
    edges[3] = length
    for index in (2, 1):
        reserve = least + gap if fractions[index] and least else 0
        edges[index] = max(0, min(edges[index], edges[index + 1] - reserve))
    begin, valid, test, end = edges.tolist()
    return begin, valid, test, end


def split(
    series_set: SeriesSet,
    *,
    fractions: Sequence[float] = DEFAULT_FRACTIONS,
    by: By = "stratified",
    gap: int = 0,
    seed: int = 0,
    horizon: int = 0,
) -> Parts:
    """Split a set into training, validation and test.

    Args:
        series_set: The set.
        fractions: Fractions of training, validation and test; they sum to one.
        by: "stratified": classes have the same fractions in all splits; "group": every group is in
            one split; "time": the past for training, the future for test; "given": the split of
            the source, with validation taken from training where it has none, and without training
            series that are copies of test series.
        gap: For "time", what is left out between two splits: steps for windows, series otherwise.
        seed: The seed of the split.
        horizon: For windows whose last steps are predicted, split by time: how many steps. Only
            these decide about the split of a window, since the past before them is known when a
            forecast is made, even if it was trained on.

    Returns:
        Sorted indices of the series by split; "valid" or "test" is empty if its fraction is zero.
    """
    checked = check_fractions(fractions)
    if by != "time" and gap:
        raise OptionError(f"gap must be 0 with a split by {by}, got {gap}. Only time has a gap.")
    if by == "time":
        parts = _split_by_time(series_set, checked, gap, horizon)
    elif by == "given":
        parts = _published_split(series_set, checked, seed)
    else:
        bundles = _bundles(series_set, by == "group")
        parts = deal(np.arange(len(series_set)), bundles, _strata(series_set), checked, seed)
    for name, fraction in zip(PARTS, checked, strict=True):
        if fraction > 0 and not len(parts[name]) and not (by == "given" and name == "valid"):
            raise _empty_split(series_set, name, by)
    return parts


def _empty_split(series_set: SeriesSet, name: str, by: str) -> DataError:
    """Return the error for a split without series, with the cause if series are identical."""
    count = len(series_set)
    distinct = len(np.unique(_copies(series_set)))
    problem = f"{series_set.source}: the {name} split is empty"
    if series_set.origin is None and distinct < min(count, len(PARTS)):
        same = "are identical" if distinct == 1 else f"are copies of {distinct} of them"
        return DataError(
            f"{problem}, since all {count} series {same} and copies stay in one split. Check the "
            "values: is the id column the right one, did the sensor record?"
        )
    return DataError(
        f"{problem} with {count} series and a split by {by}. Use more data, another split, or "
        "other fractions."
    )


def hold_out(
    series_set: SeriesSet, group: str, *, fractions: Sequence[float] = DEFAULT_FRACTIONS, seed: int
) -> Parts:
    """Use one group for the test, and split the others into training and validation.

    Groups that contain a copy of a test series are left out. If a single group remains, its series
    are split.

    Args:
        series_set: The set.
        group: The group for the test.
        fractions: Fractions of training, validation and test; the last one is ignored.
        seed: The seed of the split.
    """
    checked = check_fractions(fractions)
    bundles = _bundles(series_set, by_group=True)
    assert series_set.groups is not None
    names = series_set.groups.astype(str)
    if group not in names:
        raise unknown_name("group", group, sorted(set(names)))
    test = np.flatnonzero(names == group)
    others = np.flatnonzero(~np.isin(bundles, bundles[test]))
    if not len(others):
        raise DataError(
            f"held_out={group} leaves no other groups for training without copies of its series. "
            "Hold out another group, or use another split."
        )
    valid = checked[1] / (checked[0] + checked[1])
    within = (1 - valid, valid, 0.0)
    parts = deal(others, bundles, _strata(series_set), within, seed)
    if valid and not len(parts["valid"]):
        parts = deal(others, _copies(series_set), _strata(series_set), within, seed)
    return {**parts, "test": test}


def hash_of(parts: Parts) -> str:
    """Return a short digest of the indices, which identifies a split."""
    digest = hashlib.sha256()
    for name in PARTS:
        digest.update(name.encode() + np.asarray(parts[name], dtype="<i8").tobytes())
    return digest.hexdigest()[:16]


def check_fractions(fractions: Sequence[float]) -> Fractions:
    """Return the fractions of training, validation and test if they are valid."""
    valid = len(fractions) == 3 and all(0 <= f <= 1 for f in fractions) and fractions[0] > 0
    if not valid or abs(sum(fractions) - 1) > 1e-6:
        raise OptionError(
            "fractions must be three numbers for training, validation and test that sum to 1, such "
            f"as 0.7, 0.15, 0.15, got {', '.join(f'{f:g}' for f in fractions)}."
        )
    return fractions[0], fractions[1], fractions[2]


def _copies(series_set: SeriesSet) -> np.ndarray:
    """Return a number per series, the same for identical ones; for windows, that of the recording.

    Two windows may be equal because a signal is constant or periodic, which is no copy. Windows of
    identical recordings count as windows of one.
    """
    return series_set.copies() if series_set.origin is None else series_set.origin[:, 0]


def _bundles(series_set: SeriesSet, by_group: bool) -> np.ndarray:
    """Return a number per series, the same for series that must stay together."""
    ties = [_copies(series_set)]
    if by_group:
        if series_set.groups is None:
            raise OptionError("A split by group needs a group column. Name it with group=.")
        ties.append(np.unique(series_set.groups.astype(str), return_inverse=True)[1])
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    # A bipartite graph between series and everything that ties them.
    count, rows, columns, offset = len(series_set), [], [], len(series_set)
    for tie in ties:
        _, numbers = np.unique(tie, return_inverse=True)
        rows.append(np.arange(count))
        columns.append(numbers + offset)
        offset += int(numbers.max()) + 1
    row, column = np.concatenate(rows), np.concatenate(columns)
    graph = coo_matrix((np.ones(len(row)), (row, column)), shape=(offset, offset))
    return connected_components(graph, directed=False)[1][:count]


def _strata(series_set: SeriesSet) -> np.ndarray:
    """Return the class of each series for stratification; numbers are cut at their quartiles."""
    targets, count = series_set.targets, len(series_set)
    if targets is None or isinstance(targets, list):
        return np.zeros(count, dtype=np.int64)
    values = np.asarray(targets)
    kinds, numbers = np.unique(values.astype(str), return_inverse=True)
    if len(kinds) <= max(2, count // 3) or values.dtype.kind not in "fiu":
        return numbers
    number = values.astype(np.float64)
    return np.searchsorted(np.quantile(number, [0.25, 0.5, 0.75]), number)


def deal(
    index: np.ndarray, bundles: np.ndarray, strata: np.ndarray, fractions: Fractions, seed: int
) -> Parts:
    """Assign bundles of series to splits, large bundles first, each where most is missing.

    Args:
        index: The indices of the series.
        bundles: A number per series, the same for those that stay together.
        strata: The class of each series, of which every split should have its fraction.
        fractions: Of training, validation and test.
        seed: The seed of the split.
    """
    random = np.random.default_rng(seed)
    clusters = [
        index[bundles[index] == bundle] for bundle in random.permutation(np.unique(bundles[index]))
    ]
    clusters.sort(key=len, reverse=True)
    part_of = np.zeros(len(bundles), dtype=np.int64)
    kinds = int(strata.max()) + 1
    totals = np.bincount(strata[index], minlength=kinds)
    quota = np.outer(fractions, totals)  # (split, stratum)
    assigned = np.zeros_like(quota)
    for series in clusters:
        counts = np.bincount(strata[series], minlength=kinds)
        missing = quota - assigned
        need = missing @ counts / len(series) + 0.5 * missing.sum(1) / kinds
        need[np.array(fractions) == 0] = -np.inf
        part = int(np.argmax(need))
        part_of[series] = part
        assigned[part] += counts
    parts = {name: index[part_of[index] == number] for number, name in enumerate(PARTS)}
    for name, fraction in zip(PARTS, fractions, strict=True):
        if fraction > 0 and not len(parts[name]):
            _fill_empty(parts, name, bundles)
    return parts


def _fill_empty(parts: Parts, empty: str, bundles: np.ndarray) -> None:
    """Move the smallest bundle of the largest split, if it has several, to an empty split."""
    largest = max(PARTS, key=lambda name: len(parts[name]))
    numbers, counts = np.unique(bundles[parts[largest]], return_counts=True)
    if len(numbers) > 1:
        moved = bundles[parts[largest]] == numbers[np.argmin(counts)]
        parts[empty] = parts[largest][moved]
        parts[largest] = parts[largest][~moved]


def _published_split(series_set: SeriesSet, fractions: Fractions, seed: int) -> Parts:
    if series_set.parts is None:
        raise OptionError(f"{series_set.source} has no split. Use split=stratified, group or time.")
    parts = {name: np.flatnonzero(series_set.parts == name) for name in PARTS}
    bundles = _bundles(series_set, series_set.groups is not None)
    if not len(parts["valid"]) and fractions[1] > 0:
        within = fractions[1] / (fractions[0] + fractions[1])
        strata = _strata(series_set)
        dealt = deal(parts["train"], bundles, strata, (1 - within, within, 0.0), seed)
        parts = {**dealt, "test": parts["test"]}
    return _without_copies(parts, _copies(series_set))


def _without_copies(parts: Parts, copies: np.ndarray) -> Parts:
    """Remove copies of test series from validation, and of both from training."""
    valid = parts["valid"][~np.isin(copies[parts["valid"]], copies[parts["test"]])]
    later = np.concatenate([copies[valid], copies[parts["test"]]])
    train = parts["train"][~np.isin(copies[parts["train"]], later)]
    return {"train": train, "valid": valid, "test": parts["test"]}


def _split_by_time(series_set: SeriesSet, fractions: Fractions, gap: int, horizon: int) -> Parts:
    if series_set.origin is not None:
        return _split_windows(series_set, series_set.origin, fractions, gap, horizon)
    count = len(series_set)
    order = np.arange(count)
    if series_set.times is not None:
        order = np.argsort([float(t[0]) for t in series_set.times], kind="stable")
    edges = np.round(np.cumsum([0.0, *fractions]) * count).astype(int)
    parts = {
        name: np.sort(order[edges[number] + (gap if number else 0) : edges[number + 1]])
        for number, name in enumerate(PARTS)
    }
    return _without_copies(parts, series_set.copies())


def _split_windows(
    series_set: SeriesSet, origin: np.ndarray, fractions: Fractions, gap: int, horizon: int
) -> Parts:
    """Use the past of every recording for training and its future for the test."""
    last = origin[:, 1] + series_set.lengths
    first = last - horizon if horizon else origin[:, 1]
    masks = {name: np.zeros(len(series_set), dtype=bool) for name in PARTS}
    starts = np.sort(np.unique(origin[:, 1]))
    stride = int(np.diff(starts).min()) if len(starts) > 1 else 1
    least = horizon + stride - 1 if horizon else 0  # so that every split has a window
    for recording in np.unique(origin[:, 0]):
        windows = origin[:, 0] == recording
        edges = time_edges(int(last[windows].max()), fractions, least, gap)
        for number, name in enumerate(PARTS):
            begin = edges[number] + (gap if number and fractions[number] else 0)
            masks[name] |= windows & (first >= begin) & (last <= edges[number + 1])
    return {name: np.flatnonzero(mask) for name, mask in masks.items()}
