"""HBNODE and GHBNODE beside NODE, ANODE and SONODE on MNIST: accuracy, evaluations, seconds.

The fields are those of the authors' programs: three convolutions that take the time as an input,
with the authors' number of channels and `width` times their hidden channels. The budget is smaller
than theirs, which is 40 epochs over 60,000 images on a GPU.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

import torch
from torch import nn

from undamped._base.errors import OptionError
from undamped._base.options import PositiveFloat, PositiveInt
from undamped._base.registry import models
from undamped.lab.papers.annuli import COLOURS, train_epoch
from undamped.lab.papers.runs import experiment
from undamped.lab.report.charts import label, panels
from undamped.lab.report.table import Progress, Report, Table, silent
from undamped.lab.tasks.images import MNISTImages

# Registry name, options and hidden channels of every model.
MODELS: dict[str, tuple[str, dict[str, Any], int]] = {
    "NODE": ("conv-node", {}, 92),
    "ANODE": ("conv-node", {"augmented_channels": 5}, 64),
    "SONODE": ("conv-sonode", {"channels": 5}, 50),
    "HBNODE": ("conv-hbnode", {"channels": 5}, 50),
    "GHBNODE": ("conv-hbnode", {"channels": 6, "general": True}, 45),
}
AUTHORS = {
    "NODE": ("96.9", "81 / 197", "978"),
    "ANODE": ("98.1", "40 / 53", "275"),
    "SONODE": ("98.2", "47 / 52", "263"),
    "HBNODE": ("97.9", "34 / 38", "220"),
    "GHBNODE": ("98.2", "40 / 50", "260"),
}
"""Accuracy in percent, forward and backward evaluations, and seconds per epoch of the authors'
logs: means of three runs at epoch 40."""
HEADER = (
    *("model", "parameters", "test accuracy %", "forward NFE", "backward NFE", "s per epoch"),
    *("authors: accuracy %", "forward / backward NFE", "s per epoch"),
)


@dataclass(frozen=True)
class ImageRun:
    """One model; every tuple has a value for each epoch.

    Args:
        model: Its name.
        parameters: Number of parameters.
        accuracy: On the test images.
        forward: Mean evaluations of a forward pass.
        backward: Mean evaluations of a backward pass.
        loss: Mean training loss.
        seconds: Duration of the epoch.
    """

    model: str
    parameters: int
    accuracy: tuple[float, ...]
    forward: tuple[float, ...]
    backward: tuple[float, ...]
    loss: tuple[float, ...]
    seconds: tuple[float, ...]

    def row(self) -> tuple[str, ...]:
        """Return the row of the table, with the authors' averages."""
        accuracy, forward, backward = self.accuracy[-1], self.forward[-1], self.backward[-1]
        numbers = (f"{100 * accuracy:.1f}", f"{forward:.0f}", f"{backward:.0f}")
        seconds = f"{mean(self.seconds):.0f}"
        return (self.model, str(self.parameters), *numbers, seconds, *AUTHORS[self.model])


@experiment("mnist-odes")
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
    progress: Progress = silent,
) -> Report:
    """HBNODE and GHBNODE beside NODE, ANODE and SONODE on MNIST: accuracy, evaluations.

    Args:
        epochs: Passes over the training images; the authors have 40.
        images: Number of training images; the authors have 60,000.
        test_images: Number of test images, of 10,000.
        width: Hidden channels as a fraction of the authors'.
        pool: Side of the squares of pixels that are averaged; the authors do not pool.
        batch: Images per update.
        learning_rate: Of Adam; the authors have 5e-5, for many more updates.
        tolerance: Relative and absolute tolerance of dopri5.
        seed: Seed of the order of images and of the models.
        progress: Called with a name after every training.

    Example:
        >>> result = run(epochs=5, images=2048)

    Reference:
        H. Xia and others. Heavy ball neural ordinary differential equations. NeurIPS, 2021.
    """
    task = MNISTImages(training=images, pool=pool, seed=seed)
    if batch > images:
        raise OptionError(f"batch must be ≤ the {images} training images, got {batch}.")
    settings = {
        "optimiser": f"Adam, {learning_rate:g}",
        "solver": f"dopri5, tolerance {tolerance:g}, gradient adjoint",
    }
    runs = []
    for name, (registry_name, options, hidden) in MODELS.items():
        torch.manual_seed(seed)
        # The adjoint, because the paper counts its backward evaluations.
        model = models.build(
            registry_name,
            input_size=task.input_size,
            output_size=task.output_size,
            hidden_size=max(1, round(width * hidden)),
            tolerance=tolerance,
            gradient="adjoint",
            **options,
        )
        runs.append(_train(name, model, task, epochs, batch, learning_rate, test_images))
        progress(name)
    table = Table(HEADER, [run.row() for run in runs])
    return Report(runs, [table], {"mnist_odes": lambda: _figure(runs)}, settings=settings)


def _train(
    name: str,
    model: Any,
    task: MNISTImages,
    epochs: int,
    batch: int,
    learning_rate: float,
    test_images: int,
) -> ImageRun:
    optimiser = torch.optim.Adam(model.parameters(), lr=learning_rate)
    steps = task.count("train", batch)
    assert steps is not None
    rows = []
    for epoch in range(epochs):
        start = time.perf_counter()
        indices = range(epoch * steps, (epoch + 1) * steps)
        batches = (task.batch("train", index, batch) for index in indices)
        means = train_epoch(model, optimiser, ((b.inputs, b.targets) for b in batches))
        seconds = time.perf_counter() - start
        rows.append((_accuracy(model, task, test_images), *means, seconds))
    count = sum(parameter.numel() for parameter in model.parameters())
    return ImageRun(name, count, *zip(*rows, strict=True))


@torch.no_grad()
def _accuracy(model: nn.Module, task: MNISTImages, count: int) -> float:
    correct = total = number = 0
    size = min(250, count)
    while total < min(count, task.sequences("test")):
        data = task.batch("test", number, size)
        correct += int((model(data.inputs).argmax(1) == data.targets).sum())
        total, number = total + len(data.targets), number + 1
    return correct / total


def _figure(runs: Sequence[ImageRun]) -> Any:
    figure, all_axes = panels(10, 3.2, columns=3)
    names = ("forward evaluations", "backward evaluations", "test accuracy, %")
    for run in runs:
        epochs = range(1, len(run.forward) + 1)
        curves = (run.forward, run.backward, [100 * value for value in run.accuracy])
        for axes, curve in zip(all_axes, curves, strict=True):
            axes.plot(epochs, curve, color=COLOURS[run.model], label=run.model, marker=".")
    for axes, name in zip(all_axes, names, strict=True):
        label(axes, "epoch", name, legend=axes is all_axes[0])
    return figure
