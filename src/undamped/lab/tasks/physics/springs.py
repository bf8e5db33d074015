"""A mass on a spring, and a chain of masses and springs between two walls."""

from __future__ import annotations

from typing import ClassVar, Unpack

import torch
from torch import Tensor

from undamped._base.checked import checked
from undamped._base.contract import StateSpace
from undamped._base.options import PositiveInt
from undamped._base.registry import tasks
from undamped.lab.tasks.physics.motion_task import MotionOptions, MotionTask
from undamped.lab.tasks.physics.system import (
    Drawing,
    QuadraticKineticField,
    System,
    on_rings,
    uniform,
)
from undamped.models.physics.fields.hamiltonian import SeparableField

_CHAIN_SEED = 20
"""Seed of masses and springs, so that all chains of one length are the same."""


class SpringField(QuadraticKineticField):
    """H = q² + p²."""

    def __init__(self) -> None:
        super().__init__(1, a=1.0)

    def potential(self, q: Tensor) -> Tensor:
        """Return V."""
        return q.square().sum(-1)

    def potential_gradient(self, q: Tensor) -> Tensor:
        """Return ∂V/∂q."""
        return 2 * q


class SpringSystem(System[SpringField]):
    """H = q² + p², radii from 0.1 to 1, 30 readings on [0, 3]."""

    space = StateSpace(("q", "p"), ("position", "momentum"))

    def __init__(self) -> None:
        self.field = SpringField()

    def drawing(self, states: Tensor) -> Drawing:
        """Draw a mass on a line."""
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
        """Return T."""
        return (p.square() / (2 * self.masses)).sum(-1)

    def potential(self, q: Tensor) -> Tensor:
        """Return V."""
        return (self.springs * self._extensions(q).square()).sum(-1) / 2

    def kinetic_gradient(self, p: Tensor) -> Tensor:
        """Return ∂T/∂p."""
        return p / self.masses

    def potential_gradient(self, q: Tensor) -> Tensor:
        """Return ∂V/∂q."""
        return -(self.springs * self._extensions(q)).diff(dim=-1)


class ChainSystem(System[ChainField]):
    """A chain with random masses and springs that are always the same.

    Args:
        masses: The number of masses.
    """

    trajectories: ClassVar[int] = 200
    readings: ClassVar[int] = 51
    span: ClassVar[float] = 5.0
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
