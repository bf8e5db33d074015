"""Masses in a row, held together by springs between two walls."""

from __future__ import annotations

from typing import Any, ClassVar, Unpack

import torch
from torch import Tensor

from undamped._base.checked import checked
from undamped._base.contract import StateSpace
from undamped._base.options import NonNegativeInt, PositiveInt
from undamped._base.registry import tasks
from undamped.lab.tasks.physics.drawing import Drawing
from undamped.lab.tasks.physics.motion_task import MotionOptions, MotionTask
from undamped.lab.tasks.physics.system import System, uniform
from undamped.models.physics.fields.hamiltonian import SeparableField

_DRAWN_FROM = 20
"""Seed of masses and springs, so that everybody's chain is the same."""


class ChainField(SeparableField):
    """Springs between neighbours, and to the walls.

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

    def _stretched(self, q: Tensor) -> Tensor:
        return torch.nn.functional.pad(q, (1, 1)).diff(dim=-1)

    def kinetic(self, p: Tensor) -> Tensor:
        """Return T."""
        return (p.square() / (2 * self.masses)).sum(-1)

    def potential(self, q: Tensor) -> Tensor:
        """Return V."""
        return (self.springs * self._stretched(q).square()).sum(-1) / 2

    def kinetic_gradient(self, p: Tensor) -> Tensor:
        """Return ∂T/∂p."""
        return p / self.masses

    def potential_gradient(self, q: Tensor) -> Tensor:
        """Return ∂V/∂q."""
        return -(self.springs * self._stretched(q)).diff(dim=-1)


class ChainSystem(System[ChainField]):
    """A chain with masses and springs drawn once.

    Args:
        masses: How many.
    """

    trajectories: ClassVar[int] = 200
    readings: ClassVar[int] = 51
    span: ClassVar[float] = 5.0

    def __init__(self, masses: int = 20) -> None:
        draw = torch.Generator().manual_seed(_DRAWN_FROM)
        drawn = torch.randn(2 * masses + 1, generator=draw, dtype=torch.float64)
        factors = (1 + drawn / 4).clamp_min(0.2)
        self.field = ChainField(factors[:masses], 5 * factors[masses:])
        self.space = StateSpace.canonical(masses)

    def constants(self) -> dict[str, Any]:
        """Return masses and springs."""
        return {"masses": self.field.masses.tolist(), "springs": self.field.springs.tolist()}

    def picture(self, states: Tensor) -> Drawing:
        """Draw every mass at its number, as high as it is away from rest."""
        away = states[..., : states.shape[-1] // 2]
        number = torch.arange(1, away.shape[-1] + 1).to(away).expand_as(away)
        rods = tuple((k, k + 1) for k in range(away.shape[-1]))
        points = torch.stack((number, away), dim=-1)
        return Drawing(points, rods, "number of the mass", "displacement", equal=False)

    def starts(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw displacements and momenta evenly."""
        return uniform(generator, -2.5, 2.5, count, self.space.size)


@tasks.register("chain")
class Chain(MotionTask):
    """Masses in a row, held together by springs.

    20 masses, 21 springs, the outer ones to walls; masses of about 1 and springs of about 5, drawn
    once and written into the run. 200 trajectories of 51 readings on [0, 5].

    Args:
        masses: How many.
        seed: Where the order of training comes from.

    Example:
        >>> build("chain", masses=5)

    Reference:
        Set up as in Z. Chen and others. Symplectic recurrent neural networks. ICLR, 2020.
    """

    @checked
    def __init__(
        self,
        *,
        masses: PositiveInt = 20,
        seed: NonNegativeInt = 0,
        **options: Unpack[MotionOptions],
    ) -> None:
        super().__init__(ChainSystem(masses), seed, options)
