"""Bodies in a plane: two and three that attract each other, and point vortices."""

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
from undamped.lab.tasks.physics.system import (
    DataSize,
    Drawing,
    QuadraticKineticField,
    System,
    uniform,
)
from undamped.models.physics.fields.hamiltonian import HamiltonianField

_LEAST_DISTANCE = 0.3
"""The least distance between two vortices at the start."""
_RECIPES = {"*": {"train": {"steps": 5000, "batch_size": 200, "schedule": "cosine"}}}


def _distances(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return differences and squared distances of all pairs, infinite from a point to itself."""
    dx, dy = (c.unsqueeze(-1) - c.unsqueeze(-2) for c in (x, y))
    diagonal = torch.eye(x.shape[-1], dtype=torch.bool, device=x.device)
    return dx, dy, (dx.square() + dy.square()).masked_fill(diagonal, torch.inf)


class GravityField(QuadraticKineticField):
    """Bodies of mass one in a plane, with a gravitational constant of one.

    Equation:
        H = Σᵢ |pᵢ|²/2 − Σ_{i<j} 1/|qᵢ − qⱼ|

    Args:
        bodies: Their number.
    """

    def __init__(self, bodies: int) -> None:
        super().__init__(2 * bodies)
        self.bodies = bodies

    def potential(self, q: Tensor) -> Tensor:
        squares = _distances(q[..., ::2], q[..., 1::2])[2]
        return -squares.rsqrt().sum((-2, -1)) / 2

    def potential_gradient(self, q: Tensor) -> Tensor:
        dx, dy, squares = _distances(q[..., ::2], q[..., 1::2])
        weight = squares.rsqrt() ** 3
        return torch.stack(((weight * dx).sum(-1), (weight * dy).sum(-1)), dim=-1).flatten(-2)


def _space(bodies: int) -> StateSpace:
    names = [f"{letter}{k + 1}" for k in range(bodies) for letter in "xy"]
    momenta = tuple(f"p_{name}" for name in names)
    return StateSpace((*names, *momenta), ("position",) * len(names) + ("momentum",) * len(momenta))


class _Bodies(System[GravityField]):
    def drawing(self, states: Tensor) -> Drawing:
        bodies = self.field.bodies
        return Drawing(states[..., : 2 * bodies].unflatten(-1, (bodies, 2)))


class TwoBodySystem(_Bodies):
    """Two bodies on nearly circular orbits around their centre."""

    space = _space(2)
    data_size = DataSize(800, 50, 20.0)

    def __init__(self) -> None:
        self.field = GravityField(2)

    def starts(self, count: int, generator: torch.Generator) -> Tensor:
        position = uniform(generator, 0.5, 1.5, count, 2)
        radius = position.norm(dim=1, keepdim=True)
        tangent = torch.stack((-position[:, 1], position[:, 0]), dim=1)
        factor = 1 + 0.05 * torch.randn(count, 1, generator=generator, dtype=torch.float64)
        velocity = tangent / (2 * radius**1.5) * factor
        return torch.cat((position, -position, velocity, -velocity), dim=1)


class ThreeBodySystem(_Bodies):
    """Three bodies that start from a triangle, with disturbed circular orbits."""

    space = _space(3)
    data_size = DataSize(1000, 20, 5.0)

    def __init__(self) -> None:
        self.field = GravityField(3)

    def starts(self, count: int, generator: torch.Generator) -> Tensor:
        angle = uniform(generator, 0, 2 * math.pi, count, 1)
        angle = angle + 2 * math.pi / 3 * torch.arange(3, dtype=torch.float64)  # (count, 3)
        radius = uniform(generator, 0.9, 1.2, count, 1, 1)
        out = torch.stack((angle.cos(), angle.sin()), dim=-1)
        along = torch.stack((-angle.sin(), angle.cos()), dim=-1)
        velocity = 3**-0.25 / radius.sqrt() * along
        velocity = velocity * (1 + 0.2 * uniform(generator, -1, 1, count, 3, 2))
        return torch.cat(((radius * out).flatten(1), velocity.flatten(1)), dim=1)


@tasks.register("two-body")
class TwoBody(MotionTask):
    """Two bodies that attract each other.

    Masses and gravitational constant one, in a plane, around their centre: 800 trajectories of 50
    readings on [0, 20], from nearly circular orbits.

    Example:
        >>> build("two-body", trajectories=50)

    Reference:
        Set up as in S. Greydanus, M. Dzamba, J. Yosinski. Hamiltonian neural networks. NeurIPS,
        2019.
    """

    recipes: ClassVar = _RECIPES

    @checked
    def __init__(self, **options: Unpack[MotionOptions]) -> None:
        super().__init__(TwoBodySystem(), options)


@tasks.register("three-body")
class ThreeBody(MotionTask):
    """Three bodies that attract each other.

    Masses and gravitational constant one, in a plane: 1,000 trajectories of 20 readings on [0, 5],
    from triangles near the circular solution, which is unstable.

    Example:
        >>> build("three-body", trajectories=50)

    Reference:
        Set up as in S. Greydanus, M. Dzamba, J. Yosinski. Hamiltonian neural networks. NeurIPS,
        2019, with an angle for every triangle and noise for every velocity.
    """

    recipes: ClassVar = _RECIPES

    @checked
    def __init__(self, **options: Unpack[MotionOptions]) -> None:
        super().__init__(ThreeBodySystem(), options)


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
        """Return differences and squared distances of all pairs, and Γᵢ Γⱼ."""
        strength = self.strengths.to(q.dtype)
        return *_distances(*self.positions(q, p)), strength.unsqueeze(-1) * strength

    def hamiltonian(self, t: Any, q: Tensor, p: Tensor) -> Tensor:
        _, _, squares, products = self._pairs(q, p)
        log = torch.where(squares.isinf(), 0.0, squares.log())
        return -(products * log).sum((-2, -1)) / (8 * math.pi)

    def gradient(self, t: Any, q: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
        dx, dy, squares, products = self._pairs(q, p)
        root = self.strengths.abs().sqrt().to(q.dtype)
        weight = -products / (2 * math.pi * squares)
        by_x, by_y = (weight * dx).sum(-1), (weight * dy).sum(-1)
        return by_x / root, by_y / (root * self.strengths.sign().to(q.dtype))


class VortexSystem(System[VortexField]):
    """Vortices that start from a square, no two of them close to each other.

    Args:
        strengths: Γ of each.
    """

    data_size = DataSize(200, 51, 5.0)
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
        self, *, strengths: Sequence[float] = (1.0, 1.0, 1.0, 1.0), **options: Unpack[MotionOptions]
    ) -> None:
        super().__init__(VortexSystem(strengths), options)
