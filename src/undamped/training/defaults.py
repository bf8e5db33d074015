"""Settings to start from for data nobody has seen before, chosen from its length and size."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from undamped.data.preparation import Kind
from undamped.networks.oscillators import OscillatorNetwork
from undamped.registry import models
from undamped.tasks.series import SeriesTask

_BATCH_BYTES = 1 << 28  # what the activations of a batch may take
_SEQUENCE_STEPS = 4_000_000  # steps of sequences that a training reads, within the limits below
_FEWEST_UPDATES, _MOST_EPOCHS = 150, 200


def suggest(length: int, count: int, channels: int, kind: Kind) -> dict[str, dict[str, Any]]:
    """Return settings of model and training for recordings.

    The step of UnICORNN shrinks with the root of the length, as its published settings do from
    200 to 18,000 steps: what is written early is then neither washed out nor frozen. Width grows
    with the data, a batch is as large as memory and the number of series allow, and passes are as
    many as read four million steps, within limits: seconds to minutes on one core.

    Args:
        length: Steps of a typical series.
        count: Series in the training part.
        channels: Features per step.
        kind: What is asked.

    Returns:
        "model" with hidden_size, num_layers, and dt and alpha for UnICORNN alone, and "train"
        with batch_size, epochs, learning_rate, clip, schedule.

    Example:
        >>> suggest(length=4000, count=42, channels=3, kind="classification")["model"]["dt"]
        0.071
    """
    values = length * count * channels
    hidden = 32 if values < 200_000 else 64 if values < 20_000_000 else 128
    dt = min(0.5, max(0.02, 4.5 / math.sqrt(length)))
    fits = _BATCH_BYTES // max(1, length * hidden * 4 * 4)
    # At least eight updates in a pass, where there are enough series for that.
    batch = _power_of_two(min(64, max(1, fits), max(4, count // 8)))
    updates_per_pass = max(1, count // batch)
    passes = _SEQUENCE_STEPS / max(1, length * count)
    epochs = max(passes, _FEWEST_UPDATES / updates_per_pass)
    return {
        "model": {
            "hidden_size": hidden,
            "num_layers": 2,
            "dt": float(f"{dt:.2g}"),
            "alpha": _alpha(length, kind),
        },
        "train": {
            "batch_size": batch,
            "epochs": math.ceil(min(_MOST_EPOCHS, max(5.0, epochs))),
            "learning_rate": 1e-2 if length <= 1000 else 5e-3,
            "clip": 1.0,
            "schedule": "cosine",
        },
    }


def suggest_for(task: SeriesTask, model: str) -> dict[str, dict[str, Any]]:
    """Return the suggestion for a task made of recordings and a model."""
    lengths = task.series_set.lengths[task.parts["train"]] - (task.horizon or 0)
    found = suggest(int(np.median(lengths)), len(lengths), task.input_size, task.kind)
    return {**found, "model": understood(found["model"], model)}


def understood(options: dict[str, Any], model: str) -> dict[str, Any]:
    """Leave out what means something else to this model.

    UnICORNN's time step suits UnICORNN: coRNN and the antisymmetric networks have a `dt` too, but
    theirs stands beside a damping or a diffusion of their own, and twice as much of it explodes.
    """
    if model in models:
        network = models[model]
        if isinstance(network, type) and issubclass(network, OscillatorNetwork):
            return options
    return {name: value for name, value in options.items() if name not in ("dt", "alpha")}


def _power_of_two(number: int) -> int:
    return 1 << (max(1, number).bit_length() - 1)


def _alpha(length: int, kind: Kind) -> float:
    """Return the pull to the origin: none where what came early is asked for at the end."""
    return 0.0 if kind in ("classification", "regression") or length > 1000 else 1.0
