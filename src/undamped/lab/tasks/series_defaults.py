"""Default settings for recordings, chosen by their length and number."""

from __future__ import annotations

import math
from typing import Any

from undamped._base.registry import models
from undamped.lab.data.recordings.preparation import Kind

_BATCH_BYTES = 1 << 28  # memory for the activations of a batch
_SEQUENCE_STEPS = 4_000_000  # time steps that a training reads, within the limits below
_FEWEST_UPDATES, _MOST_EPOCHS = 150, 200
_LONG = 1000  # steps; longer series need smaller learning rates


def suggest(
    length: int, count: int, channels: int, kind: Kind, model: str = "unicornn"
) -> dict[str, dict[str, Any]]:
    """Return settings of model and training for recordings.

    The step Δt of UnICORNN decreases with the square root of the length, as its published settings
    do from 200 to 18,000 steps: early inputs are then neither overwritten nor frozen. The width
    increases with the data, a batch is as large as memory and the number of series allow, and the
    epochs read four million steps, within limits: seconds to minutes on one core. If a series has
    one answer, it is read from the mean of all outputs.

    Readout, Δt, α and learning rate of UnICORNN were compared on validation splits of the training
    data of twelve data sets of the UCR and UEA archives, of 24 to 577 steps (docs/results.md).

    Args:
        length: Steps of a typical series.
        count: Series of the training split.
        channels: Features per step.
        kind: The kind of the question.
        model: The registry name of the network.

    Returns:
        "model" with hidden_size, num_layers, readout if there is a choice, dt and alpha for
        UnICORNN only, and "train" with batch_size, epochs, learning_rate, clip, schedule.

    Example:
        >>> suggest(length=4000, count=42, channels=3, kind="classification")["model"]["dt"]
        0.071
    """
    values = length * count * channels
    hidden = 32 if values < 200_000 else 64 if values < 20_000_000 else 128
    fits = _BATCH_BYTES // max(1, length * hidden * 4 * 4)
    # A power of two; at least eight updates per epoch, if there are enough series.
    batch = 1 << (min(64, max(1, fits), max(4, count // 8)).bit_length() - 1)
    updates_per_epoch = max(1, count // batch)
    epochs = max(_SEQUENCE_STEPS / max(1, length * count), _FEWEST_UPDATES / updates_per_epoch)
    one_answer = kind in ("classification", "regression")
    options: dict[str, Any] = {"hidden_size": hidden, "num_layers": 2}
    rate = 1e-2 if length <= _LONG else 5e-3
    # coRNN and the antisymmetric networks have a `dt` too, but it is balanced with their damping or
    # diffusion, and twice its value explodes.
    if model in models and getattr(models[model], "oscillates", False):
        dt = min(0.8, max(0.02, 4.5 / math.sqrt(length)))
        # No restoring force if early inputs matter at the end.
        alpha = 0.0 if one_answer or length > _LONG else 1.0
        options |= {"dt": float(f"{dt:.2g}"), "alpha": alpha}
        rate *= 2 if one_answer else 1
    if one_answer:
        options["readout"] = "mean"
    return {
        "model": options,
        "train": {
            "batch_size": batch,
            "epochs": math.ceil(min(_MOST_EPOCHS, max(5.0, epochs))),
            "learning_rate": rate,
            "clip": 1.0,
            "schedule": "cosine",
        },
    }
