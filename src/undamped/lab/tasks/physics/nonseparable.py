"""H = ½(q² + 1)(p² + 1), an energy that does not split."""

from __future__ import annotations

from typing import Any, ClassVar, Unpack

import torch
from torch import Tensor

from undamped._base.checked import checked
from undamped._base.contract import StateSpace
from undamped._base.options import NonNegativeInt, PositiveFloat
from undamped._base.registry import tasks
from undamped.lab.tasks.physics.motion_task import MotionOptions, MotionTask
from undamped.lab.tasks.physics.system import System, uniform
from undamped.models.physics.fields.hamiltonian import HamiltonianField


class NonseparableField(HamiltonianField):
    """q̇ = p(q² + 1), ṗ = −q(p² + 1)."""

    def __init__(self) -> None:
        super().__init__(1)

    def hamiltonian(self, t: Any, q: Tensor, p: Tensor) -> Tensor:
        """Return H."""
        return ((q.square() + 1) * (p.square() + 1)).sum(-1) / 2

    def gradient(self, t: Any, q: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
        """Return ∂H/∂q and ∂H/∂p."""
        return q * (p.square() + 1), p * (q.square() + 1)


class NonseparableSystem(System[NonseparableField]):
    """Starts from a square.

    Args:
        width: Half of its side.
    """

    space = StateSpace(("q", "p"), ("position", "momentum"))
    trajectories: ClassVar[int] = 100
    readings: ClassVar[int] = 31

    def __init__(self, width: float = 2.0) -> None:
        self.field = NonseparableField()
        self.width = width

    def constants(self) -> dict[str, Any]:
        """Return the square."""
        return {"width": self.width}

    def starts(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw points of the square."""
        return uniform(generator, -self.width, self.width, count, 2)


@tasks.register("nonseparable")
class Nonseparable(MotionTask):
    """A motion whose energy ½(q² + 1)(p² + 1) does not split.

    Leapfrog is not symplectic here; Tao's method and the implicit midpoint rule are. 100
    trajectories of 31 readings on [0, 3].

    Args:
        width: Starts lie in the square [−width, width]².
        seed: Where the order of training comes from.

    Example:
        >>> build("nonseparable", width=4.0, readings=2, span=0.01, form="trajectory", window=1)

    Reference:
        S. Xiong and others. Nonseparable symplectic neural networks. ICLR, 2021. M. Tao. Explicit
        symplectic approximation of nonseparable Hamiltonians. 2016.
    """

    @checked
    def __init__(
        self,
        *,
        width: PositiveFloat = 2.0,
        seed: NonNegativeInt = 0,
        **options: Unpack[MotionOptions],
    ) -> None:
        super().__init__(NonseparableSystem(width), seed, options)
