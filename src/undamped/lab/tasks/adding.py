"""The adding task (Hochreiter and Schmidhuber, 1997)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import torch

from undamped._base.options import NonNegativeInt, Range
from undamped._base.registry import tasks
from undamped.lab.tasks.task import Batch, Chance, GeneratedTask

LONGER = {"steps": 10_000, "batch_size": 50, "schedule": "cosine"}


@tasks.register("adding")
class Adding(GeneratedTask):
    """Add the two marked numbers of a long sequence.

    Each step has a number from [0, 1) and a mark. One mark is in the first half, one in the second;
    the target after the last step is the sum of the two marked numbers. The constant prediction 1
    has a mean squared error of 1/6.

    Args:
        length: Steps of a sequence.
        seed: Seed of the data.

    Reference:
        S. Hochreiter, J. Schmidhuber. Long short-term memory. Neural Computation 9, 1997.
    """

    # Learning rates and constants of lem and cornn are those of their authors' programs; the
    # schedule is not.
    recipes: ClassVar = {
        "*": {"train": {"steps": 2000, "batch_size": 64, "clip": 1.0}},
        "lem": {"model": {"dt": 0.0242}, "train": {**LONGER, "learning_rate": 0.0026}},
        "cornn": {
            "model": {"dt": 0.06, "gamma": 66.0, "epsilon": 15.0},
            "train": {**LONGER, "learning_rate": 0.02},
        },
    }

    input_size = 2
    output_size = 1
    answer = "number"
    metric = "mse"
    higher_is_better = False

    def __init__(
        self, length: Annotated[int, Range(low=2)] = 200, *, seed: NonNegativeInt = 0
    ) -> None:
        super().__init__(seed)
        self.length = length

    @property
    def chance(self) -> Chance:
        """The variance of a sum of two uniform numbers."""
        return Chance(loss=1 / 6, metric=1 / 6, rule="always one")

    def harder(self) -> dict[str, Any]:
        """Return longer sequences."""
        return {"length": max(1000, 2 * self.length)}

    def draw(self, size: int, generator: torch.Generator) -> Batch:
        half = self.length // 2
        numbers = torch.rand(self.length, size, generator=generator)
        first = torch.randint(0, half, (1, size), generator=generator)
        second = torch.randint(half, self.length, (1, size), generator=generator)
        marks = torch.zeros(self.length, size)
        marks.scatter_(0, torch.cat([first, second]), 1.0)
        target = (numbers * marks).sum(0).unsqueeze(-1)
        return Batch(torch.stack([numbers, marks], dim=-1), target)
