"""Two systems given by their Hamiltonian: one that is not separable, and one that is chaotic."""

from __future__ import annotations

from typing import Any, ClassVar, Unpack

import torch
from torch import Tensor

from undamped._base.checked import checked
from undamped._base.contract import StateSpace
from undamped._base.options import PositiveFloat
from undamped._base.registry import tasks
from undamped.lab.tasks.physics.motion_task import MotionOptions, MotionTask
from undamped.lab.tasks.physics.system import Drawing, QuadraticKineticField, System, uniform
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
        """Return the size of the square."""
        return {"width": self.width}

    def starts(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw points of the square."""
        return uniform(generator, -self.width, self.width, count, 2)


@tasks.register("nonseparable")
class Nonseparable(MotionTask):
    """A motion with the nonseparable energy ½(q² + 1)(p² + 1).

    Leapfrog is not symplectic here; Tao's method and the implicit midpoint rule are. 100
    trajectories of 31 readings on [0, 3].

    Args:
        width: Starts are in the square [−width, width]².

    Example:
        >>> build("nonseparable", width=4.0, readings=2, span=0.01, form="trajectory", window=1)

    Reference:
        S. Xiong and others. Nonseparable symplectic neural networks. ICLR, 2021. M. Tao. Explicit
        symplectic approximation of nonseparable Hamiltonians. 2016.
    """

    @checked
    def __init__(self, *, width: PositiveFloat = 2.0, **options: Unpack[MotionOptions]) -> None:
        super().__init__(NonseparableSystem(width), options)


class HenonHeilesField(QuadraticKineticField):
    """H = (|q|² + |p|²)/2 + x²y − y³/3."""

    def __init__(self) -> None:
        super().__init__(2)

    def potential(self, q: Tensor) -> Tensor:
        """Return V."""
        x, y = q.unbind(-1)
        return q.square().sum(-1) / 2 + x**2 * y - y**3 / 3

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

    def drawing(self, states: Tensor) -> Drawing:
        """Draw the point in its plane."""
        return Drawing(states[..., None, :2])

    def starts(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw x, px and py from (−1, 1) and y from (−½, 1), and reject other energies."""
        accepted = torch.empty(0, 4, dtype=torch.float64)
        while len(accepted) < count:
            states = uniform(generator, -1, 1, 4 * count, 4)
            states[:, 1] = 0.25 + 0.75 * states[:, 1]
            energy = self.energy(states)
            accepted = torch.cat((accepted, states[(energy >= 1 / 12) & (energy <= 1 / 6)]))
        return accepted[:count]


@tasks.register("henon-heiles")
class HenonHeiles(MotionTask):
    """A star in a galaxy, after Hénon and Heiles.

    H = (|q|² + |p|²)/2 + x²y − y³/3 with energies from 1/12 to 1/6: bounded orbits, some of them
    chaotic. 100 trajectories of 51 readings on [0, 5].

    Example:
        >>> build("henon-heiles", form="trajectory", window=1)

    Reference:
        M. Hénon, C. Heiles. The applicability of the third integral of motion. 1964. Starts as in
        D. DiPietro, S. Xiong, B. Zhu. Sparse symplectically integrated neural networks. NeurIPS,
        2020.
    """

    @checked
    def __init__(self, **options: Unpack[MotionOptions]) -> None:
        super().__init__(HenonHeilesSystem(), options)
