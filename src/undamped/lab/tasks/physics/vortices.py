"""Point vortices in a plane, which carry each other around."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Unpack

import torch
from torch import Tensor

from undamped._base.checked import checked
from undamped._base.contract import StateSpace
from undamped._base.errors import OptionError, explain
from undamped._base.options import NonNegativeInt
from undamped._base.registry import tasks
from undamped.lab.tasks.physics.drawing import Drawing
from undamped.lab.tasks.physics.motion_task import MotionOptions, MotionTask
from undamped.lab.tasks.physics.system import System, uniform
from undamped.models.physics.fields.hamiltonian import HamiltonianField

_APART = 0.3
"""Closest that vortices start."""


class VortexField(HamiltonianField):
    """Point vortices in canonical coordinates.

    Equation:
        H = −(1/4π) Σ_{i<j} Γᵢ Γⱼ ln r²ᵢⱼ,  q = √|Γ| x,  p = sign(Γ) √|Γ| y

    Args:
        strengths: Γ.
    """

    strengths: Tensor

    def __init__(self, strengths: Sequence[float]) -> None:
        super().__init__(len(strengths))
        self.register_buffer("strengths", torch.tensor(strengths, dtype=torch.float64))

    def places(self, q: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
        """Return x and y of the vortices."""
        root = self.strengths.abs().sqrt().to(q.dtype)
        return q / root, p / (root * self.strengths.sign().to(q.dtype))

    def _pairs(self, q: Tensor, p: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        x, y = self.places(q, p)
        across, up = (c.unsqueeze(-1) - c.unsqueeze(-2) for c in (x, y))
        itself = torch.eye(self.dof, dtype=torch.bool, device=q.device)
        square = torch.where(itself, torch.inf, across.square() + up.square())
        strength = self.strengths.to(q.dtype)
        return across, up, square, strength.unsqueeze(-1) * strength

    def hamiltonian(self, t: Any, q: Tensor, p: Tensor) -> Tensor:
        """Return H."""
        _, _, square, both = self._pairs(q, p)
        log = torch.where(square.isinf(), 0.0, square.log())
        return -(both * log).sum((-2, -1)) / (8 * math.pi)

    def gradient(self, t: Any, q: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
        """Return ∂H/∂q and ∂H/∂p."""
        across, up, square, both = self._pairs(q, p)
        root = self.strengths.abs().sqrt().to(q.dtype)
        pull = -both / (2 * math.pi * square)
        by_x, by_y = (pull * across).sum(-1), (pull * up).sum(-1)
        return by_x / root, by_y / (root * self.strengths.sign().to(q.dtype))


class VortexSystem(System[VortexField]):
    """Vortices that start from a square, some way apart.

    Args:
        strengths: Γ of each.
    """

    trajectories: ClassVar[int] = 200
    readings: ClassVar[int] = 51
    span: ClassVar[float] = 5.0

    def __init__(self, strengths: Sequence[float] = (1.0, 1.0, 1.0, 1.0)) -> None:
        if len(strengths) < 2 or not all(strengths):
            raise OptionError(
                explain(
                    "task.strengths",
                    expected="at least two numbers, none of them zero",
                    got=", ".join(map(str, strengths)),
                    remedy="For example task.strengths=1,1,-1.",
                )
            )
        self.field = VortexField(strengths)
        self.space = StateSpace.canonical(len(strengths))

    def constants(self) -> dict[str, Any]:
        """Return the strengths."""
        return {"strengths": self.field.strengths.tolist()}

    def picture(self, states: Tensor) -> Drawing:
        """Draw the vortices where they are."""
        return Drawing(torch.stack(self.field.places(*states.chunk(2, dim=-1)), dim=-1))

    def starts(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw places from [−1, 1]², no two of them close."""
        number = self.field.dof
        kept = torch.empty(0, 2 * number, dtype=torch.float64)
        root = self.field.strengths.abs().sqrt()
        while len(kept) < count:
            x, y = uniform(generator, -1, 1, 2, 4 * count, number)
            across, up = (c.unsqueeze(-1) - c.unsqueeze(-2) for c in (x, y))
            far = across.square() + up.square()
            itself = torch.eye(number, dtype=torch.bool)
            good = (far.masked_fill(itself, math.inf) > _APART**2).flatten(1).all(1)
            states = torch.cat((root * x, root * self.field.strengths.sign() * y), dim=1)
            kept = torch.cat((kept, states[good]))
        return kept[:count]


@tasks.register("vortices")
class Vortices(MotionTask):
    """Point vortices in a plane, which carry each other around.

    Each moves with the flow of the others; x and y of a vortex are position and momentum, and the
    energy does not split. 200 trajectories of 51 readings on [0, 5], in canonical coordinates
    q = √|Γ| x and p = sign(Γ) √|Γ| y.

    Args:
        strengths: Γ of each vortex.
        seed: Where the order of training comes from.

    Example:
        >>> build("vortices", strengths=(1.0, -1.0))

    Reference:
        H. Helmholtz. On integrals of the hydrodynamical equations which express vortex-motion.
        1858. As a test of learned motion: S. Xiong and others. Nonseparable symplectic neural
        networks. ICLR, 2021.
    """

    @checked
    def __init__(
        self,
        *,
        strengths: Sequence[float] = (1.0, 1.0, 1.0, 1.0),
        seed: NonNegativeInt = 0,
        **options: Unpack[MotionOptions],
    ) -> None:
        super().__init__(VortexSystem(strengths), seed, options)
