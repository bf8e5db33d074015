"""Warnings about recordings: leaked targets, ids, codes for missing values, other units.

Each warning is a sentence. Training and `undamped data check` print the same ones.
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

_HEAD = 10_000  # steps of a series that are examined
_VALUES = 1 << 24  # values of a set that are examined
_ALMOST_ONE = 0.999
_BY_CHANCE = math.log(1e-3)
_FEW_DISTINCT = 5
_SENTINELS = (32767, 32768, 65535, 2147483648, 1e20, 1e30)
_MANY_CHANNELS = 20
_OTHER_UNIT = 100.0
_FEW_SERIES = 3  # that are listed


def find_suspicions(series_set: SeriesSet) -> list[str]:
    """Return warnings about the channels and axes of a set.

    Args:
        series_set: The recordings.
    """
    heads = [np.asarray(series[:_HEAD]) for series in series_set.series]
    leaks = set(find_leaks(series_set))
    sentences = [*_check_axes(series_set)]
    constant, several = _constants(heads), len(series_set.channels) > 1
    for index, name in enumerate(series_set.channels):
        channel = [head[:, index] for head in heads]
        if name in leaks:
            sentences.append(_leak_warning(name))
        elif several and all(len(h) > 2 and (np.diff(h) == 1).all() for h in channel):
            sentences.append(f"'{name}' counts the rows: is it time= or an index?")
        elif _is_id(constant[:, index]):
            sentences.append(f"'{name}' has a different number for every series: is it an id?")
        elif series_set.stepwise and _determines_steps(channel, series_set):
            sentences.append(_leak_warning(name))
    return [*sentences, *_find_sentinels(heads, series_set.channels)]


def _leak_warning(name: str) -> str:
    return f"'{name}' reveals the target: leave it out (channels= selects the others)."


def without_leaks(series_set: SeriesSet) -> SeriesSet:
    """Return the set without channels that determine the target, and with a warning for each.

    They have one value per series, and would hardly determine the target by chance.

    Args:
        series_set: The recordings.
    """
    leaks = [name for name in find_leaks(series_set) if _is_significant(series_set, name)]
    rest = [name for name in series_set.channels if name not in leaks]
    if not leaks or not rest:
        return series_set
    warnings = tuple(
        f"'{name}' determines the target of every series and is left out; name it in channels= if "
        "it is known before the target is."
        for name in leaks
    )
    return replace(series_set.select(rest), warnings=(*series_set.warnings, *warnings))


def find_leaks(series_set: SeriesSet) -> list[str]:
    """Return the channels with one value per series that determines the target.

    A class is determined if a value never occurs with two of them, and there are few values, or as
    many thresholds as classes; a number is determined if it is a linear function.

    Args:
        series_set: The recordings.
    """
    if series_set.targets is None or series_set.stepwise or len(series_set) < 2:
        return []
    constant = _constants([np.asarray(series[:_HEAD]) for series in series_set.series])
    targets = np.asarray(series_set.targets)
    return [
        name
        for index, name in enumerate(series_set.channels)
        if _determines(constant[:, index], targets, by_threshold=True)
    ]


def _is_significant(series_set: SeriesSet, name: str) -> bool:
    """Whether a channel of `find_leaks` would hardly determine the target by chance.

    With few series, a random number per series sorts the classes now and then.
    """
    targets = np.asarray(series_set.targets)
    if not look_like_classes(targets):
        return len(targets) > _FEW_DISTINCT
    index = series_set.channels.index(name)
    values = np.array([series[0, index] for series in series_set.series])
    labels, labelled = _class_indices(targets)
    values, labels = values[labelled], labels[labelled]
    counts = np.unique(labels, return_counts=True)[1].tolist()
    kinds, distinct = len(counts), len(np.unique(values))
    # Sorted by the value, every class is contiguous; or each of few values has one class.
    few = distinct <= 2 * kinds
    ways = distinct * math.log(kinds) if few else math.lgamma(kinds + 1)
    orders = math.lgamma(len(values) + 1) - sum(math.lgamma(count + 1) for count in counts)
    return ways - orders < _BY_CHANCE


def _class_indices(targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the index of each label, and which labels are not missing."""
    kinds, numbers = np.unique(comparable(targets), return_inverse=True)
    names = np.array(as_labels(kinds))
    return np.unique(names, return_inverse=True)[1][numbers], names[numbers] != ""


def _constants(heads: Sequence[np.ndarray]) -> np.ndarray:
    """Return the value per series and channel (n, channels), NaN where it is not constant."""
    low = np.stack([np.fmin.reduce(head) for head in heads]).astype(np.float64)
    high = np.stack([np.fmax.reduce(head) for head in heads])
    return np.where(low == high, low, np.nan)


def _is_id(values: np.ndarray) -> bool:
    """Whether every series has a different integer."""
    distinct = np.unique(values)
    return 1 < len(distinct) == len(values) and bool((distinct == np.round(distinct)).all())


