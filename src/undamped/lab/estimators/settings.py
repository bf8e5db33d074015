"""Settings an estimator starts from, over those that `undamped.lab.tasks.series_defaults` suggests.

An estimator counts its budget in updates and stops early; few series make one batch.
"""

from __future__ import annotations

from typing import Any

from undamped.lab.data.recordings.preparation import Kind
from undamped.lab.tasks.series_defaults import suggest
from undamped.models.for_task import model_options

_FEWEST_UPDATES, _MOST_UPDATES = 300, 3000
_SEQUENCE_STEPS = 3_000_000  # steps of sequences that a training reads, within those limits
WAITING = 10  # validations without anything better, of the 25 in a training


def starting_from(
    model: str, *, length: int, count: int, channels: int, kind: Kind
) -> dict[str, dict[str, Any]]:
    """Return settings of model and training that suit the size of the data.

    Args:
        model: The registry name of the network, which takes the options it knows.
        length: Steps of a typical series.
        count: Series in the training part.
        channels: Features per step.
        kind: What is asked.
    """
    suggested = suggest(length, count, channels, kind, model)
    known = model_options(model)
    options = {**suggested["model"], "hidden_size": 64}
    train = {**suggested["train"], "patience": WAITING}
    # Few series make batches of their own; more share one, as far as memory allows.
    train["batch_size"] = max(min(16, count), train["batch_size"])
    del train["epochs"]
    updates = _SEQUENCE_STEPS / (length * train["batch_size"])
    train["steps"] = round(min(_MOST_UPDATES, max(_FEWEST_UPDATES, updates)))
    return {"model": {n: v for n, v in options.items() if n in known}, "train": train}
