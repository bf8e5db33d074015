"""A mass on a spring."""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor

from undamped._base.checked import checked
from undamped._base.contract import StateSpace
from undamped._base.options import NonNegativeInt
from undamped._base.registry import tasks
from undamped.lab.tasks.physics.drawing import Drawing
from undamped.lab.tasks.physics.motion_task import MotionOptions, MotionTask
from undamped.lab.tasks.physics.system import System, on_rings
from undamped.models.physics.fields.hamiltonian import SeparableField


class SpringField(SeparableField):
    """H = q² + p²."""

    def __init__(self) -> None:
        super().__init__(1)

    def kinetic(self, p: Tensor) -> Tensor:
        """Return T."""
        return p.square().sum(-1)

    def potential(self, q: Tensor) -> Tensor:
        """Return V."""
        return q.square().sum(-1)

    def kinetic_gradient(self, p: Tensor) -> Tensor:
        """Return ∂T/∂p."""
        return 2 * p

    def potential_gradient(self, q: Tensor) -> Tensor:
        """Return ∂V/∂q."""
        return 2 * q


class SpringSystem(System[SpringField]):
    """H = q² + p², radii from 0.1 to 1, 30 readings on [0, 3]."""

    space = StateSpace(("q", "p"), ("position", "momentum"))

    def __init__(self) -> None:
        self.field = SpringField()

    def picture(self, states: Tensor) -> Drawing:
        """Draw a mass on a line."""
        place = states[..., :1]
        return Drawing(torch.stack((place, torch.zeros_like(place)), dim=-1), ((0, 1),))

    def starts(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw points of a ring."""
        return on_rings(count, 0.1, 1.0, generator)


@tasks.register("spring")
class Spring(MotionTask):
    """A mass on a spring.

    H = q² + p²; 25 trajectories of 30 readings on [0, 3], from radii between 0.1 and 1.

    Args:
        seed: Where the order of training comes from.

    Example:
        >>> build("spring", form="trajectory", noise=0.1)

    Reference:
        Set up as in S. Greydanus, M. Dzamba, J. Yosinski. Hamiltonian neural networks. NeurIPS,
        2019.
    """

    @checked
    def __init__(self, *, seed: NonNegativeInt = 0, **options: Unpack[MotionOptions]) -> None:
        super().__init__(SpringSystem(), seed, options)
