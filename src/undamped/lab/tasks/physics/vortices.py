"""Point vortices in a plane."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Unpack

import torch
from torch import Tensor

from undamped._base.checked import checked
from undamped._base.contract import StateSpace
from undamped._base.errors import OptionError
from undamped._base.registry import tasks
from undamped.lab.tasks.physics.motion_task import MotionOptions, MotionTask
from undamped.lab.tasks.physics.system import Drawing, System, uniform
from undamped.models.physics.fields.hamiltonian import HamiltonianField

_LEAST_DISTANCE = 0.3
"""The least distance between two vortices at the start."""


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

    def positions(self, q: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
        """Return x and y of the vortices."""
        root = self.strengths.abs().sqrt().to(q.dtype)
        return q / root, p / (root * self.strengths.sign().to(q.dtype))

    def _pairs(self, q: Tensor, p: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        x, y = self.positions(q, p)
        dx, dy, square = _distances(x, y)
        strength = self.strengths.to(q.dtype)
        return dx, dy, square, strength.unsqueeze(-1) * strength

    def hamiltonian(self, t: Any, q: Tensor, p: Tensor) -> Tensor:
        """Return H."""
        _, _, square, both = self._pairs(q, p)
        log = torch.where(square.isinf(), 0.0, square.log())
        return -(both * log).sum((-2, -1)) / (8 * math.pi)

    def gradient(self, t: Any, q: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
        """Return ∂H/∂q and ∂H/∂p."""
        dx, dy, square, both = self._pairs(q, p)
        root = self.strengths.abs().sqrt().to(q.dtype)
        weight = -both / (2 * math.pi * square)
        by_x, by_y = (weight * dx).sum(-1), (weight * dy).sum(-1)
        return by_x / root, by_y / (root * self.strengths.sign().to(q.dtype))


def _distances(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return differences and squared distances of all pairs, infinite from a point to itself."""
    dx, dy = (c.unsqueeze(-1) - c.unsqueeze(-2) for c in (x, y))
    diagonal = torch.eye(x.shape[-1], dtype=torch.bool, device=x.device)
    return dx, dy, (dx.square() + dy.square()).masked_fill(diagonal, torch.inf)


class VortexSystem(System[VortexField]):
    """Vortices that start from a square, no two of them close to each other.

    Args:
        strengths: Γ of each.
    """

    trajectories: ClassVar[int] = 200
    readings: ClassVar[int] = 51
    span: ClassVar[float] = 5.0
    constant_names = ("strengths",)

    def __init__(self, strengths: Sequence[float] = (1.0, 1.0, 1.0, 1.0)) -> None:
        if len(strengths) < 2 or not all(strengths):
            raise OptionError(
                "task.strengths must be at least two numbers, none of them zero, such as 1,1,-1; "
                f"got {', '.join(map(str, strengths)) or 'none'}."
            )
        self.field = VortexField(strengths)
        self.space = StateSpace.canonical(len(strengths))

    def drawing(self, states: Tensor) -> Drawing:
        """Draw the vortices at their positions."""
        return Drawing(torch.stack(self.field.positions(*states.chunk(2, dim=-1)), dim=-1))

    def starts(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw positions from [−1, 1]², and reject those with a small distance."""
        vortices = self.field.dof
        accepted = torch.empty(0, 2 * vortices, dtype=torch.float64)
        root = self.field.strengths.abs().sqrt()
        while len(accepted) < count:
            x, y = uniform(generator, -1, 1, 2, 4 * count, vortices)
            good = (_distances(x, y)[2] > _LEAST_DISTANCE**2).flatten(1).all(1)
            states = torch.cat((root * x, root * self.field.strengths.sign() * y), dim=1)
            accepted = torch.cat((accepted, states[good]))
        return accepted[:count]


@tasks.register("vortices")
class Vortices(MotionTask):
    """Point vortices in a plane that move each other.

    Each moves with the flow of the others; x and y of a vortex are position and momentum, and the
    energy is not separable. 200 trajectories of 51 readings on [0, 5], in canonical coordinates
    q = √|Γ| x and p = sign(Γ) √|Γ| y.

    Args:
        strengths: Γ of each vortex.

    Example:
        >>> build("vortices", strengths=(1.0, -1.0))

    Reference:
        H. Helmholtz. On integrals of the hydrodynamical equations which express vortex-motion.
        1858. As a task: S. Xiong and others. Nonseparable symplectic neural
        networks. ICLR, 2021.
    """

    @checked
    def __init__(
        self,
        *,
        strengths: Sequence[float] = (1.0, 1.0, 1.0, 1.0),
        **options: Unpack[MotionOptions],
    ) -> None:
        super().__init__(VortexSystem(strengths), options)
