"""Settings an estimator starts from, over those that `undamped.training.defaults` suggests.

An estimator has the whole series before it answers, and reads the mean of all outputs, not the
last one. Readout, time step and rate were chosen by cross-validation inside the training parts of
small sets that aeon brings; their test parts were looked at once, for docs/tutorials/estimators.md.
"""

from __future__ import annotations

import math
from typing import Any

from undamped.data.preparation import Kind
from undamped.options import options_of
from undamped.registry import models
from undamped.training.defaults import suggest, understood

_FEWEST_UPDATES, _MOST_UPDATES = 300, 3000
_SEQUENCE_STEPS = 3_000_000  # steps of sequences that a training reads, within those limits
_LONG = 1000  # steps; longer series want smaller rates
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
    suggested = suggest(length, count, channels, kind)
    options = {**suggested["model"], "hidden_size": 64}
    train = {**suggested["train"], "patience": WAITING}
    if kind in ("classification", "regression"):
        # The published steps shrink with the root of the length; short series need to swing too.
        dt = min(0.8, max(2 / math.sqrt(length), 15 / length))
        options |= {"alpha": 1.0, "dt": float(f"{dt:.2g}")}
        train["learning_rate"] = 2e-2 if length <= _LONG else 1e-2
    # Few series make batches of their own; more share one, as far as memory allows.
    train["batch_size"] = max(min(16, count), train["batch_size"])
    del train["epochs"]
    updates = _SEQUENCE_STEPS / (length * train["batch_size"])
    train["steps"] = round(min(_MOST_UPDATES, max(_FEWEST_UPDATES, updates)))
    options, known = understood(options, model), options_of(models[model])
    options = {name: value for name, value in understood(options, model).items() if name in known}
    if kind in ("classification", "regression"):
        options["readout"] = "mean"
    return {"model": options, "train": train}
