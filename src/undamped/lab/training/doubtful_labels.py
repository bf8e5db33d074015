"""Labels that are probably wrong, by leave-one-out predictions.

A bank is fitted to all series, and its ridge regression gives the prediction for each series by a
fit without it. If that prediction assigns a low probability to the label, either the series is
unusual or the label is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from undamped._base.contract import Batch
from undamped._base.errors import OptionError
from undamped.lab.baselines.bank.oscillator_bank import OscillatorBank
from undamped.lab.data.recordings.prepared import batch_of
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.tasks.series import SeriesTask

UNLIKELY = 0.1
"""Labels with a lower probability are listed."""
_BATCH_SIZE = 50


@dataclass(frozen=True)
class DoubtfulLabel:
    """A series whose label is improbable.

    Args:
        id: The name of the series.
        label: Its label.
        chance: The probability of the label, by a bank that is fitted to all other series.
        instead: The most likely label.
        instead_chance: Its probability.
    """

    id: str
    label: str
    chance: float
    instead: str
    instead_chance: float


@dataclass(frozen=True)
class LabelCheck:
    """The result of `check_labels`.

    Args:
        series: Number of series.
        right: Leave-one-out accuracy.
        doubtful: The improbable labels, the least likely first.
        singletons: Labels of a single series, which cannot be checked.
    """

    series: int
    right: float
    doubtful: tuple[DoubtfulLabel, ...]
    singletons: tuple[str, ...]

    @property
    def sentences(self) -> list[str]:
        """The result in sentences."""
        sentences = [
            f"{self.right:.1%} of {self.series:,} labels are predicted by a bank that is fitted to "
            f"all other series; {len(self.doubtful):,} labels have a probability of less than "
            f"{UNLIKELY:g}."
        ]
        if self.singletons:
            labels = ", ".join(self.singletons)
            sentences.append(f"Labels of a single series cannot be checked: {labels}.")
        return sentences

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        entries = asdict(self)
        entries["alone"] = entries.pop("singletons")
        return entries


def check_labels(series_set: SeriesSet, *, seed: int = 0) -> LabelCheck:
    """Return the labels that are probably wrong.

    Args:
        series_set: Recordings with one label each.
        seed: The seed of the bank.

    Example:
        >>> check = check_labels(SeriesSet.of(waves, targets=labels))  # doctest: +SKIP
        >>> [label.id for label in check.doubtful]  # doctest: +SKIP
    """
    if series_set.targets is None or isinstance(series_set.targets, list):
        raise _no_labels("none" if series_set.targets is None else "labels at every step")
    task = SeriesTask(series_set, split="stratified" if series_set.parts is None else "auto")
    if task.kind != "classification":
        raise _no_labels("numbers")
    batches = list(_batches(task))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = OscillatorBank(task.task_shape)
        model.fit_closed_form(batches)
    assert model.loo_predictions is not None and task.preparation.classes is not None
    probabilities = torch.softmax(model.loo_predictions, -1).numpy()
    truth = torch.cat([batch.targets for batch in batches]).numpy()
    classes, ids = task.preparation.classes, task.series_set.ids
    single = np.bincount(truth, minlength=len(classes)) == 1
    likeliest, chance = probabilities.argmax(1), probabilities[np.arange(len(truth)), truth]
    doubtful = np.flatnonzero((chance < UNLIKELY) & (likeliest != truth) & ~single[truth])
    return LabelCheck(
        len(truth),
        float((likeliest == truth).mean()),
        tuple(
            DoubtfulLabel(
                ids[i],
                classes[truth[i]],
                float(chance[i]),
                classes[likeliest[i]],
                float(probabilities[i, likeliest[i]]),
            )
            for i in doubtful[np.argsort(chance[doubtful])]
        ),
        tuple(classes[i] for i in np.flatnonzero(single)),
    )


def _batches(task: SeriesTask) -> Iterator[Batch]:
    """Yield all series in their order, from all splits."""
    data, preparation = task.series_set, task.preparation
    for begin in range(0, len(data), _BATCH_SIZE):
        indices = np.arange(begin, min(begin + _BATCH_SIZE, len(data)))
        prepared = [
            preparation.prepare(data.series[i], None if data.times is None else data.times[i])
            for i in indices
        ]
        assert isinstance(data.targets, np.ndarray)
        targets = torch.from_numpy(preparation.encode(data.targets[indices]))
        yield batch_of(prepared)._replace(targets=targets)


def _no_labels(got: str) -> OptionError:
    return OptionError(
        f"--labels needs recordings with one label each, got {got}. Name the column of labels with "
        "target=, or omit --labels."
    )
