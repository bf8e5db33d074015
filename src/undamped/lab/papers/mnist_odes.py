"""HBNODE and GHBNODE beside NODE, ANODE and SONODE on MNIST: accuracy, evaluations, seconds.

The fields are those of the authors' programs: three convolutions that see the time, as many
channels and, times `width`, as many hidden channels as there. The budget is not theirs, which is
40 epochs over 60,000 pictures on a graphics card.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import mean
from typing import Any

import torch
from torch import nn

from undamped._base.errors import OptionError
from undamped._base.options import PositiveFloat, PositiveInt
from undamped._base.registry import experiments, models
from undamped.lab.papers.annuli import COLOURS
from undamped.lab.tasks.images import MNISTImages


@dataclass(frozen=True)
class Official:
    """What the authors' own logs say, the mean of three runs at epoch 40."""

    accuracy: float
    forward: int
    backward: int
    seconds: int


# Registry name, options, hidden channels, and the authors' averages.
CONTESTANTS: dict[str, tuple[str, dict[str, Any], int, Official]] = {
    "NODE": ("conv-node", {}, 92, Official(96.9, 81, 197, 978)),
    "ANODE": ("conv-node", {"augmented_channels": 5}, 64, Official(98.1, 40, 53, 275)),
    "SONODE": ("conv-sonode", {"channels": 5}, 50, Official(98.2, 47, 52, 263)),
    "HBNODE": ("conv-hbnode", {"channels": 5}, 50, Official(97.9, 34, 38, 220)),
    "GHBNODE": ("conv-hbnode", {"channels": 6, "general": True}, 45, Official(98.2, 40, 50, 260)),
}


@dataclass(frozen=True)
class PictureRun:
    """One model.

    Args:
        model: Its name.
        parameters: Trained numbers.
        accuracy: On the test pictures, after every epoch.
        forward: Mean evaluations of a forward pass, for every epoch.
        backward: And of a backward pass.
        loss: Mean training loss, for every epoch.
        seconds: Of training, for every epoch.
    """

    model: str
    parameters: int
    accuracy: tuple[float, ...]
    forward: tuple[float, ...]
    backward: tuple[float, ...]
    loss: tuple[float, ...]
    seconds: tuple[float, ...]


