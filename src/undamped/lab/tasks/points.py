"""Points to be told apart: annuli, which a flow in their own space cannot separate, and spirals."""

from __future__ import annotations

import math
from typing import ClassVar

import torch

from undamped._base.options import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from undamped._base.registry import tasks
from undamped.lab.tasks.continuous_data import annuli, spirals
from undamped.lab.tasks.task import Batch, Chance, GeneratedTask


class PointTask(GeneratedTask):
    """Two classes of points, as many of each."""

    recipes: ClassVar = {
        "*": {"model": {"hidden_size": 32}, "train": {"steps": 500, "batch_size": 128}}
    }

    sequential: ClassVar[bool] = False
    output_size = 2

    @property
    def chance(self) -> Chance:
        """Either class is as likely."""
        return Chance(loss=math.log(2), metric=0.5, rule="either")


@tasks.register("annuli")
class Annuli(PointTask):
    """Tell a ball from the shell around it.

    A neural ODE moves points without tearing space, so in the points' own dimension the ball
    cannot leave its shell and no plane can part them at the end. With one more dimension, or with
    a velocity, it can.

    Args:
        dimension: Dimension of the points.
        seed: Where the random numbers of the data come from.

    Reference:
        E. Dupont, A. Doucet, Y. W. Teh. Augmented neural ODEs. NeurIPS, 2019.
    """

    def __init__(self, dimension: PositiveInt = 2, *, seed: NonNegativeInt = 0) -> None:
        super().__init__(seed)
        self.input_size = dimension

    def draw(self, size: int, generator: torch.Generator) -> Batch:
        """Make `size` points."""
        return Batch(*annuli(size, self.input_size, generator))


@tasks.register("spirals")
class Spirals(PointTask):
    """Tell two spirals apart that are wound around each other.

    Args:
        turns: How often they wind.
        noise: Standard deviation of the scatter.
        seed: Where the random numbers of the data come from.

    Reference:
        K. J. Lang, M. J. Witbrock. Learning to tell two spirals apart. Connectionist Models
        Summer School, 1988.
    """

    input_size = 2

    def __init__(
        self,
        turns: PositiveFloat = 1.25,
        *,
        noise: NonNegativeFloat = 0.02,
        seed: NonNegativeInt = 0,
    ) -> None:
        super().__init__(seed)
        self.turns = turns
        self.noise = noise

    def draw(self, size: int, generator: torch.Generator) -> Batch:
        """Make `size` points."""
        return Batch(*spirals(size, generator, turns=self.turns, noise=self.noise))
