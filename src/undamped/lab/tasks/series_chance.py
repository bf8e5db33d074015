"""What a guess scores on recordings: the commonest class, the mean, or the last value."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from undamped.lab.data.recordings.preparation import Preparation
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.tasks.task import Chance

NO_ANSWER = -100  # what cross entropy leaves out


def series_chance(
    series_set: SeriesSet,
    prepared: Preparation,
    known: np.ndarray,
    asked: np.ndarray,
    weights: Sequence[float] = (),
) -> Chance:
    """Return what a guess scores that has seen the training part.

    Args:
        series_set: All series.
        prepared: How they are prepared.
        known: Numbers of the series of the training part.
        asked: Numbers of those it is scored on.
        weights: What an answer of each class counts, if not all count alike.
    """
    if prepared.kind == "forecast":
        return _last_value(series_set, prepared, asked)
    seen, truth = (_targets(series_set, prepared, numbers) for numbers in (known, asked))
    if prepared.classes is None:
        error = truth[~np.isnan(truth)] * prepared.target_std[0]  # the mean is 0
        root = float(np.sqrt(np.mean(error**2)))
        loss = (root / prepared.target_std[0]) ** 2
        return Chance(loss=loss, metric=root, guess="always the training mean")
    seen, truth = seen[seen != NO_ANSWER], truth[truth != NO_ANSWER]
    counts = np.bincount(seen, minlength=len(prepared.classes))
    each = np.asarray(weights) if weights else np.ones(len(counts))
    weighed = (counts + 1) * each  # one more of each: the test may hold it anew
    shares = weighed / weighed.sum()
    commonest = int(counts.argmax())
    return Chance(
        loss=float(-(np.log(shares) * each)[truth].mean()),
        metric=float(each[truth][truth == commonest].sum() / each[truth].sum()),
        guess=f"always '{prepared.classes[commonest]}', the commonest in training",
    )


def class_counts(series_set: SeriesSet, prepared: Preparation, numbers: np.ndarray) -> np.ndarray:
    """Return how many answers of each class some series have.

    Args:
        series_set: All series.
        prepared: How they are prepared.
        numbers: Which of them.
    """
    seen = _targets(series_set, prepared, numbers)
    return np.bincount(seen[seen != NO_ANSWER], minlength=len(prepared.classes or ()))


def _targets(series_set: SeriesSet, prepared: Preparation, numbers: np.ndarray) -> np.ndarray:
    targets = series_set.targets
    if isinstance(targets, list):
        return np.concatenate([prepared.encode(targets[number]) for number in numbers])
    assert targets is not None
    return prepared.encode(targets[numbers])


def _last_value(series_set: SeriesSet, prepared: Preparation, numbers: np.ndarray) -> Chance:
    places = [series_set.channels.index(name) for name in prepared.forecast]
    scale, total, loss, count = np.array(prepared.target_std), 0.0, 0.0, 0
    # Said for every quantile, the last value has this mean pinball loss where it is too low and
    # where it is too high.
    low = float(np.mean(prepared.quantiles)) if prepared.quantiles else 0.5
    for number in numbers:
        raw = np.asarray(series_set.series[int(number)], dtype=np.float64)[:, places]
        past, ahead = raw[: -prepared.horizon], raw[-prepared.horizon :]
        seen = np.maximum.accumulate(
            np.where(np.isnan(past), -1, np.arange(len(past))[:, None]), axis=0
        )[-1]
        last = np.where(seen >= 0, past[seen, range(len(places))], prepared.target_mean)
        errors = ahead - last
        there = ~np.isnan(errors)
        standard = (errors / scale)[there]
        if prepared.quantiles:
            total += float(np.abs(errors[there]).sum())
            loss += float(np.maximum(low * standard, (low - 1) * standard).sum())
        else:
            total += float(np.square(errors[there]).sum())
            loss += float(np.square(standard).sum())
        count += int(there.sum())
    count = max(1, count)
    return Chance(
        loss=loss / count,
        metric=total / count if prepared.quantiles else float(np.sqrt(total / count)),
        guess="always the last value",
    )
