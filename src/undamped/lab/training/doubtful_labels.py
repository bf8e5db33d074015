"""Labels that a model which was not shown them does not believe.

A bank learns all series; its ridge regression knows what it would have answered to each without
having learnt from it. Where that answer gives the label of a series little chance, either the
series is unusual or the label is wrong: somebody should look.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from undamped._base.contract import Batch
from undamped._base.errors import OptionError, explain
from undamped.lab.baselines.bank.oscillator_bank import OscillatorBank
from undamped.lab.data.recordings.prepared import batch_of
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.tasks.series import SeriesTask

UNLIKELY = 0.1
"""A label with less than this chance is listed."""
_AT_ONCE = 50


@dataclass(frozen=True)
class DoubtfulLabel:
    """A series whose label is not believed.

    Args:
        id: What the series is called.
        label: Its label.
        chance: How likely that is, to a bank that has learnt all other series.
        instead: What it says instead.
        instead_chance: How likely that is.
    """

    id: str
    label: str
    chance: float
    instead: str
    instead_chance: float


@dataclass(frozen=True)
class LabelCheck:
    """What came of a look at all labels.

    Args:
        series: How many there were.
        right: The share that was told right without having been learnt from.
        doubtful: Those to look at, the least likely first.
        alone: Labels of which there is one series, about which nothing can be said.
    """

    series: int
    right: float
    doubtful: tuple[DoubtfulLabel, ...]
    alone: tuple[str, ...]

    @property
    def sentences(self) -> list[str]:
        """What was found, in words."""
        said = [
            f"{self.right:.1%} of {self.series:,} labels are told right by a bank that has learnt "
            f"all series but the one it is asked about; {len(self.doubtful):,} labels have a "
            f"chance of less than {UNLIKELY:g}."
        ]
        if self.alone:
            said.append(f"Nothing can be said of labels with one series: {', '.join(self.alone)}.")
        return said

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)


def check_labels(series_set: SeriesSet, *, seed: int = 0) -> LabelCheck:
    """Find the labels that are not believed.

    Args:
        series_set: Recordings with one label each.
        seed: Where the bank comes from.

    Example:
        >>> found = check_labels(SeriesSet.of(waves, targets=labels))  # doctest: +SKIP
        >>> [one.id for one in found.doubtful]  # doctest: +SKIP
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
    chances = torch.softmax(model.loo_predictions, -1).numpy()
    truth = torch.cat([batch.targets for batch in batches]).numpy()
    classes, ids = task.preparation.classes, task.series_set.ids
    alone = np.bincount(truth, minlength=len(classes)) == 1
    said, own = chances.argmax(1), chances[np.arange(len(truth)), truth]
    listed = np.flatnonzero((own < UNLIKELY) & (said != truth) & ~alone[truth])
    return LabelCheck(
        len(truth),
        float((said == truth).mean()),
        tuple(
            DoubtfulLabel(
                ids[i],
                classes[truth[i]],
                float(own[i]),
                classes[said[i]],
                float(chances[i, said[i]]),
            )
            for i in listed[np.argsort(own[listed])]
        ),
        tuple(name for name, one in zip(classes, alone, strict=True) if one),
    )


def _batches(task: SeriesTask) -> Iterator[Batch]:
    """Yield all series in their order, whatever part they are in."""
    found, prepared = task.series_set, task.preparation
    for begin in range(0, len(found), _AT_ONCE):
        numbers = np.arange(begin, min(begin + _AT_ONCE, len(found)))
        made = [
            prepared.prepare(found.series[i], None if found.times is None else found.times[i])
            for i in numbers
        ]
        assert isinstance(found.targets, np.ndarray)
        targets = torch.from_numpy(prepared.encode(found.targets[numbers]))
        yield batch_of(made)._replace(targets=targets)


def _no_labels(got: str) -> OptionError:
    return OptionError(
        explain(
            "--labels",
            expected="recordings with one label each",
            got=got,
            remedy="Name the column of labels with target=, or leave --labels out.",
        )
    )
