"""What deserves a look before and after training: leaks, ids, words for missing values, units.

A suspicion is a sentence; nothing is changed here. Training says the same sentences as a look at
the file does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from undamped.lab.data.recordings.labels import as_labels, comparable, look_like_classes
from undamped.lab.data.recordings.series import SeriesSet

if TYPE_CHECKING:
    from undamped.lab.data.recordings.preparation import Preparation

_HEAD = 10_000  # steps of a series that are looked at
_VALUES = 1 << 24  # and values of a set
_ALMOST_ONE = 0.999
_BY_CHANCE = math.log(1e-3)
_FEW_DISTINCT = 5
_SENTINELS = (32767, 32768, 65535, 2147483648, 1e20, 1e30)
_MANY_CHANNELS = 20
_OTHER_UNIT = 100.0
_SHOWN = 3


def find_suspicions(series_set: SeriesSet) -> list[str]:
    """Return what looks wrong about the channels and axes of a set, in sentences.

    Args:
        series_set: The recordings.
    """
    heads = [np.asarray(one[:_HEAD]) for one in series_set.series]
    leaks = set(find_leaks(series_set))
    sentences = [*_axes(series_set)]
    constant, several = _constants(heads), len(series_set.channels) > 1
    for place, name in enumerate(series_set.channels):
        channel = [head[:, place] for head in heads]
        if name in leaks:
            sentences.append(gives_away(name))
        elif several and all(len(h) > 2 and (np.diff(h) == 1).all() for h in channel):
            sentences.append(f"'{name}' counts the rows: is it time= or an index?")
        elif _is_id(constant[:, place]):
            sentences.append(f"'{name}' has a number per series: is it an id?")
        elif series_set.stepwise and _tells_steps(channel, series_set):
            sentences.append(gives_away(name))
    return [*sentences, *_sentinels(heads, series_set.channels)]


def gives_away(name: str) -> str:
    """Return the sentence about a channel that tells the target."""
    return f"'{name}' gives the target away: leave it out (channels= names those to keep)."


def without_leaks(series_set: SeriesSet) -> SeriesSet:
    """Return the set without channels that alone determine the target, and with a warning of each.

    They have one value per series, and would hardly determine the target by chance.

    Args:
        series_set: The recordings.
    """
    leaks = [name for name in find_leaks(series_set) if is_no_chance(series_set, name)]
    rest = [name for name in series_set.channels if name not in leaks]
    if not leaks or not rest:
        return series_set
    warnings = tuple(
        f"'{name}' alone tells the target of every series, and is left out; name it in channels= "
        "if it is known before the target is."
        for name in leaks
    )
    return replace(series_set.select(rest), warnings=(*series_set.warnings, *warnings))


def find_leaks(series_set: SeriesSet) -> list[str]:
    """Return the channels with one value per series that alone determines the target.

    A class is determined where a value never comes with two of them, and few values or as many
    thresholds as there are classes are enough; a number, where it is a straight line.

    Args:
        series_set: The recordings.
    """
    if series_set.targets is None or series_set.stepwise or len(series_set) < 2:
        return []
    constant = _constants([np.asarray(one[:_HEAD]) for one in series_set.series])
    targets = np.asarray(series_set.targets)
    return [
        name
        for place, name in enumerate(series_set.channels)
        if _determines(constant[:, place], targets, by_threshold=True)
    ]


def is_no_chance(series_set: SeriesSet, name: str) -> bool:
    """Whether a channel that determines the target would hardly do so by chance.

    With few series any number per series sorts the classes now and then.

    Args:
        series_set: The recordings.
        name: One of the channels that `find_leaks` returned.
    """
    targets = np.asarray(series_set.targets)
    if not look_like_classes(targets):
        return len(targets) > _FEW_DISTINCT
    place = series_set.channels.index(name)
    values = np.array([one[0, place] for one in series_set.series])
    labels, known = _numbered(targets)
    values, labels = values[known], labels[known]
    counts = np.unique(labels, return_counts=True)[1].tolist()
    kinds, distinct = len(counts), len(np.unique(values))
    # Sorted by the value, every class is one stretch; or every one of few values has one class.
    few = distinct <= 2 * kinds
    ways = distinct * math.log(kinds) if few else math.lgamma(kinds + 1)
    orders = math.lgamma(len(values) + 1) - sum(math.lgamma(count + 1) for count in counts)
    return ways - orders < _BY_CHANCE


def _numbered(targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a number for every label, and which labels are there."""
    kinds, numbers = np.unique(comparable(targets), return_inverse=True)
    names = np.array(as_labels(kinds))
    return np.unique(names, return_inverse=True)[1][numbers], names[numbers] != ""


def _constants(heads: Sequence[np.ndarray]) -> np.ndarray:
    """Return the value per series and channel (n, channels), NaN where it is not constant."""
    low = np.stack([np.fmin.reduce(head) for head in heads]).astype(np.float64)
    high = np.stack([np.fmax.reduce(head) for head in heads])
    return np.where(low == high, low, np.nan)


def _is_id(values: np.ndarray) -> bool:
    """Whether every series has a whole number of its own."""
    distinct = np.unique(values)
    return 1 < len(distinct) == len(values) and bool((distinct == np.round(distinct)).all())


