"""Attributes of images that a linear probe reads from the code of an encoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from undamped._base.contract import Batch
from undamped._base.registry import instruments
from undamped.analysis.core import InapplicableError, Layout, Probe, Result, Style, Trace
from undamped.analysis.core.statistics import answers_of, probe_scores
from undamped.analysis.core.unrolled import evaluating
from undamped.lab.tasks import optional
from undamped.lab.tasks.task import Task

IMAGES = 1000
"""Number of images."""
NOISE = 0.1
"""Standard deviation of noise on every pixel, so that no two images are equal."""
FOLDS = 2


@instruments.register("encoder_probe")
@dataclass(frozen=True)
class EncoderProbe(Result):
    """The accuracy of linear probes on the codes of test images.

    `accuracies` contains, for each of `attributes`, the accuracy of a linear probe on the codes of
    noisy images, and `chances` that of the most frequent value.
    """

    question = "Which attributes of an image does the encoder represent?"
    page_order = 16
    columns = ("attribute", "accuracy", "chance level")

    attributes: tuple[str, ...]
    accuracies: NDArray[np.float64]
    chances: NDArray[np.float64]
    images: int
    name: str

    @classmethod
    def measure(cls, probe: Probe) -> EncoderProbe:
        """Encode images of the task's test split."""
        if not hasattr(probe.model, "encoder") or not probe.of_images:
            raise InapplicableError("it has no encoder of images")
        if probe.task is None or not optional.attributes(probe.task, "test", 0, 2):
            raise InapplicableError("the attributes of its images are unknown")
        return encoder_probe(probe.model, probe.task, seed=probe.seed, name=probe.name)

    @property
    def sentence(self) -> str:
        scores = [
            f"{attribute} {100 * accuracy:.0f} % (chance level {100 * chance:.0f} %)"
            for attribute, accuracy, chance in zip(
                self.attributes, self.accuracies, self.chances, strict=True
            )
        ]
        return f"Accuracy of a linear probe on the code of test images: {', '.join(scores)}."

    @property
    def rows(self) -> list[tuple[str, ...]]:
        return [
            (attribute, f"{100 * accuracy:.1f} %", f"{100 * chance:.1f} %")
            for attribute, accuracy, chance in zip(
                self.attributes, self.accuracies, self.chances, strict=True
            )
        ]

    @property
    def layout(self) -> Layout:
        return Layout(
            "Attributes in the code",
            f"attribute: {', '.join(f'{i} {a}' for i, a in enumerate(self.attributes))}",
            "accuracy of a linear probe",
            "High for attributes that the answer depends on; others may be low.",
            y_range=(0, 1.05),
        )

    def traces(self, style: Style) -> list[Trace]:
        """A point for each attribute; for a single model also chance levels."""
        at = range(len(self.attributes))
        points = style.points(at, self.accuracies, "linear probe", text=list(self.attributes))
        if not style.single:
            return [points]
        return [points, style.points(at, self.chances, "chance level", color=1)]


def encoder_probe(
    model: nn.Module, task: Task, *, images: int = IMAGES, seed: int = 0, name: str = ""
) -> EncoderProbe:
    """Fit linear probes to the codes of half of the images, and score them on the others.

    Args:
        model: A network of images with an `encoder`.
        task: The task of the images, with their attributes.
        images: Number of images.
        seed: Seed of the noise.
        name: Name of the model in figures.
    """
    size = max(2, images // (task.task_shape.length or 2))
    batch, attributes = task.batch("test", 0, size), optional.attributes(task, "test", 0, size)
    generator = torch.Generator().manual_seed(seed)
    indices = torch.randperm(batch.inputs.numel(), generator=generator)[:images]
    codes = _codes(model, batch, indices, generator)
    accuracies, chances = [], []
    for values in attributes.values():
        labels = values.flatten()[indices]
        labelled = (labels >= 0).numpy()
        answers = answers_of(labels.numpy()[labelled])
        half = np.arange(int(labelled.sum())) % FOLDS == 0
        splits = [(np.flatnonzero(half), np.flatnonzero(~half))]
        accuracies.append(probe_scores(codes[labelled], answers, splits)[0])
        chances.append(answers.chance(splits[0][1], splits[0][0]))
    return EncoderProbe(
        tuple(attributes), np.array(accuracies), np.array(chances), len(indices), name
    )


def _codes(
    model: nn.Module, batch: Batch, indices: Tensor, generator: torch.Generator
) -> NDArray[Any]:
    """Return codes (images, features) of noisy images."""
    if batch.distinct is None:
        images = batch.inputs.flatten(0, 1)[indices]
    else:
        images = batch.distinct[batch.inputs.flatten()[indices]]
    images = images / 255 if images.dtype == torch.uint8 else images
    noisy = images + NOISE * torch.randn(images.shape, generator=generator)
    encoder: Any = model.encoder
    with evaluating(model), torch.no_grad():
        parameter = next(model.parameters())
        return encoder(noisy.to(parameter)).double().cpu().numpy()
