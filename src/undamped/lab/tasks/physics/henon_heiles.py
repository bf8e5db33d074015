"""Hénon and Heiles' star in a galaxy."""

from __future__ import annotations

from typing import ClassVar, Unpack

import torch
from torch import Tensor

from undamped._base.checked import checked
from undamped._base.contract import StateSpace
from undamped._base.options import NonNegativeInt
from undamped._base.registry import tasks
from undamped.lab.tasks.physics.drawing import Drawing
from undamped.lab.tasks.physics.motion_task import MotionOptions, MotionTask
from undamped.lab.tasks.physics.system import System, uniform
from undamped.models.physics.fields.hamiltonian import SeparableField


class HenonHeilesField(SeparableField):
    """H = (|q|² + |p|²)/2 + x²y − y³/3."""

    def __init__(self) -> None:
        super().__init__(2)

    def kinetic(self, p: Tensor) -> Tensor:
        """Return T."""
        return p.square().sum(-1) / 2

    def potential(self, q: Tensor) -> Tensor:
        """Return V."""
        x, y = q.unbind(-1)
        return q.square().sum(-1) / 2 + x**2 * y - y**3 / 3

    def kinetic_gradient(self, p: Tensor) -> Tensor:
        """Return ∂T/∂p."""
        return p

    def potential_gradient(self, q: Tensor) -> Tensor:
        """Return ∂V/∂q."""
        x, y = q.unbind(-1)
        return torch.stack((x + 2 * x * y, y + x**2 - y**2), dim=-1)


class HenonHeilesSystem(System[HenonHeilesField]):
    """Bounded orbits, from regular to chaotic: energies from 1/12 to 1/6."""

    space = StateSpace(("x", "y", "px", "py"), ("position", "position", "momentum", "momentum"))
    trajectories: ClassVar[int] = 100
    readings: ClassVar[int] = 51
    span: ClassVar[float] = 5.0

    def __init__(self) -> None:
        self.field = HenonHeilesField()

    def picture(self, states: Tensor) -> Drawing:
        """Draw the point in its plane."""
        return Drawing(states[..., None, :2])

    def starts(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw x, px and py from (−1, 1) and y from (−½, 1); keep what has such an energy."""
        kept = torch.empty(0, 4, dtype=torch.float64)
        while len(kept) < count:
            drawn = uniform(generator, -1, 1, 4 * count, 4)
            drawn[:, 1] = 0.25 + 0.75 * drawn[:, 1]
            energy = self.energy(drawn)
            kept = torch.cat((kept, drawn[(energy >= 1 / 12) & (energy <= 1 / 6)]))
        return kept[:count]


@tasks.register("henon-heiles")
class HenonHeiles(MotionTask):
    """A star in a galaxy, after Hénon and Heiles.

    H = (|q|² + |p|²)/2 + x²y − y³/3 with energies from 1/12 to 1/6: bounded orbits, some of them
    chaotic. 100 trajectories of 51 readings on [0, 5].

    Args:
        seed: Where the order of training comes from.

    Example:
        >>> build("henon-heiles", form="trajectory", window=1)

    Reference:
        M. Hénon, C. Heiles. The applicability of the third integral of motion. 1964. Starts as in
        D. DiPietro, S. Xiong, B. Zhu. Sparse symplectically integrated neural networks. NeurIPS,
        2020.
    """

    @checked
    def __init__(self, *, seed: NonNegativeInt = 0, **options: Unpack[MotionOptions]) -> None:
        super().__init__(HenonHeilesSystem(), seed, options)