def _tells_steps(channel: list[np.ndarray], series_set: SeriesSet) -> bool:
    assert isinstance(series_set.targets, list)
    labels = [np.asarray(t)[: len(h)] for t, h in zip(series_set.targets, channel, strict=True)]
    return _determines(np.concatenate(channel).astype(np.float64), np.concatenate(labels))


def _determines(values: np.ndarray, targets: np.ndarray, *, by_threshold: bool = False) -> bool:
    """Whether values tell targets: by few values, by thresholds or by a straight line.

    A threshold on a measured signal may be what defines a state, so steps are not asked for it.
    """
    if not look_like_classes(targets):
        numbers = targets.astype(np.float64)
        both = ~np.isnan(numbers) & np.isfinite(values)
        values, numbers = values[both], numbers[both]
        if len(values) < both.size / 2 or values.std() == 0 or numbers.std() == 0:
            return False
        return bool(abs(np.corrcoef(values, numbers)[0, 1]) > _ALMOST_ONE)
    labels, known = _numbered(targets)
    values, labels = values[known], labels[known]
    if np.isnan(values).any():
        return False
    classes = len(np.unique(labels))
    order = np.lexsort((labels, values))
    values, labels = values[order], labels[order]
    same_value, same_label = values[1:] == values[:-1], labels[1:] == labels[:-1]
    if classes < 2 or (same_value & ~same_label).any():
        return False
    few = int((~same_value).sum()) + 1 <= 2 * classes
    return few or (by_threshold and int((~same_label).sum()) == classes - 1)


def _axes(series_set: SeriesSet) -> list[str]:
    """Ask where steps and channels may have been taken for one another."""
    steps, channels = int(series_set.lengths.max()), len(series_set.channels)
    numbers = [name.removeprefix("channel ") for name in series_set.channels]
    unnamed = numbers == [str(number) for number in range(channels)]
    if not unnamed or channels < max(_MANY_CHANNELS, 4 * steps):
        return []
    return [
        f"Series have {steps} steps of {channels} channels: is it the other way round? An array "
        "is (series, time, channels); X.transpose(0, 2, 1) swaps the last two."
    ]


def _sentinels(heads: Sequence[np.ndarray], channels: Sequence[str]) -> list[str]:
    """Ask about extreme values that come again and again, as -999 for a missing one does."""
    steps = sum(len(head) for head in heads)
    stride = max(1, steps * len(channels) // _VALUES)
    values = np.concatenate([head[::stride] for head in heads])
    sentences = []
    for place, name in enumerate(channels):
        own = np.sort(values[:, place][np.isfinite(values[:, place])].astype(np.float64))
        for number in sorted({*own[:1].tolist(), *own[-1:].tolist()}):
            share = _share_of_sentinel(own, number)
            if share:
                sentences.append(
                    f"{number:.10g} is {share:.1%} of the values of '{name}', far from all others: "
                    f"if it stands for a missing value, say na={number:.10g}, or write NaN."
                )
    return sentences


def _share_of_sentinel(values: np.ndarray, number: float) -> float:
    """Return which share of sorted values is an extreme one that means something else, or 0."""
    rest = values[values != number]
    count = len(values) - len(rest)
    if count < 3 or count < 1e-3 * len(values) or number != round(number):
        return 0.0
    if len(np.unique(rest)) <= _FEW_DISTINCT:
        return 0.0
    low, high = np.quantile(rest, [0.01, 0.99])
    away = rest[0] - number if number < rest[0] else number - rest[-1]
    digits = f"{abs(number):.0f}"
    usual = abs(number) in _SENTINELS or (len(digits) > 1 and set(digits) <= {"9"})
    return count / len(values) if away > (1 if usual else 20) * (high - low) else 0.0


def strange_series(preparation: Preparation, series: Sequence[np.ndarray]) -> dict[int, str]:
    """Return what is strange about new recordings, by their number: no values, another unit.

    Args:
        preparation: What was done to the data that a model learnt from.
        series: The new recordings, with the channels of the preparation.
    """
    strange: dict[int, str] = {}
    mean, std = np.array(preparation.mean), np.array(preparation.std)
    scaled = not ((mean == 0) & (std == 1)).all()  # else nobody knows how large values were
    places = [preparation.raw_channels.index(name) for name in preparation.channels]
    for number, one in enumerate(series):
        values = np.asarray(one[:_HEAD], dtype=np.float64)[:, places]
        there = np.isfinite(values)
        if not there.any():
            strange[number] = "has no values at all: the answer to it means nothing."
            continue
        total = (np.where(there, values, 0.0) ** 2).sum(0)
        size = np.sqrt(total / np.maximum(1, there.sum(0)))
        ratio = size / np.sqrt(mean**2 + std**2)
        odd = np.flatnonzero((size > 0) & ((ratio > _OTHER_UNIT) | (ratio < 1 / _OTHER_UNIT)))
        if scaled and len(odd):
            place = int(odd[0])
            strange[number] = (
                f"has values of '{preparation.channels[place]}' that are {ratio[place]:.2g} times "
                "those of training: is it another unit?"
            )
    return strange


def in_words(strange: Mapping[int, str], ids: Sequence[str]) -> list[str]:
    """Return a few sentences about strange series.

    Args:
        strange: What `strange_series` returned.
        ids: The names of the series.
    """
    said = [f"Series '{ids[number]}' {what}" for number, what in strange.items()]
    return (
        said
        if len(said) <= _SHOWN
        else [*said[:_SHOWN], f"{len(said) - _SHOWN:,} more series look strange."]
    )
