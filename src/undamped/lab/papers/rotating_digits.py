"""Rotating digits: latent models interpolate missing frames and extrapolate future ones.

Models observe some frames of a rotation and predict all of them. The figure shows a digit of the
test set, the observed frames, and the prediction of each model.

    undamped reproduce rotating-digits --out figures/
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
import torch

from undamped._base.options import NonNegativeInt, PositiveInt
from undamped._base.registry import models
from undamped.lab.papers.runs import SeedOptions, experiment, fit_once, prefixed
from undamped.lab.report.charts import panels
from undamped.lab.report.table import Report, Table
from undamped.lab.tasks.irregular.curves import SIDE, Query, RotatingDigits

OPTIONS = {"decoder_size": 128, "noise": 0.1}
"""Of all models. The noise is fixed: learned, it would vanish for pixels that are always black."""
SIZES = {"ode2vae": {"latent_size": 8}, "latent-ode": {"latent_size": 16}}
"""As many latent numbers for both: eight positions and velocities are sixteen."""


@dataclass(frozen=True)
class Prediction:
    """The prediction of one model for the test digits.

    Args:
        model: Registry name.
        error: Mean squared error over all requested frames of all test digits.
        frames: (requested, rows, columns) of one digit.
        parameters: Number of parameters.
        updates: Number of updates.
        cpu_seconds: CPU time of training.
    """

    model: str
    error: float
    frames: np.ndarray
    parameters: int
    updates: int
    cpu_seconds: float


@experiment("rotating-digits")
def run(
    *,
    networks: Sequence[str] = ("ode2vae", "latent-ode"),
    query: Query = "all",
    observed: PositiveInt = 8,
    steps: PositiveInt = 2000,
    example: NonNegativeInt = 0,
    **options: Unpack[SeedOptions],
) -> Report:
    """Predict all frames of rotating digits from some of them, by latent variable models.

    Args:
        networks: Names of models: ode2vae, latent-ode, rnn-vae.
        query: Whether all frames are requested, or the second half from the first.
        observed: How many of the 16 frames a model observes.
        steps: Updates of each, of 40 digits.
        example: The index of the test digit in the figure.
        options: Seed, folder and progress; see `SeedOptions`.

    Example:
        >>> result = run(networks=("ode2vae",), steps=200)

    Reference:
        Ç. Yıldız, M. Heinonen, H. Lähdesmäki. ODE²VAE. NeurIPS, 2019, whose digits have 28 × 28
        pixels and whose encoders are convolutional.
    """
    for name in networks:
        models[name]  # raises for an unknown name
    task = RotatingDigits(query=query, observed=observed, seed=options["seed"])
    batch = task.batch("test", 0, task.sequences("test"))
    predictions = []
    for number, name in enumerate(networks):
        fraction = number / len(networks)
        options["progress"](name, fraction)
        trained = fit_once(
            name,
            "rotating-digits",
            model_options=OPTIONS | SIZES.get(name, {}),
            task_options={"query": query, "observed": observed},
            train={"steps": steps, "validate_every": max(1, steps // 10)},
            seed=options["seed"],
            out=options["out"],
            progress=prefixed(options["progress"], name, fraction),
        )
        result = trained.result
        assert result is not None
        with torch.no_grad():
            answer = trained.model().eval()(batch)[:, example]
        predictions.append(
            Prediction(
                name,
                result["test"]["mse"],
                answer.view(-1, SIDE, SIDE).numpy(),
                trained.settings["model"]["parameters"],
                result["steps"],
                result["cpu_seconds"],
            )
        )
    baseline = task.chance.metric
    rows = [
        (
            prediction.model,
            f"{prediction.error:.4f}",
            f"{prediction.error / baseline:.0%}",
            f"{prediction.parameters:,}",
            f"{prediction.updates:,}",
            f"{prediction.cpu_seconds:.0f}",
        )
        for prediction in predictions
    ]
    rows.append((task.chance.rule, f"{baseline:.4f}", "100%", "", "", ""))
    header = ("", "test mse", "of the baseline", "parameters", "updates", "CPU s")
    frames = digit_frames(batch, example)
    frames |= {prediction.model: prediction.frames for prediction in predictions}
    return Report(
        predictions,
        [Table(header, rows)],
        {"rotating-digits": lambda: _figure(frames)},
        {"baseline": baseline},
    )


def digit_frames(batch: Any, number: int) -> dict[str, np.ndarray]:
    """Return the true frames of a digit and, if there are any, those of them that were observed.

    Args:
        batch: A batch of the test set.
        number: The number of the digit.
    """
    truth = batch.targets[:, number].view(-1, SIDE, SIDE).numpy()
    requested = batch.target_times[:, number].tolist()
    inputs = batch.inputs[:, number].view(-1, SIDE, SIDE).numpy()
    observed = np.full_like(truth, np.nan)
    for time, frame in zip(batch.times[:, number].tolist(), inputs, strict=True):
        if time in requested:
            observed[requested.index(time)] = frame
    return {"true": truth} | ({} if np.isnan(observed).all() else {"observed": observed})


def _figure(rows: Mapping[str, np.ndarray]) -> Any:
    count = len(rows["true"])
    figure, all_axes = panels(0.55 * count + 1.2, 0.62 * len(rows) + 0.2, count, len(rows))
    for number, (name, frames) in enumerate(rows.items()):
        line = all_axes[number * count : (number + 1) * count]
        for axes, frame in zip(line, frames, strict=True):
            axes.imshow(frame, cmap="cividis", vmin=0, vmax=1)
            axes.set(xticks=[], yticks=[])
        line[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8)
    return figure