def _determines_steps(channel: list[np.ndarray], series_set: SeriesSet) -> bool:
    assert isinstance(series_set.targets, list)
    labels = [np.asarray(t)[: len(h)] for t, h in zip(series_set.targets, channel, strict=True)]
    return _determines(np.concatenate(channel).astype(np.float64), np.concatenate(labels))


def _determines(values: np.ndarray, targets: np.ndarray, *, by_threshold: bool = False) -> bool:
    """Whether values determine targets: by few values, by thresholds or by a linear function.

    A threshold on a measured signal may define a state, so it does not count for steps.
    """
    if not look_like_classes(targets):
        numbers = targets.astype(np.float64)
        both = ~np.isnan(numbers) & np.isfinite(values)
        values, numbers = values[both], numbers[both]
        if len(values) < both.size / 2 or values.std() == 0 or numbers.std() == 0:
            return False
        return bool(abs(np.corrcoef(values, numbers)[0, 1]) > _ALMOST_ONE)
    labels, labelled = _class_indices(targets)
    values, labels = values[labelled], labels[labelled]
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


def _check_axes(series_set: SeriesSet) -> list[str]:
    """Return a question where steps and channels may be swapped."""
    steps, channels = int(series_set.lengths.max()), len(series_set.channels)
    numbers = [name.removeprefix("channel ") for name in series_set.channels]
    unnamed = numbers == [str(number) for number in range(channels)]
    if not unnamed or channels < max(_MANY_CHANNELS, 4 * steps):
        return []
    return [
        f"Series have {steps} steps of {channels} channels: are the axes swapped? An array is "
        "(series, time, channels); X.transpose(0, 2, 1) swaps the last two."
    ]


def _find_sentinels(heads: Sequence[np.ndarray], channels: Sequence[str]) -> list[str]:
    """Return questions about frequent extreme values, such as -999 for a missing value."""
    steps = sum(len(head) for head in heads)
    stride = max(1, steps * len(channels) // _VALUES)
    values = np.concatenate([head[::stride] for head in heads])
    sentences = []
    for index, name in enumerate(channels):
        finite = values[:, index][np.isfinite(values[:, index])]
        column = np.sort(finite.astype(np.float64))
        for number in sorted({*column[:1].tolist(), *column[-1:].tolist()}):
            fraction = _sentinel_fraction(column, number)
            if fraction:
                sentences.append(
                    f"{number:.10g} is {fraction:.1%} of the values of '{name}', far from all "
                    f"others: if it is a missing value, set na={number:.10g}, or write NaN."
                )
    return sentences


def _sentinel_fraction(values: np.ndarray, number: float) -> float:
    """Return the fraction of sorted values that an extreme one has, or 0 if it is no sentinel."""
    rest = values[values != number]
    count = len(values) - len(rest)
    if count < 3 or count < 1e-3 * len(values) or number != round(number):
        return 0.0
    if len(np.unique(rest)) <= _FEW_DISTINCT:
        return 0.0
    low, high = np.quantile(rest, [0.01, 0.99])
    distance = rest[0] - number if number < rest[0] else number - rest[-1]
    digits = f"{abs(number):.0f}"
    common = abs(number) in _SENTINELS or (len(digits) > 1 and set(digits) <= {"9"})
    return count / len(values) if distance > (1 if common else 20) * (high - low) else 0.0


def strange_series(preparation: Preparation, series: Sequence[np.ndarray]) -> dict[int, str]:
    """Return what is strange about new recordings by their index: no values, another unit.

    Args:
        preparation: The preparation of the training data.
        series: The new recordings, with the channels of the preparation.
    """
    strange: dict[int, str] = {}
    mean, std = np.array(preparation.mean), np.array(preparation.std)
    scaled = not ((mean == 0) & (std == 1)).all()  # otherwise the size of values is unknown
    columns = [preparation.raw_channels.index(name) for name in preparation.channels]
    for number, array in enumerate(series):
        values = np.asarray(array[:_HEAD], dtype=np.float64)[:, columns]
        finite = np.isfinite(values)
        if not finite.any():
            strange[number] = "has no values: its prediction is meaningless."
            continue
        total = (np.where(finite, values, 0.0) ** 2).sum(0)
        size = np.sqrt(total / np.maximum(1, finite.sum(0)))
        ratio = size / np.sqrt(mean**2 + std**2)
        odd = np.flatnonzero((size > 0) & ((ratio > _OTHER_UNIT) | (ratio < 1 / _OTHER_UNIT)))
        if scaled and len(odd):
            index = int(odd[0])
            strange[number] = (
                f"has values of '{preparation.channels[index]}' that are {ratio[index]:.2g} times "
                "those of training: is it another unit?"
            )
    return strange


def in_words(strange: Mapping[int, str], ids: Sequence[str]) -> list[str]:
    """Return sentences about a few of the strange series.

    Args:
        strange: The result of `strange_series`.
        ids: The names of the series.
    """
    sentences = [f"Series '{ids[number]}' {what}" for number, what in strange.items()]
    rest = len(sentences) - _FEW_SERIES
    more = [f"{rest:,} more series look strange."] if rest > 0 else []
    return [*sentences[:_FEW_SERIES], *more]
