"""Long recordings that are decided at their beginning, and by nothing that can be counted."""

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
    """Say which way the first of several bursts went, ten thousand steps ago.

    A recording is noise with bursts in it, half of them upwards and half of them downwards. The
    first one begins in the first fiftieth; the others lie anywhere in the last four fifths. How
    many there are of each kind, how high and how long they are is the same in both classes, so
    whatever is counted, averaged or measured without regard to order says nothing: only which came
    first does.

    Args:
        length: Steps of a recording.
        bursts: How many there are, an even number.
        noise: Standard deviation of the noise; a burst is one high.
        seed: Where the random numbers of the data come from.

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
    answer = "class"
    answer_names = ("down", "up")
    metric = "accuracy"
    higher_is_better = True

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
        """Half of the recordings are of each class."""
        return Chance(loss=math.log(2), metric=0.5, rule="either class")

    def harder(self) -> dict[str, Any]:
        """More bursts that do not matter."""
        return {"bursts": 2 * self.bursts}

    def draw(self, size: int, generator: torch.Generator) -> Batch:
        """Make `size` recordings."""
        steps, others = self.length, self.bursts - 1
        lasts = max(1, steps // 100)
        first = torch.randint(0, max(1, steps // 50), (1, size), generator=generator)
        # Each of the others has a stretch of its own, so that none covers another.
        room = (steps - steps // 5) // others
        places = torch.rand(others, size, generator=generator) * max(1, room - lasts)
        begins = steps // 5 + room * torch.arange(others).unsqueeze(1) + places.long()
        targets = torch.randint(0, 2, (size,), generator=generator)
        way = 2.0 * targets - 1
        same = torch.arange(others).unsqueeze(1) < others // 2
        order = torch.rand(others, size, generator=generator).argsort(0)
        ways = torch.where(same, way, -way).gather(0, order)
        inputs = self.noise * torch.randn(steps, size, generator=generator)
        span = torch.arange(lasts).view(-1, 1, 1)
        at = (torch.cat([first, begins]) + span).clamp_max(steps - 1).flatten(0, 1)
        height = torch.cat([way.unsqueeze(0), ways]).expand(lasts, -1, -1).flatten(0, 1)
        inputs.scatter_add_(0, at, height)
        return Batch(inputs.unsqueeze(-1), targets)
