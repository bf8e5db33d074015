"""Two and three bodies that attract each other in a plane."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Unpack

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


class GravityField(SeparableField):
    """Bodies of mass one in a plane, with a gravitational constant of one.

    Equation:
        H = Σᵢ |pᵢ|²/2 − Σ_{i<j} 1/|qᵢ − qⱼ|

    Args:
        bodies: Their number.
    """

    def __init__(self, bodies: int) -> None:
        super().__init__(2 * bodies)
        self.bodies = bodies

    def _apart(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """Return qᵢ − qⱼ, (…, bodies, bodies, 2), and 1/|qᵢ − qⱼ|, zero to itself."""
        place = q.unflatten(-1, (self.bodies, 2))
        apart = place.unsqueeze(-2) - place.unsqueeze(-3)
        itself = torch.eye(self.bodies, dtype=torch.bool, device=q.device)
        return apart, apart.square().sum(-1).masked_fill(itself, torch.inf).rsqrt()

    def kinetic(self, p: Tensor) -> Tensor:
        """Return T."""
        return p.square().sum(-1) / 2

    def potential(self, q: Tensor) -> Tensor:
        """Return V."""
        return -self._apart(q)[1].sum((-2, -1)) / 2

    def kinetic_gradient(self, p: Tensor) -> Tensor:
        """Return ∂T/∂p."""
        return p

    def potential_gradient(self, q: Tensor) -> Tensor:
        """Return ∂V/∂q."""
        apart, near = self._apart(q)
        return (apart * (near**3).unsqueeze(-1)).sum(-2).flatten(-2)


def _space(bodies: int) -> StateSpace:
    names = [f"{letter}{k + 1}" for k in range(bodies) for letter in "xy"]
    momenta = tuple(f"p_{name}" for name in names)
    return StateSpace((*names, *momenta), ("position",) * len(names) + ("momentum",) * len(momenta))


class _Bodies(System[GravityField]):
    def picture(self, states: Tensor) -> Drawing:
        """Draw the bodies."""
        bodies = self.field.bodies
        return Drawing(states[..., : 2 * bodies].unflatten(-1, (bodies, 2)))


class TwoBodySystem(_Bodies):
    """Two bodies on nearly circular orbits around their middle."""

    space = _space(2)
    trajectories: ClassVar[int] = 800
    readings: ClassVar[int] = 50
    span: ClassVar[float] = 20.0

    def __init__(self) -> None:
        self.field = GravityField(2)

    def starts(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw orbits."""
        place = uniform(generator, 0.5, 1.5, count, 2)
        radius = place.norm(dim=1, keepdim=True)
        across = torch.stack((-place[:, 1], place[:, 0]), dim=1)
        faster = 1 + 0.05 * torch.randn(count, 1, generator=generator, dtype=torch.float64)
        velocity = across / (2 * radius**1.5) * faster
        return torch.cat((place, -place, velocity, -velocity), dim=1)


class ThreeBodySystem(_Bodies):
    """Three bodies that start from a triangle, each a little off its circular orbit."""

    space = _space(3)
    trajectories: ClassVar[int] = 1000
    readings: ClassVar[int] = 20
    span: ClassVar[float] = 5.0

    def __init__(self) -> None:
        self.field = GravityField(3)

    def starts(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw triangles."""
        angle = uniform(generator, 0, 2 * math.pi, count, 1)
        angle = angle + 2 * math.pi / 3 * torch.arange(3, dtype=torch.float64)  # (count, 3)
        radius = uniform(generator, 0.9, 1.2, count, 1, 1)
        out = torch.stack((angle.cos(), angle.sin()), dim=-1)
        along = torch.stack((-angle.sin(), angle.cos()), dim=-1)
        velocity = 3**-0.25 / radius.sqrt() * along
        velocity = velocity * (1 + 0.2 * uniform(generator, -1, 1, count, 3, 2))
        return torch.cat(((radius * out).flatten(1), velocity.flatten(1)), dim=1)


class _BodiesTask(MotionTask):
    recipes: ClassVar[dict[str, Any]] = {
        "*": {
            "train": {
                "steps": 5000,
                "batch_size": 200,
                "schedule": "cosine",
            },
        }
    }


@tasks.register("two-body")
class TwoBody(_BodiesTask):
    """Two bodies that attract each other.

    Masses and gravitational constant one, in a plane, around their middle: 800 trajectories of 50
    readings on [0, 20], from nearly circular orbits.

    Args:
        seed: Where the order of training comes from.

    Example:
        >>> build("two-body", trajectories=50)

    Reference:
        Set up as in S. Greydanus, M. Dzamba, J. Yosinski. Hamiltonian neural networks. NeurIPS,
        2019.
    """

    @checked
    def __init__(self, *, seed: NonNegativeInt = 0, **options: Unpack[MotionOptions]) -> None:
        super().__init__(TwoBodySystem(), seed, options)


@tasks.register("three-body")
class ThreeBody(_BodiesTask):
    """Three bodies that attract each other.

    Masses and gravitational constant one, in a plane: 1,000 trajectories of 20 readings on [0, 5],
    from triangles near the circular solution, which is unstable.

    Args:
        seed: Where the order of training comes from.

    Example:
        >>> build("three-body", trajectories=50)

    Reference:
        Set up as in S. Greydanus, M. Dzamba, J. Yosinski. Hamiltonian neural networks. NeurIPS,
        2019, with an angle for every triangle and noise for every velocity.
    """

    @checked
    def __init__(self, *, seed: NonNegativeInt = 0, **options: Unpack[MotionOptions]) -> None:
        super().__init__(ThreeBodySystem(), seed, options)
