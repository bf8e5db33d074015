"""Digits that turn: latent models say the frames that nobody saw, and those to come.

Some frames of a turn are seen; every model says all of them. The picture shows a digit of the test
part, what was seen of it, and what each model made of that.

    undamped reproduce rotating-digits --out pictures/
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from undamped._base.options import NonNegativeInt, PositiveInt
from undamped._base.registry import experiments, models
from undamped.lab.papers.kept_runs import kept_fit
from undamped.lab.tasks.irregular.curves import Ask
from undamped.lab.tasks.irregular.rotating_digits import SIDE, RotatingDigits

OPTIONS = {"decoder_size": 128, "noise": 0.1}
"""Of all models. The noise is given: of pixels that are always black it would become nothing."""
SIZES = {"ode2vae": {"latent_size": 8}, "latent-ode": {"latent_size": 16}}
"""As many latent numbers for both: eight positions and velocities are sixteen."""


@dataclass(frozen=True)
class Rollout:
    """What one model made of the test digits.

    Args:
        model: Registry name.
        error: Mean square over all frames that are asked for, of all test digits.
        frames: (asked, rows, columns) of one of them.
        parameters: How many are trained.
        updates: Of training.
        cpu_seconds: Of training.
    """

    model: str
    error: float
    frames: np.ndarray
    parameters: int
    updates: int
    cpu_seconds: float


@dataclass(frozen=True)
class RotatingDigitsExperiment:
    """All models on the same digits.

    Args:
        settings: What the experiment was told.
        guess: What the error of a guess is, and which guess that is.
        truth: (asked, rows, columns) the digit that is drawn, as it turned.
        seen: Frames of it that the models saw, by their place among those that are asked for.
        rollouts: What was found.
    """

    settings: dict[str, Any]
    guess: tuple[float, str]
    truth: np.ndarray
    seen: dict[int, np.ndarray]
    rollouts: tuple[Rollout, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers for JSON, without the frames."""
        names = ("model", "error", "parameters", "updates", "cpu_seconds")
        rows = [{name: getattr(one, name) for name in names} for one in self.rollouts]
        return {"settings": self.settings, "guess": self.guess[0], "rollouts": rows}

    def markdown(self) -> str:
        """Return the table."""
        lines = [
            "| | test mse | of a guess | parameters | updates | CPU s |",
            "|---|---:|---:|---:|---:|---:|",
        ]
        for one in self.rollouts:
            lines.append(
                f"| {one.model} | {one.error:.4f} | {one.error / self.guess[0]:.0%} | "
                f"{one.parameters:,} | {one.updates:,} | {one.cpu_seconds:.0f} |"
            )
        lines.append(f"| {self.guess[1]} | {self.guess[0]:.4f} | 100% | | | |")
        return "\n".join(lines) + "\n"

    def figures(self) -> dict[str, Any]:
        """Return the picture: the digit, what was seen of it, and a row for each model."""
        from matplotlib.figure import Figure

        shown = list(np.full_like(self.truth, np.nan))
        for at, frame in self.seen.items():
            shown[at] = frame
        rows: dict[str, list[np.ndarray]] = {"true": list(self.truth)}
        if self.seen:
            rows["seen"] = shown
        rows |= {one.model: list(one.frames) for one in self.rollouts}
        size = (0.55 * len(self.truth) + 1.2, 0.62 * len(rows) + 0.2)
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots(len(rows), len(self.truth), squeeze=False)
        for line, (name, frames) in zip(axes, rows.items(), strict=True):
            for axis, frame in zip(line, frames, strict=True):
                axis.imshow(frame, cmap="cividis", vmin=0, vmax=1)
                axis.set_xticks([])
                axis.set_yticks([])
            line[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8)
        return {"rotating-digits": figure}


@experiments.register("rotating-digits")
def run(
    *,
    networks: Sequence[str] = ("ode2vae", "latent-ode"),
    ask: Ask = "all",
    seen: PositiveInt = 8,
    steps: PositiveInt = 2000,
    seed: NonNegativeInt = 0,
    shown: NonNegativeInt = 0,
    out: str = "runs",
    tick: Callable[..., None] | None = None,
) -> RotatingDigitsExperiment:
    """Say all frames of digits that turn, from some of them, by models with a latent start.

    Trainings that are in the folder already are not made again; one that was stopped goes on.

    Args:
        networks: Which ones: ode2vae, latent-ode, rnn-vae.
        ask: Whether all frames are asked for, or the second half from the first.
        seen: How many of the 16 frames a model sees.
        steps: Updates of each, of 40 digits.
        seed: Where all random numbers come from.
        shown: The number of the test digit that is drawn.
        out: The folder for the runs.
        tick: Told how it goes, for a progress bar.

    Example:
        >>> result = run(networks=("ode2vae",), steps=200)

    Reference:
        Ç. Yıldız, M. Heinonen, H. Lähdesmäki. ODE²VAE. NeurIPS, 2019, whose digits have 28 × 28
        pixels and go through convolutions.
    """
    for name in networks:
        models[name]
    options = {"ask": ask, "seen": seen}
    task = RotatingDigits(ask=ask, seen=seen, seed=seed)
    batch = task.batch("test", 0, task.sequences("test"))
    train = {"steps": steps, "validate_every": max(1, steps // 10)}
    rollouts = []
    for number, name in enumerate(networks):
        begun = number / len(networks)
        if tick is not None:
            tick(name, begun)
        trained = kept_fit(
            name,
            "rotating-digits",
            model_options=OPTIONS | SIZES.get(name, {}),
            task_options=options,
            train=train,
            seed=seed,
            out=out,
            tell=None if tick is None else _teller(tick, name, begun),
        )
        result = trained.result
        assert result is not None
        model = trained.model().eval()
        with torch.no_grad():
            answer = model(batch)[:, shown]
        rollouts.append(
            Rollout(
                name,
                result["test"]["mse"],
                answer.view(-1, SIDE, SIDE).numpy(),
                trained.settings["model"]["parameters"],
                result["steps"],
                result["cpu_seconds"],
            )
        )
    chance = task.chance
    settings = {"ask": ask, "seen": seen, "steps": steps, "seed": seed, "shown": shown}
    truth = batch.targets[:, shown].view(-1, SIDE, SIDE).numpy()
    return RotatingDigitsExperiment(
        settings, (chance.metric, chance.guess), truth, _seen(batch, shown), tuple(rollouts)
    )


def _teller(tick: Callable[..., None], name: str, share: float) -> Callable[[str], None]:
    return lambda line: tick(f"{name}: {line}", share)


def _seen(batch: Any, shown: int) -> dict[int, np.ndarray]:
    """Return what was seen of a digit, by its place among the frames that are asked for."""
    asked = batch.target_times[:, shown].tolist()
    frames = batch.inputs[:, shown].view(-1, SIDE, SIDE).numpy()
    stamps = batch.times[:, shown].tolist()
    return {
        asked.index(time): frame
        for time, frame in zip(stamps, frames, strict=True)
        if time in asked
    }