@dataclass(frozen=True)
class PictureResult:
    """All runs, with the settings that made them."""

    runs: tuple[PictureRun, ...]
    settings: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return {"settings": self.settings, "runs": [vars(run) | {} for run in self.runs]}

    def markdown(self) -> str:
        """Return a table with the authors' averages beside ours."""
        lines = [
            "| model | parameters | test accuracy % | forward NFE | backward NFE | s per epoch | "
            "authors: accuracy % | forward / backward NFE | s per epoch |",
            "|---|---|---|---|---|---|---|---|---|",
        ]
        for run in self.runs:
            theirs = CONTESTANTS[run.model][3]
            lines.append(
                f"| {run.model} | {run.parameters} | {100 * run.accuracy[-1]:.1f} | "
                f"{run.forward[-1]:.0f} | {run.backward[-1]:.0f} | {mean(run.seconds):.0f} | "
                f"{theirs.accuracy} | {theirs.forward} / {theirs.backward} | {theirs.seconds} |"
            )
        return "\n".join(lines)

    def figures(self) -> dict[str, Any]:
        """Return a picture: evaluations forward and backward, and accuracy, over training."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(10, 3.2), layout="constrained")
        axes = figure.subplots(1, 3)
        names = ("forward evaluations", "backward evaluations", "test accuracy, %")
        for run in self.runs:
            epochs = range(1, len(run.forward) + 1)
            curves = (run.forward, run.backward, [100 * value for value in run.accuracy])
            for axis, curve, name in zip(axes, curves, names, strict=True):
                axis.plot(epochs, curve, color=COLOURS[run.model], label=run.model, marker=".")
                axis.set_xlabel("epoch")
                axis.set_ylabel(name)
        axes[0].legend(fontsize=7)
        return {"mnist_odes": figure}


@experiments.register("mnist-odes")
def run(
    *,
    epochs: PositiveInt = 5,
    images: PositiveInt = 2048,
    test_images: PositiveInt = 1000,
    width: PositiveFloat = 0.25,
    pool: PositiveInt = 2,
    batch: PositiveInt = 64,
    learning_rate: PositiveFloat = 2e-3,
    tolerance: PositiveFloat = 1e-4,
    seed: int = 0,
    tick: Callable[[str], None] | None = None,
) -> PictureResult:
    """HBNODE and GHBNODE beside NODE, ANODE and SONODE on MNIST: accuracy, evaluations.

    Args:
        epochs: Budget: passes over the training pictures; the authors' is 40.
        images: Training pictures; the authors' are 60,000.
        test_images: Test pictures, of 10,000.
        width: Hidden channels as a fraction of the authors'.
        pool: Squares of so many pixels a side are averaged; the authors' are not.
        batch: Pictures a step.
        learning_rate: Of Adam; the authors' is 5e-5, for many more steps.
        tolerance: Of dopri5, relative and absolute.
        seed: Of the order of pictures and of the models.
        tick: Called with a name after every training.

    Example:
        >>> result = run(epochs=5, images=2048)

    Reference:
        H. Xia and others. Heavy ball neural ordinary differential equations. NeurIPS, 2021.
    """
    task = MNISTImages(training=images, pool=pool, seed=seed)
    if batch > images:
        raise OptionError(
            f"batch: expected at most the {images} training pictures, got {batch}. Take fewer."
        )
    settings = {
        "epochs": epochs,
        "images": images,
        "test_images": test_images,
        "width": width,
        "pool": pool,
        "batch": batch,
        "seed": seed,
        "optimiser": f"Adam, {learning_rate:g}",
        "solver": f"dopri5, tolerance {tolerance:g}, gradient adjoint",
        "threads": torch.get_num_threads(),
    }
    runs = []
    for name in CONTESTANTS:
        runs.append(
            _train(name, task, epochs, test_images, width, batch, learning_rate, tolerance, seed)
        )
        if tick is not None:
            tick(name)
    return PictureResult(tuple(runs), settings)


def _train(
    name: str,
    task: MNISTImages,
    epochs: int,
    test_images: int,
    width: float,
    batch: int,
    learning_rate: float,
    tolerance: float,
    seed: int,
) -> PictureRun:
    torch.manual_seed(seed)
    registered, options, hidden, _ = CONTESTANTS[name]
    # The adjoint, because its evaluations backwards are what the paper counts.
    model = models.build(
        registered,
        input_size=task.input_size,
        output_size=task.output_size,
        hidden_size=max(1, round(width * hidden)),
        tolerance=tolerance,
        gradient="adjoint",
        **options,
    )
    optimiser = torch.optim.Adam(model.parameters(), lr=learning_rate)
    steps = task.count("train", batch)
    assert steps is not None
    columns: dict[str, list[float]] = {
        key: [] for key in ("accuracy", "forward", "backward", "loss", "seconds")
    }
    for epoch in range(epochs):
        began, counts = time.perf_counter(), []
        for step in range(steps):
            data = task.batch("train", epoch * steps + step, batch)
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(model(data.inputs), data.targets)
            loss.backward()
            optimiser.step()
            counts.append((model.evaluations, model.evaluations_backward, float(loss.detach())))
        columns["seconds"].append(time.perf_counter() - began)
        for place, key in enumerate(("forward", "backward", "loss")):
            columns[key].append(mean(count[place] for count in counts))
        columns["accuracy"].append(_accuracy(model, task, test_images))
    return PictureRun(
        model=name,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        **{key: tuple(values) for key, values in columns.items()},
    )


@torch.no_grad()
def _accuracy(model: nn.Module, task: MNISTImages, count: int) -> float:
    right = seen = number = 0
    size = min(250, count)
    while seen < min(count, task.sequences("test")):
        data = task.batch("test", number, size)
        right += int((model(data.inputs).argmax(1) == data.targets).sum())
        seen, number = seen + len(data.targets), number + 1
    return right / seen
