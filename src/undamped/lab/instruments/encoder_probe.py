"""What an encoder tells of a picture: a linear probe reads its attributes from the code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from undamped._base.contract import Batch
from undamped._base.registry import instruments
from undamped.analysis.core.layout import Layout
from undamped.analysis.core.linear_probe import answers_of, probe_scores
from undamped.analysis.core.probe import InapplicableError, Probe
from undamped.analysis.core.result import Result
from undamped.analysis.core.style import Style, Trace
from undamped.analysis.core.unrolled import evaluating
from undamped.lab.tasks.task import Task

PICTURES = 1000
"""How many pictures are looked at."""
NOISE = 0.1
"""Standard deviation of what is added to every pixel, so that no two pictures are alike."""
FOLDS = 2


@instruments.register("encoder_probe")
@dataclass(frozen=True)
class EncoderProbe(Result):
    """What can be read from the codes of pictures that training never saw.

    `accuracies` holds, for each of `attributes`, the share that a linear probe reads right from
    codes of noisy pictures, and `chances` what the commonest value would score.
    """

    question = "What does the encoder tell of a picture: its shape, its colour?"
    place = 16
    columns = ("attribute", "read right", "a guess")

    attributes: tuple[str, ...]
    accuracies: NDArray[np.float64]
    chances: NDArray[np.float64]
    pictures: int
    name: str

    @classmethod
    def measure(cls, probe: Probe) -> EncoderProbe:
        """Encode pictures of the task's test part."""
        if not hasattr(probe.model, "encoder") or not probe.of_pictures:
            raise InapplicableError("it has no encoder of pictures")
        if probe.task is None or not probe.task.attributes("test", 0, 2):
            raise InapplicableError("nobody says what its pictures show")
        return encoder_probe(probe.model, probe.task, seed=probe.seed, name=probe.name)

    @property
    def sentence(self) -> str:
        """What is read, in percent."""
        said = [
            f"{attribute} {100 * found:.0f} % (a guess {100 * guess:.0f} %)"
            for attribute, found, guess in zip(
                self.attributes, self.accuracies, self.chances, strict=True
            )
        ]
        return f"A linear probe of the code of a new picture reads its {', its '.join(said)}."

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """Attribute by attribute."""
        return [
            (attribute, f"{100 * found:.1f} %", f"{100 * guess:.1f} %")
            for attribute, found, guess in zip(
                self.attributes, self.accuracies, self.chances, strict=True
            )
        ]

    @property
    def layout(self) -> Layout:
        """Accuracy of every attribute."""
        return Layout(
            "What the encoder tells",
            f"attribute: {', '.join(f'{i} {a}' for i, a in enumerate(self.attributes))}",
            "read right by a linear probe",
            "High for what the answer depends on; what it should not depend on may be low.",
            y_range=(0, 1.05),
        )

    def traces(self, style: Style) -> list[Trace]:
        """A point for each attribute, and one for a guess."""
        at = range(len(self.attributes))
        found = style.points(at, self.accuracies, "linear probe", text=list(self.attributes))
        if not style.alone:
            return [found]
        return [found, style.points(at, self.chances, "a guess", part=1)]


def encoder_probe(
    model: nn.Module, task: Task, *, pictures: int = PICTURES, seed: int = 0, name: str = ""
) -> EncoderProbe:
    """Fit linear probes to the codes of half of the pictures, and score them on the others.

    Args:
        model: A network of pictures with an `encoder`.
        task: Whose pictures; it knows their attributes.
        pictures: How many pictures are looked at.
        seed: Where the noise on the pictures comes from.
        name: What to call it.
    """
    size = max(2, pictures // (task.task_shape.length or 2))
    batch, known = task.batch("test", 0, size), task.attributes("test", 0, size)
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(batch.inputs.numel(), generator=generator)[:pictures]
    codes = _codes(model, batch, chosen, generator)
    accuracies, chances = [], []
    for values in known.values():
        labels = values.flatten()[chosen]
        there = (labels >= 0).numpy()
        answers = answers_of(labels.numpy()[there])
        half = np.arange(int(there.sum())) % FOLDS == 0
        splits = [(np.flatnonzero(half), np.flatnonzero(~half))]
        accuracies.append(probe_scores(codes[there], answers, splits)[0])
        chances.append(answers.guess(splits[0][1], splits[0][0]))
    return EncoderProbe(tuple(known), np.array(accuracies), np.array(chances), len(chosen), name)


def _codes(
    model: nn.Module, batch: Batch, chosen: Tensor, generator: torch.Generator
) -> NDArray[Any]:
    """Return codes (pictures, features) of chosen pictures with noise on them."""
    if batch.distinct is None:
        shown = batch.inputs.flatten(0, 1)[chosen]
    else:
        shown = batch.distinct[batch.inputs.flatten()[chosen]]
    shown = shown / 255 if shown.dtype == torch.uint8 else shown
    noisy = shown + NOISE * torch.randn(shown.shape, generator=generator)
    encoder: Any = model.encoder
    with evaluating(model), torch.no_grad():
        parameter = next(model.parameters())
        return encoder(noisy.to(parameter)).double().cpu().numpy()
