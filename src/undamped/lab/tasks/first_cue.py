"""Long recordings whose class depends on the order of events, from the first steps on."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar

import torch

from undamped._base.contract import Batch
from undamped._base.options import NonNegativeFloat, NonNegativeInt, Range
from undamped._base.registry import tasks
from undamped.lab.tasks.task import Chance, GeneratedTask, Split


@tasks.register("first-cue")
class FirstCue(GeneratedTask):
    """Classify the direction of the first of several bursts, ten thousand steps ago.

    A recording is noise with bursts, half of them upwards and half of them downwards. The first one
    begins in the first fiftieth; the others are in the last four fifths. Number, height and
    duration of the bursts of each direction are the same in both classes, so that no statistic
    without regard to order is informative: only the order is.

    Args:
        length: Steps of a recording.
        bursts: The number of bursts; an odd number is increased by one.
        noise: Standard deviation of the noise; a burst has height one.
        seed: Seed of the data.

    Reference:
        Y. Bengio, P. Simard, P. Frasconi. Learning long-term dependencies with gradient descent is
        difficult. IEEE Transactions on Neural Networks 5, 1994: the latching problem.
    """

    recipes: ClassVar = {
        "*": {
            "model": {"hidden_size": 32},
            "train": {"steps": 300, "batch_size": 16, "learning_rate": 0.005, "clip": 1.0},
        },
        "unicornn": {"model": {"readout": "mean"}},
        "linoss": {"model": {"readout": "mean"}},
    }
    held_out: ClassVar[dict[Split, int]] = {"valid": 128, "test": 512}

    input_size = 1
    output_size = 2
    answer_names = ("down", "up")

    def __init__(
        self,
        length: Annotated[int, Range(low=100)] = 10_000,
        *,
        bursts: Annotated[int, Range(low=2)] = 4,
        noise: NonNegativeFloat = 0.1,
        seed: NonNegativeInt = 0,
    ) -> None:
        super().__init__(seed)
        self.length, self.bursts, self.noise = length, bursts + bursts % 2, noise

    @property
    def chance(self) -> Chance:
        """Both classes are equally likely."""
        return Chance(loss=math.log(2), metric=0.5, rule="either class")

    def harder(self) -> dict[str, Any]:
        """Return more irrelevant bursts."""
        return {"bursts": 2 * self.bursts}

    def draw(self, size: int, generator: torch.Generator) -> Batch:
        steps, others = self.length, self.bursts - 1
        duration = max(1, steps // 100)
        first = torch.randint(0, max(1, steps // 50), (1, size), generator=generator)
        # Each of the others has its own segment, so that bursts do not overlap.
        segment = (steps - steps // 5) // others
        offsets = torch.rand(others, size, generator=generator) * max(1, segment - duration)
        begins = steps // 5 + segment * torch.arange(others).unsqueeze(1) + offsets.long()
        targets = torch.randint(0, 2, (size,), generator=generator)
        sign = 2.0 * targets - 1
        same = torch.arange(others).unsqueeze(1) < others // 2
        order = torch.rand(others, size, generator=generator).argsort(0)
        signs = torch.where(same, sign, -sign).gather(0, order)
        inputs = self.noise * torch.randn(steps, size, generator=generator)
        span = torch.arange(duration).view(-1, 1, 1)
        index = (torch.cat([first, begins]) + span).clamp_max(steps - 1).flatten(0, 1)
        height = torch.cat([sign.unsqueeze(0), signs]).expand(duration, -1, -1).flatten(0, 1)
        inputs.scatter_add_(0, index, height)
        return Batch(inputs.unsqueeze(-1), targets)
