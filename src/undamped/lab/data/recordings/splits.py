"""Honest splits: what a model was trained on never comes back in what it is tested on.

Series are first tied together: identical ones always, windows of one recording unless the split is
by time, and members of a group if the split is by group. What is tied goes to one side.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Literal

import numpy as np

from undamped._base.errors import DataError, OptionError, explain
from undamped._base.options import unknown_name
from undamped.lab.data.recordings.series import SeriesSet

By = Literal["stratified", "group", "time", "given"]
Parts = dict[str, np.ndarray]
PARTS = ("train", "valid", "test")
DEFAULT_FRACTIONS = (0.7, 0.15, 0.15)
_FEW_RECORDINGS = 3


def choose(series_set: SeriesSet, kind: str = "classification") -> tuple[By, str]:
    """Return the kind of split that suits a set, and why.

    Args:
        series_set: The set.
        kind: What is asked of it, such as "regression" or "forecast".
    """
    if series_set.parts is not None:
        return "given", "the source brings its own split"
    if series_set.groups is not None:
        return "group", "no group is on both sides"
    origin = series_set.origin
    if origin is not None and kind == "forecast":
        return "time", "the past of every series is for training, its future for the test"
    if origin is not None and len(np.unique(origin[:, 0])) < _FEW_RECORDINGS:
        return "time", "the windows come from one or two recordings"
    if kind in ("classification", "steps"):
        return "stratified", "stratified: every part has the classes in like shares"
    return "stratified", "whole series, drawn by chance"


def describe(by: By, why: str, parts: Parts) -> str:
    """Return a sentence about a split.

    Args:
        by: What series were split by.
        why: Why, in a few words.
        parts: The parts.
    """
    how = {"stratified": "at random", "given": "as given"}.get(by, f"by {by}")
    sizes = ", ".join(f"{len(index):,} {name}" for name, index in parts.items())
    return f"Split {how} ({why}): {sizes}."


def time_edges(
    length: int, shares: Sequence[float], ahead: int = 0, gap: int = 0
) -> tuple[int, int, int, int]:
    """Return the steps at which training, validation and test begin, and the length.

    Args:
        length: Steps of a recording.
        shares: Of training, validation and test.
        ahead: Steps that every part has at least, unless its share is zero.
        gap: Steps that are left out at the beginning of validation and of test.
    """
    edges = np.round(np.cumsum([0.0, *shares]) * length).astype(int)
    edges[3] = length
    for place in (2, 1):
        room = ahead + gap if shares[place] and ahead else 0
        edges[place] = max(0, min(edges[place], edges[place + 1] - room))
    begin, valid, test, end = edges.tolist()
    return begin, valid, test, end


def split(
    series_set: SeriesSet,
    *,
    fractions: Sequence[float] = DEFAULT_FRACTIONS,
    by: By = "stratified",
    gap: int = 0,
    seed: int = 0,
    ahead: int = 0,
) -> Parts:
    """Split a set into training, validation and test.

    Args:
        series_set: The set.
        fractions: Shares of training, validation and test; they add up to one.
        by: "stratified": classes in like shares; "group": no group on both sides; "time": the past
            for training, the future for test; "given": the source's own split, with validation
            taken from its training part where it has none, and without training series that are
            copies of test series.
        gap: For "time", what is left out between two parts: steps for windows, series otherwise.
        seed: Which of the possible splits.
        ahead: For windows of which so many steps at the end are to be predicted, parted by time:
            those steps alone say to which part a window belongs. The past before them is known
            when a forecast is made, even if it was learnt from.

    Returns:
        Sorted numbers of the series, by part; "valid" or "test" is empty where its share is zero.
    """
    shares = checked_shares(fractions)
    if by != "time" and gap:
        raise OptionError(f"gap: expected 0 with a split by {by}, got {gap}. Only time has a gap.")
    if by == "time":
        parts = _by_time(series_set, shares, gap, ahead)
    elif by == "given":
        parts = _given(series_set, shares, seed)
    else:
        tied = _tied(series_set, by == "group")
        parts = deal(np.arange(len(series_set)), tied, _strata(series_set), shares, seed)
    for name, share in zip(PARTS, shares, strict=True):
        if share > 0 and not len(parts[name]) and not (by == "given" and name == "valid"):
            raise _empty_part(series_set, name, by)
    return parts


def _empty_part(series_set: SeriesSet, name: str, by: str) -> DataError:
    """Return the error for a part without a series, with the cause if series are identical."""
    count = len(series_set)
    distinct = len(np.unique(_copies(series_set)))
    got, remedy = f"none of {count} (split by {by})", "Use more data, another split, or other "
    remedy += "fractions."
    if series_set.origin is None and distinct < min(count, len(PARTS)):
        same = "are identical" if distinct == 1 else f"are copies of {distinct} of them"
        got = f"none, since all {count} series {same} and copies stay on one side"
        remedy = "Check the values: is the id column the right one, did the sensor record?"
    return DataError(
        explain(
            f"{series_set.source}, {name} part",
            expected="at least one series",
            got=got,
            remedy=remedy,
        )
    )


def hold_out(
    series_set: SeriesSet, group: str, *, fractions: Sequence[float] = DEFAULT_FRACTIONS, seed: int
) -> Parts:
    """Give one group to the test, and deal the others to training and validation.

    Series of other groups that are copies of what is tested, and whatever belongs to their groups,
    are left out. Where a single group is left, its series are dealt one by one.

    Args:
        series_set: The set.
        group: The group that is tested on.
        fractions: Shares of training, validation and test; the last plays no part.
        seed: Which of the possible splits.
    """
    shares = checked_shares(fractions)
    tied = _tied(series_set, by_group=True)
    assert series_set.groups is not None
    names = series_set.groups.astype(str)
    if group not in names:
        raise unknown_name("group", group, sorted(set(names)))
    test = np.flatnonzero(names == group)
    others = np.flatnonzero(~np.isin(tied, tied[test]))
    if not len(others):
        raise DataError(
            explain(
                f"held_out={group}",
                expected="other groups to learn from, without copies of its series",
                got="none",
                remedy="Hold out another group, or use another split.",
            )
        )
    valid = shares[1] / (shares[0] + shares[1])
    within = (1 - valid, valid, 0.0)
    parts = deal(others, tied, _strata(series_set), within, seed)
    if valid and not len(parts["valid"]):
        parts = deal(others, _copies(series_set), _strata(series_set), within, seed)
    return {**parts, "test": test}


def hash_of(parts: Parts) -> str:
    """Return a short digest of the index lists, to tell one split from another."""
    digest = hashlib.sha256()
    for name in PARTS:
        digest.update(name.encode() + np.asarray(parts[name], dtype="<i8").tobytes())
    return digest.hexdigest()[:16]


def checked_shares(fractions: Sequence[float]) -> tuple[float, float, float]:
    """Return shares of training, validation and test that add up to one, or refuse them."""
    good = len(fractions) == 3 and all(0 <= f <= 1 for f in fractions) and fractions[0] > 0
    if not good or abs(sum(fractions) - 1) > 1e-6:
        raise OptionError(
            explain(
                "fractions",
                expected="three shares for training, validation and test that add up to 1",
                got=", ".join(f"{f:g}" for f in fractions),
                remedy="For example 0.7, 0.15, 0.15.",
            )
        )
    return fractions[0], fractions[1], fractions[2]


def _copies(series_set: SeriesSet) -> np.ndarray:
    """Return a number per series, the same for identical ones; for windows, that of the recording.

    Two windows may be alike because a signal rests or repeats itself; that is no copy. Windows of
    identical recordings count as windows of one.
    """
    return series_set.copies() if series_set.origin is None else series_set.origin[:, 0]


def _tied(series_set: SeriesSet, by_group: bool) -> np.ndarray:
    """Return a number per series, the same for series that must stay together."""
    ties = [_copies(series_set)]
    if by_group:
        if series_set.groups is None:
            raise OptionError(
                "split: expected a group column for a split by group, got none. Name it with "
                "group=."
            )
        ties.append(np.unique(series_set.groups.astype(str), return_inverse=True)[1])
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    # A bipartite graph: series on one side, everything that ties them on the other.
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
    """Return a class per series to balance; numbers are cut at their quartiles."""
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
    members: np.ndarray,
    tied: np.ndarray,
    strata: np.ndarray,
    shares: tuple[float, float, float],
    seed: int,
) -> Parts:
    """Deal bundles of tied series to the parts, large bundles first, each where most is missing.

    Args:
        members: The numbers of the series.
        tied: A number per series, the same for those that stay together.
        strata: A number per series: its class, of which every part should have its share.
        shares: Of training, validation and test.
        seed: Which of the possible splits.
    """
    random = np.random.default_rng(seed)
    bundles = [
        members[tied[members] == tie] for tie in random.permutation(np.unique(tied[members]))
    ]
    bundles.sort(key=len, reverse=True)
    part_of = np.zeros(len(tied), dtype=np.int64)
    kinds = int(strata.max()) + 1
    totals = np.bincount(strata[members], minlength=kinds)
    wanted = np.outer(shares, totals)  # (part, stratum)
    got = np.zeros_like(wanted)
    empty_share = np.array(shares) == 0
    for bundle in bundles:
        counts = np.bincount(strata[bundle], minlength=kinds)
        missing = (wanted - got) @ counts / len(bundle) + 0.5 * (wanted - got).sum(1) / kinds
        missing[empty_share] = -np.inf
        part = int(np.argmax(missing))
        part_of[bundle] = part
        got[part] += counts
    parts = {name: members[part_of[members] == place] for place, name in enumerate(PARTS)}
    for name, share in zip(PARTS, shares, strict=True):
        if share > 0 and not len(parts[name]):
            _give_one(parts, name, tied)
    return parts


def _give_one(parts: Parts, poor: str, tied: np.ndarray) -> None:
    """Move the smallest bundle of the richest part, if it has more than one, to an empty part."""
    rich = max(PARTS, key=lambda name: len(parts[name]))
    ties, counts = np.unique(tied[parts[rich]], return_counts=True)
    if len(ties) > 1:
        moved = tied[parts[rich]] == ties[np.argmin(counts)]
        parts[poor] = parts[rich][moved]
        parts[rich] = parts[rich][~moved]


def _given(series_set: SeriesSet, shares: tuple[float, float, float], seed: int) -> Parts:
    if series_set.parts is None:
        raise OptionError(
            f"split: expected a source with a split of its own, got {series_set.source} without "
            "one. Use stratified, group or time."
        )
    parts = {name: np.flatnonzero(series_set.parts == name) for name in PARTS}
    copies = _copies(series_set)
    tied = _tied(series_set, series_set.groups is not None)
    if not len(parts["valid"]) and shares[1] > 0:
        within = shares[1] / (shares[0] + shares[1])
        dealt = deal(parts["train"], tied, _strata(series_set), (1 - within, within, 0.0), seed)
        parts["train"], parts["valid"] = dealt["train"], dealt["valid"]
    # The test part stays as published; what it shares with the others goes from the others.
    parts["valid"] = parts["valid"][~np.isin(copies[parts["valid"]], copies[parts["test"]])]
    held_out = np.concatenate([copies[parts["valid"]], copies[parts["test"]]])
    parts["train"] = parts["train"][~np.isin(copies[parts["train"]], held_out)]
    return parts


def _by_time(
    series_set: SeriesSet, shares: tuple[float, float, float], gap: int, ahead: int
) -> Parts:
    if series_set.origin is not None:
        return _windows_by_time(series_set, series_set.origin, shares, gap, ahead)
    found, copies = _series_by_time(series_set, shares, gap), series_set.copies()
    later = copies[found["test"]]
    found["valid"] = found["valid"][~np.isin(copies[found["valid"]], later)]
    later = np.concatenate([later, copies[found["valid"]]])
    found["train"] = found["train"][~np.isin(copies[found["train"]], later)]
    return found


def _windows_by_time(
    series_set: SeriesSet,
    origin: np.ndarray,
    shares: tuple[float, float, float],
    gap: int,
    ahead: int,
) -> Parts:
    """Give every recording's past to training and its future to the test."""
    last = origin[:, 1] + series_set.lengths
    first = last - ahead if ahead else origin[:, 1]
    chosen = {name: np.zeros(len(series_set), dtype=bool) for name in PARTS}
    starts = np.sort(np.unique(origin[:, 1]))
    stride = int(np.diff(starts).min()) if len(starts) > 1 else 1
    room = ahead + stride - 1 if ahead else 0  # wherever a part begins, a window begins in it
    for recording in np.unique(origin[:, 0]):
        own = origin[:, 0] == recording
        end = int(last[own].max())
        edges = time_edges(end, shares, room, gap)
        for place, name in enumerate(PARTS):
            begin = edges[place] + (gap if place and shares[place] else 0)
            chosen[name] |= own & (first >= begin) & (last <= edges[place + 1])
    return {name: np.flatnonzero(mask) for name, mask in chosen.items()}


def _series_by_time(series_set: SeriesSet, shares: tuple[float, float, float], gap: int) -> Parts:
    count = len(series_set)
    if series_set.times is not None:
        order = np.argsort([float(t[0]) for t in series_set.times], kind="stable")
    else:
        order = np.arange(count)
    edges = np.round(np.cumsum([0.0, *shares]) * count).astype(int)
    return {
        name: np.sort(order[edges[place] + (gap if place else 0) : edges[place + 1]])
        for place, name in enumerate(PARTS)
    }
