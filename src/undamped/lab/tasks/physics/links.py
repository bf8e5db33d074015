"""A pendulum of several links, in angles or in the plane."""

from __future__ import annotations

from typing import Any, Literal, Unpack

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.contract import Coordinate, StateSpace
from undamped._base.options import PositiveFloat, PositiveInt
from undamped._base.registry import tasks
from undamped.lab.tasks.physics.motion_task import MotionOptions, MotionTask
from undamped.lab.tasks.physics.system import DataSize, Drawing, System, hanging, integrate
from undamped.models.physics.fields.lagrangian import LagrangianField

Coordinates = Literal["angles", "plane"]


class LinksField(LagrangianField):
    """Point masses of one on massless rods of length one, each attached to the previous mass.

    Equation:
        L = ½ Σᵢⱼ nᵢⱼ cos(θᵢ − θⱼ) θ̇ᵢ θ̇ⱼ + g Σᵢ nᵢᵢ cos θᵢ

    Symbols:
        θ angles from hanging, nᵢⱼ how many masses hang from both links i and j.

    Args:
        links: The number of links.
        gravity: g.
    """

    hanging: Tensor

    def __init__(self, links: int, gravity: float = 1.0) -> None:
        super().__init__(links)
        self.gravity = gravity
        index = torch.arange(links, dtype=torch.float64)
        lower = torch.maximum(index.unsqueeze(0), index.unsqueeze(1))
        self.register_buffer("hanging", links - lower)

    def _masses(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """Return nᵢⱼ cos(θᵢ − θⱼ) and nᵢⱼ sin(θᵢ − θⱼ), (…, links, links)."""
        differences = q.unsqueeze(-1) - q.unsqueeze(-2)
        hanging = self.hanging.to(q.dtype)
        return hanging * differences.cos(), hanging * differences.sin()

    def potential(self, q: Tensor) -> Tensor:
        """Return V, (…,)."""
        return -self.gravity * (self.hanging.diagonal() * q.cos()).sum(-1)

    def lagrangian(self, q: Tensor, v: Tensor) -> Tensor:
        momentum = (self._masses(q)[0] * v.unsqueeze(-2)).sum(-1)
        return (v * momentum).sum(-1) / 2 - self.potential(q)

    def acceleration(self, q: Tensor, v: Tensor, force: Tensor | float = 0.0) -> Tensor:
        mass, sines = self._masses(q)
        centrifugal = (sines * v.square().unsqueeze(-2)).sum(-1)
        right = force - centrifugal - self.gravity * self.hanging.diagonal() * q.sin()
        return torch.linalg.solve(mass, right)


class PlaneField(nn.Module):
    """The same motion, by positions and velocities of the masses in the plane.

    Args:
        field: The motion in angles.
    """

    separable = False

    def __init__(self, field: LinksField) -> None:
        super().__init__()
        self.field = field

    def forward(self, t: Any, state: Tensor, u: Tensor | None = None) -> Tensor:
        """Return velocities and accelerations of the masses, (…, 4 × links)."""
        angles, rates = angles_of(state).chunk(2, dim=-1)
        acceleration = self.field.acceleration(angles, rates)
        tangent = torch.stack((angles.cos(), angles.sin()), dim=-1)
        normal = torch.stack((-angles.sin(), angles.cos()), dim=-1)
        of_link = tangent * acceleration.unsqueeze(-1) + normal * rates.square().unsqueeze(-1)
        velocity = state[..., state.shape[-1] // 2 :]
        return torch.cat((velocity, of_link.cumsum(-2).flatten(-2)), dim=-1)

    def energy(self, state: Tensor) -> Tensor:
        """Return ½ Σ |v|² + g Σ y, (…,)."""
        position, velocity = state.chunk(2, dim=-1)
        return velocity.square().sum(-1) / 2 + self.field.gravity * position[..., 1::2].sum(-1)


def plane_of(states: Tensor) -> Tensor:
    """Return states (…, 2 × links) of angles and rates as positions and velocities of masses.

    Returns:
        x₁, y₁, x₂, y₂, … and then the velocities, (…, 4 × links); y is up.
    """
    angles, rates = states.chunk(2, dim=-1)
    out = torch.stack((angles.sin(), -angles.cos()), dim=-1)
    velocity = torch.stack((angles.cos(), angles.sin()), dim=-1) * rates.unsqueeze(-1)
    return torch.cat((out.cumsum(-2).flatten(-2), velocity.cumsum(-2).flatten(-2)), dim=-1)


def angles_of(states: Tensor) -> Tensor:
    """Return positions and velocities (…, 4 × links) as the angles and rates nearest to them."""
    halves = (half.unflatten(-1, (-1, 2)) for half in states.chunk(2, dim=-1))
    out, velocity = (torch.cat((x[..., :1, :], x.diff(dim=-2)), dim=-2) for x in halves)
    angles = torch.atan2(out[..., 0], -out[..., 1])
    tangent = torch.stack((angles.cos(), angles.sin()), dim=-1)
    return torch.cat((angles, (velocity * tangent).sum(-1)), dim=-1)


class LinksSystem(System[Any]):
    """Links of length and mass one.

    Args:
        links: The number of links.
        gravity: g.
        coordinates: What a state contains: angles and their rates, or positions and velocities of
            the masses in the plane.
    """

    data_size = DataSize(800, 5, 0.12, 25.0)

    def __init__(
        self, links: int = 2, gravity: float = 1.0, coordinates: Coordinates = "angles"
    ) -> None:
        self.in_angles = LinksField(links, gravity)
        self.links, self.coordinates = links, coordinates
        self.field = self.in_angles if coordinates == "angles" else PlaneField(self.in_angles)
        numbers = range(1, links + 1)
        if coordinates == "angles":
            names = (*(f"θ{k}" for k in numbers), *(f"θ̇{k}" for k in numbers))
            self.space = StateSpace(names, ("angle",) * links + ("velocity",) * links)
        else:
            positions = tuple(f"{letter}{k}" for k in numbers for letter in "xy")
            names = (*positions, *(f"v_{name}" for name in positions))
            half: tuple[Coordinate, ...] = ("position",) * len(positions)
            rods = tuple((k - 1, k) for k in numbers)
            self.space = StateSpace(names, half + ("velocity",) * len(positions), rods=rods)

    def constants(self) -> dict[str, Any]:
        return {"links": self.links, "gravity": self.in_angles.gravity}

    def drawing(self, states: Tensor) -> Drawing:
        if self.coordinates == "angles":
            return hanging(states[..., : self.links])
        bodies = states[..., : 2 * self.links].unflatten(-1, (self.links, 2))
        return Drawing(bodies, self.space.rods)

    def starts(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw random states of trajectories of three units of time."""

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        position, velocity = plane_of(normal(count, 2 * self.links)).chunk(2, dim=-1)
        position = position + 0.2 * normal(*position.shape)
        velocity = velocity / 2 + 0.4 * normal(*velocity.shape)
        first = angles_of(torch.cat((position, velocity), dim=-1))
        times = 0.15 * torch.arange(20, dtype=torch.float64)
        paths = self._integrate(first, times)
        index = torch.randint(len(times), (count,), generator=generator)
        return self._in_coordinates(paths[index, torch.arange(count)])

    @torch.no_grad()
    def simulate(self, starts: Tensor, times: Tensor) -> Tensor:
        """Solve in angles, whatever the coordinates; see `System.simulate`."""
        angles = starts.double() if self.coordinates == "angles" else angles_of(starts.double())
        return self._in_coordinates(self._integrate(angles, times))

    def _integrate(self, angles: Tensor, times: Tensor) -> Tensor:
        return integrate(self.in_angles, angles, times, owner=type(self).__name__)

    def _in_coordinates(self, states: Tensor) -> Tensor:
        return states if self.coordinates == "angles" else plane_of(states)


@tasks.register("links")
class Links(MotionTask):
    """A pendulum of several links.

    Masses and lengths of one; chaotic with two links or more. 800 segments of five readings every
    0.03, each from another trajectory; tests last three units of time.

    Args:
        links: The number of links.
        gravity: g.
        coordinates: What a state contains: angles and their rates, or positions and velocities of
            the masses in the plane, which rods hold at a distance of one.

    Example:
        >>> build("links", links=3, coordinates="plane")

    Reference:
        Set up as in M. Finzi, K. A. Wang, A. G. Wilson. Simplifying Hamiltonian and Lagrangian
        neural networks via explicit constraints. NeurIPS, 2020; disturbed starts are projected
        link by link.
    """

    @checked
    def __init__(
        self,
        *,
        links: PositiveInt = 2,
        gravity: PositiveFloat = 1.0,
        coordinates: Coordinates = "angles",
        **options: Unpack[MotionOptions],
    ) -> None:
        super().__init__(LinksSystem(links, gravity, coordinates), options)
