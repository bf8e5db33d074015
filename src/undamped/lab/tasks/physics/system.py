"""The contract of a simulated system: its true field and energy, its starts and its drawing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from undamped._base.contract import StateSpace
from undamped._base.errors import DataError, SolveError
from undamped.models.physics.fields.coordinates import split_inputs
from undamped.models.physics.fields.hamiltonian import SeparableField
from undamped.models.physics.fields.ports import Forced, Ports
from undamped.ode import solve

FieldT = TypeVar("FieldT", bound=nn.Module)
ACCURATE: dict[str, Any] = {"method": "dopri8", "rtol": 1e-10, "atol": 1e-12}
"""The solver of true trajectories."""
_CHUNK = 256
"""Trajectories that are solved with the same steps; the fastest of them determines the steps."""


@dataclass(frozen=True)
class Drawing:
    """Bodies of a system in the plane, and the rods between them.

    Args:
        bodies: The positions, (…, bodies, 2).
        rods: Pairs of bodies with a line between them, counted from 1; 0 is the origin.
        x: The label of the horizontal axis.
        y: The label of the vertical axis.
        equal: Whether both axes have the same scale.
    """

    bodies: Tensor
    rods: tuple[tuple[int, int], ...] = ()
    x: str = "x"
    y: str = "y"
    equal: bool = True


def hanging(angles: Tensor) -> Drawing:
    """Draw rods of length one that hang from each other.

    Args:
        angles: The angle of every rod from straight down, (…, rods).
    """
    steps = torch.stack((angles.sin(), -angles.cos()), dim=-1)
    rods = tuple((k, k + 1) for k in range(angles.shape[-1]))
    return Drawing(steps.cumsum(-2), rods)


def in_phase_plane(states: Tensor, names: tuple[str, ...]) -> Drawing:
    """Draw a point in the plane of the first position and its momentum or velocity."""
    half = states.shape[-1] // 2
    point = states[..., [0, half]].unsqueeze(-2)
    return Drawing(point, (), names[0], names[half], equal=False)


class DataSize(NamedTuple):
    """The default size of a data set.

    Args:
        trajectories: Trajectories of the training split.
        readings: Readings of each trajectory, the start included.
        span: The time that a trajectory covers.
        horizon: The time of the longest test, in units of `span`.
    """

    trajectories: int = 25
    readings: int = 30
    span: float = 3.0
    horizon: float = 4.0


class System(ABC, Generic[FieldT]):
    """A dynamical system.

    A subclass declares its state space and its true field, draws initial states, and sets the sizes
    of a data set. All computations are in double precision.
    """

    space: StateSpace
    field: FieldT
    """The true motion, called with (t, state, u); it has an `energy`."""
    data_size: ClassVar[DataSize] = DataSize()
    constant_names: ClassVar[tuple[str, ...]] = ()
    """Attributes of the field that define the system."""

    @abstractmethod
    def starts(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw initial states, followed by their inputs: (count, size + inputs)."""

    @property
    def title(self) -> str:
        """The name of the system in run.json."""
        return type(self).__name__

    def constants(self) -> dict[str, Any]:
        """Return the numbers that define the system, as plain values for run.json."""
        return {name: _plain(getattr(self.field, name)) for name in self.constant_names}

    def energy(self, states: Tensor) -> Tensor:
        """Return the true energy of states (…, size)."""
        return self.field.energy(states.double())  # type: ignore[operator]

    def drawing(self, states: Tensor) -> Drawing:
        """Return a drawing of states (…, size), by default a point of the phase plane."""
        return in_phase_plane(states, self.space.names)

    @torch.no_grad()
    def derivative(self, states: Tensor) -> Tensor:
        """Return the true rates (…, size) of states that are followed by their inputs."""
        state, u = split_inputs(self.space, states.double())
        return self.field(torch.zeros((), dtype=torch.float64), state, u)

    @torch.no_grad()
    def simulate(self, starts: Tensor, times: Tensor) -> Tensor:
        """Return true trajectories, solved to tight tolerances.

        Args:
            starts: Initial states, followed by their inputs, which are constant: (count, …).
            times: Increasing times from zero, (readings,).

        Returns:
            States (readings, count, size).
        """
        start, u = split_inputs(self.space, starts.double())
        return integrate(self.field, start, times, u, owner=type(self).__name__)


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.tolist()
    return list(value) if isinstance(value, tuple) else value


@torch.no_grad()
def integrate(
    field: nn.Module, start: Tensor, times: Tensor, u: Tensor | None = None, *, owner: str
) -> Tensor:
    """Return the trajectories of a field, (readings, count, size), solved to tight tolerances.

    Args:
        field: The field, called with (t, state, u).
        start: Initial states, (count, size).
        times: Increasing times from zero, (readings,).
        u: Constant inputs (count, inputs).
        owner: The name of the system, for the message of a failure.
    """
    chunks = []
    for index, chunk in enumerate(start.split(_CHUNK)):
        forced = field if u is None else Forced(field, u.split(_CHUNK)[index])
        try:
            chunks.append(solve(forced, chunk, times.double(), **ACCURATE).values)
        except SolveError as error:
            raise DataError(
                f"{owner} cannot be simulated up to t = {float(times[-1]):g}: "
                f"{str(error).split('. ')[0]}. Bodies may have met. Choose a shorter task.span or "
                "another task.data_seed."
            ) from error
    return torch.cat(chunks, dim=1)


class QuadraticKineticField(SeparableField):
    """A separable field with T = a |p|².

    Args:
        dof: Positions; as many momenta.
        a: The coefficient; ½ for masses of one.
        ports: Inputs, if there are any.
    """

    def __init__(self, dof: int, a: float = 0.5, ports: Ports | None = None) -> None:
        super().__init__(dof, ports)
        self.a = a

    def kinetic(self, p: Tensor) -> Tensor:
        return self.a * p.square().sum(-1)

    def kinetic_gradient(self, p: Tensor) -> Tensor:
        return 2 * self.a * p


def uniform(generator: torch.Generator, low: float, high: float, *shape: int) -> Tensor:
    """Draw numbers uniformly from an interval, in double precision."""
    return low + (high - low) * torch.rand(*shape, generator=generator, dtype=torch.float64)


def levels(generator: torch.Generator, largest: float, count: int) -> Tensor:
    """Draw inputs (count, 1) from five evenly spaced values between ±`largest`."""
    steps = torch.randint(-2, 3, (count, 1), generator=generator)
    return largest / 2 * steps.double()


def on_rings(count: int, low: float, high: float, generator: torch.Generator) -> Tensor:
    """Draw points of a plane with uniform directions, and radii uniform in an interval."""
    direction = torch.randn(count, 2, generator=generator, dtype=torch.float64)
    return direction / direction.norm(dim=1, keepdim=True) * uniform(generator, low, high, count, 1)
