"""Two and three bodies that attract each other in a plane."""

from __future__ import annotations

import math
from typing import ClassVar, Unpack

import torch
from torch import Tensor

from undamped._base.checked import checked
from undamped._base.contract import StateSpace
from undamped._base.registry import tasks
from undamped.lab.tasks.physics.motion_task import MotionOptions, MotionTask
from undamped.lab.tasks.physics.system import Drawing, QuadraticKineticField, System, uniform


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

    def _differences(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """Return qᵢ − qⱼ, (…, bodies, bodies, 2), and 1/|qᵢ − qⱼ|, zero for i = j."""
        positions = q.unflatten(-1, (self.bodies, 2))
        differences = positions.unsqueeze(-2) - positions.unsqueeze(-3)
        diagonal = torch.eye(self.bodies, dtype=torch.bool, device=q.device)
        squares = differences.square().sum(-1)
        return differences, squares.masked_fill(diagonal, torch.inf).rsqrt()

    def potential(self, q: Tensor) -> Tensor:
        """Return V."""
        return -self._differences(q)[1].sum((-2, -1)) / 2

    def potential_gradient(self, q: Tensor) -> Tensor:
        """Return ∂V/∂q."""
        differences, inverse = self._differences(q)
        return (differences * (inverse**3).unsqueeze(-1)).sum(-2).flatten(-2)


def _space(bodies: int) -> StateSpace:
    names = [f"{letter}{k + 1}" for k in range(bodies) for letter in "xy"]
    momenta = tuple(f"p_{name}" for name in names)
    return StateSpace((*names, *momenta), ("position",) * len(names) + ("momentum",) * len(momenta))


class _Bodies(System[GravityField]):
    def drawing(self, states: Tensor) -> Drawing:
        """Draw the bodies."""
        bodies = self.field.bodies
        return Drawing(states[..., : 2 * bodies].unflatten(-1, (bodies, 2)))


class TwoBodySystem(_Bodies):
    """Two bodies on nearly circular orbits around their centre."""

    space = _space(2)
    trajectories: ClassVar[int] = 800
    readings: ClassVar[int] = 50
    span: ClassVar[float] = 20.0

    def __init__(self) -> None:
        self.field = GravityField(2)

    def starts(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw orbits."""
        position = uniform(generator, 0.5, 1.5, count, 2)
        radius = position.norm(dim=1, keepdim=True)
        tangent = torch.stack((-position[:, 1], position[:, 0]), dim=1)
        factor = 1 + 0.05 * torch.randn(count, 1, generator=generator, dtype=torch.float64)
        velocity = tangent / (2 * radius**1.5) * factor
        return torch.cat((position, -position, velocity, -velocity), dim=1)


class ThreeBodySystem(_Bodies):
    """Three bodies that start from a triangle, with disturbed circular orbits."""

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


_RECIPES = {"*": {"train": {"steps": 5000, "batch_size": 200, "schedule": "cosine"}}}


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
