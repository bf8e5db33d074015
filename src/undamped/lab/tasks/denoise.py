"""The denoise task: symbols scattered in a long stretch of blanks have to be collected."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from undamped._base.options import NonNegativeInt, PositiveInt
from undamped._base.registry import tasks
from undamped.lab.tasks.copying import RECALLED, SYMBOLS, recall_chance, recall_score
from undamped.lab.tasks.task import Batch, Chance, GeneratedTask

MARKER = 10


@tasks.register("denoise")
class Denoise(GeneratedTask):
    """Collect ten symbols from among blanks and say them in order.

    Ten symbols stand at ten different places, drawn without replacement, among the first
    `delay` + 9 steps; then comes a marker, then ten steps in which they have to be said. The
    loss is the cross entropy over all `delay` + 20 steps, the metric counts only the last ten.
    Inputs are one-hot of size eleven with the marker at ten, as in the published program, which
    leaves place nine empty.

    Args:
        delay: Length of the noisy stretch, less nine.
        seed: Where the random numbers of the data come from.

    Reference:
        L. Jing et al. Gated orthogonal recurrent units. Neural Computation 31, 2019; in the form
        of G. Kerg et al. Untangling tradeoffs between recurrence and self-attention in neural
        networks. NeurIPS, 2020.
    """

    recipes: ClassVar = {"*": {"train": {"steps": 2000, "batch_size": 64, "clip": 1.0}}}

    readout = "every"
    input_kind = "symbols"
    input_size = MARKER + 1
    output_size = SYMBOLS + 1

    def __init__(self, delay: PositiveInt = 100, *, seed: NonNegativeInt = 0) -> None:
        super().__init__(seed)
        self.delay = delay

    @property
    def length(self) -> int:
        """Steps of a sequence."""
        return self.delay + 2 * RECALLED

    @property
    def chance(self) -> Chance:
        """10 ln 8 / (delay + 20)."""
        return recall_chance(self.length)

    def harder(self) -> dict[str, Any]:
        """A longer wait."""
        return {"delay": max(500, 2 * self.delay)}

    def draw(self, size: int, generator: torch.Generator) -> Batch:
        """Make `size` sequences."""
        noisy = self.delay + RECALLED - 1
        symbols = torch.randint(1, SYMBOLS + 1, (RECALLED, size), generator=generator)
        order = torch.rand(noisy, size, generator=generator).argsort(0)
        places = order[:RECALLED].sort(0).values
        inputs = torch.zeros(self.length, size, dtype=torch.long)
        inputs[:noisy].scatter_(0, places, symbols)
        inputs[noisy] = MARKER
        targets = torch.zeros_like(inputs)
        targets[-RECALLED:] = symbols
        return Batch(inputs, targets)

    def score(self, prediction: Tensor, batch: Batch) -> tuple[Tensor, int]:
        """Accuracy on the ten symbols."""
        return recall_score(prediction, batch)
