"""Systems given by their Hamiltonian: springs, a nonseparable one, and Hénon and Heiles' star."""

from __future__ import annotations

from typing import Any, Unpack

import torch
from torch import Tensor

from undamped._base.checked import checked
from undamped._base.contract import StateSpace
from undamped._base.options import PositiveFloat, PositiveInt
from undamped._base.registry import tasks
from undamped.lab.tasks.physics.motion_task import MotionOptions, MotionTask
from undamped.lab.tasks.physics.system import (
    DataSize,
    Drawing,
    QuadraticKineticField,
    System,
    on_rings,
    uniform,
)
from undamped.models.physics.fields.hamiltonian import HamiltonianField, SeparableField

_CHAIN_SEED = 20
"""Seed of masses and springs, so that all chains of one length are the same."""


class SpringField(QuadraticKineticField):
    """H = q² + p²."""

    def __init__(self) -> None:
        super().__init__(1, a=1.0)

    def potential(self, q: Tensor) -> Tensor:
        return q.square().sum(-1)

    def potential_gradient(self, q: Tensor) -> Tensor:
        return 2 * q


class SpringSystem(System[SpringField]):
    """H = q² + p², radii from 0.1 to 1, 30 readings on [0, 3]."""

    space = StateSpace(("q", "p"), ("position", "momentum"))

    def __init__(self) -> None:
        self.field = SpringField()

    def drawing(self, states: Tensor) -> Drawing:
        position = states[..., :1]
        return Drawing(torch.stack((position, torch.zeros_like(position)), dim=-1), ((0, 1),))

    def starts(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw points of a ring."""
        return on_rings(count, 0.1, 1.0, generator)


@tasks.register("spring")
class Spring(MotionTask):
    """A mass on a spring.

    H = q² + p²; 25 trajectories of 30 readings on [0, 3], from radii between 0.1 and 1.

    Example:
        >>> build("spring", form="trajectory", noise=0.1)

    Reference:
        Set up as in S. Greydanus, M. Dzamba, J. Yosinski. Hamiltonian neural networks. NeurIPS,
        2019.
    """

    @checked
    def __init__(self, **options: Unpack[MotionOptions]) -> None:
        super().__init__(SpringSystem(), options)


class ChainField(SeparableField):
    """Springs between adjacent masses, and to the walls.

    Equation:
        H = Σᵢ pᵢ²/(2 mᵢ) + Σᵢ kᵢ (qᵢ − qᵢ₋₁)²/2,  q₀ = q_{n+1} = 0

    Args:
        masses: m, (n,).
        springs: k, (n + 1,).
    """

    masses: Tensor
    springs: Tensor

    def __init__(self, masses: Tensor, springs: Tensor) -> None:
        super().__init__(len(masses))
        self.register_buffer("masses", masses)
        self.register_buffer("springs", springs)

    def _extensions(self, q: Tensor) -> Tensor:
        return torch.nn.functional.pad(q, (1, 1)).diff(dim=-1)

    def kinetic(self, p: Tensor) -> Tensor:
        return (p.square() / (2 * self.masses)).sum(-1)

    def potential(self, q: Tensor) -> Tensor:
        return (self.springs * self._extensions(q).square()).sum(-1) / 2

    def kinetic_gradient(self, p: Tensor) -> Tensor:
        return p / self.masses

    def potential_gradient(self, q: Tensor) -> Tensor:
        return -(self.springs * self._extensions(q)).diff(dim=-1)


class ChainSystem(System[ChainField]):
    """A chain with random masses and springs that are always the same.

    Args:
        masses: The number of masses.
    """

    data_size = DataSize(200, 51, 5.0)
    constant_names = ("masses", "springs")

    def __init__(self, masses: int = 20) -> None:
        generator = torch.Generator().manual_seed(_CHAIN_SEED)
        noise = torch.randn(2 * masses + 1, generator=generator, dtype=torch.float64)
        factors = (1 + noise / 4).clamp_min(0.2)
        self.field = ChainField(factors[:masses], 5 * factors[masses:])
        self.space = StateSpace.canonical(masses)

    def drawing(self, states: Tensor) -> Drawing:
        """Draw the displacement of every mass over its index."""
        displacement = states[..., : states.shape[-1] // 2]
        index = torch.arange(1, displacement.shape[-1] + 1).to(displacement)
        rods = tuple((k, k + 1) for k in range(displacement.shape[-1]))
        points = torch.stack((index.expand_as(displacement), displacement), dim=-1)
        return Drawing(points, rods, "number of the mass", "displacement", equal=False)

    def starts(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw displacements and momenta uniformly."""
        return uniform(generator, -2.5, 2.5, count, self.space.size)


@tasks.register("chain")
class Chain(MotionTask):
    """Masses in a row that springs connect.

    20 masses and 21 springs, the outer ones attached to walls; masses are about 1 and springs about
    5, drawn once and stored in the run. 200 trajectories of 51 readings on [0, 5].

    Args:
        masses: The number of masses.

    Example:
        >>> build("chain", masses=5)

    Reference:
        Set up as in Z. Chen and others. Symplectic recurrent neural networks. ICLR, 2020.
    """

    @checked
    def __init__(self, *, masses: PositiveInt = 20, **options: Unpack[MotionOptions]) -> None:
        super().__init__(ChainSystem(masses), options)


class NonseparableField(HamiltonianField):
    """q̇ = p(q² + 1), ṗ = −q(p² + 1)."""

    def __init__(self) -> None:
        super().__init__(1)

    def hamiltonian(self, t: Any, q: Tensor, p: Tensor) -> Tensor:
        return ((q.square() + 1) * (p.square() + 1)).sum(-1) / 2

    def gradient(self, t: Any, q: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
        return q * (p.square() + 1), p * (q.square() + 1)


class NonseparableSystem(System[NonseparableField]):
    """Starts from a square.

    Args:
        width: Half of its side.
    """

    space = StateSpace(("q", "p"), ("position", "momentum"))
    data_size = DataSize(100, 31)

    def __init__(self, width: float = 2.0) -> None:
        self.field = NonseparableField()
        self.width = width

    def constants(self) -> dict[str, Any]:
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
        x, y = q.unbind(-1)
        return q.square().sum(-1) / 2 + x**2 * y - y**3 / 3

    def potential_gradient(self, q: Tensor) -> Tensor:
        x, y = q.unbind(-1)
        return torch.stack((x + 2 * x * y, y + x**2 - y**2), dim=-1)


class HenonHeilesSystem(System[HenonHeilesField]):
    """Bounded orbits, from regular to chaotic: energies from 1/12 to 1/6."""

    space = StateSpace(("x", "y", "px", "py"), ("position", "position", "momentum", "momentum"))
    data_size = DataSize(100, 51, 5.0)

    def __init__(self) -> None:
        self.field = HenonHeilesField()

    def drawing(self, states: Tensor) -> Drawing:
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
