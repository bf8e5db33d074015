"""A pendulum."""

from __future__ import annotations

from typing import Any, ClassVar, Unpack

import torch
from torch import Tensor

from undamped.checked import checked
from undamped.contract import StateSpace
from undamped.fields.physics.hamiltonian import SeparableField
from undamped.options import NonNegativeInt, PositiveFloat
from undamped.registry import tasks
from undamped.tasks.physics.motion_task import MotionOptions, MotionTask
from undamped.tasks.physics.system import System, on_rings


class PendulumField(SeparableField):
    """H = a p² + b (1 − cos q).

    Args:
        kinetic: a.
        gravity: b.
    """

    def __init__(self, kinetic: float = 1.0, gravity: float = 3.0) -> None:
        super().__init__(1)
        self.a, self.b = kinetic, gravity

    def kinetic(self, p: Tensor) -> Tensor:
        """Return T."""
        return self.a * p.square().sum(-1)

    def potential(self, q: Tensor) -> Tensor:
        """Return V."""
        return self.b * (1 - torch.cos(q)).sum(-1)

    def kinetic_gradient(self, p: Tensor) -> Tensor:
        """Return ∂T/∂p."""
        return 2 * self.a * p

    def potential_gradient(self, q: Tensor) -> Tensor:
        """Return ∂V/∂q."""
        return self.b * torch.sin(q)


class PendulumSystem(System[PendulumField]):
    """H = a p² + b (1 − cos q), radii from 1.3 to 2.3, 45 readings on [0, 3].

    Args:
        kinetic: a.
        gravity: b.
    """

    space = StateSpace(("q", "p"), ("angle", "momentum"))
    readings: ClassVar[int] = 45

    def __init__(self, kinetic: float = 1.0, gravity: float = 3.0) -> None:
        self.field = PendulumField(kinetic, gravity)

    def constants(self) -> dict[str, Any]:
        """Return a and b."""
        return {"kinetic": self.field.a, "gravity": self.field.b}

    def starts(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw points of a ring in the plane of angle and momentum."""
        return on_rings(count, 1.3, 2.3, generator)


@tasks.register("pendulum")
class Pendulum(MotionTask):
    """A pendulum.

    H = a p² + b (1 − cos q); 25 trajectories of 45 readings on [0, 3], from radii between 1.3 and
    2.3. Papers differ in their constants: HNN has a = 1, b = 3; SymODEN 1.5, 5; SSINN 0.25, 2;
    SympNet and Taylor-net 0.5, 1.

    Args:
        kinetic: a.
        gravity: b.
        seed: Where the order of training comes from.

    Example:
        >>> build("pendulum", form="trajectory", window=10)

    Reference:
        Set up as in S. Greydanus, M. Dzamba, J. Yosinski. Hamiltonian neural networks. NeurIPS,
        2019.
    """

    @checked
    def __init__(
        self,
        *,
        kinetic: PositiveFloat = 1.0,
        gravity: PositiveFloat = 3.0,
        seed: NonNegativeInt = 0,
        **options: Unpack[MotionOptions],
    ) -> None:
        super().__init__(PendulumSystem(kinetic, gravity), seed, options)
