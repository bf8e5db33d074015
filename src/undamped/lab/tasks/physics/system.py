"""The contract of a simulated system, and systems in which velocities and momenta are exchanged."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from undamped._base.contract import Coordinate, StateSpace
from undamped._base.errors import DataError, OptionError, SolveError
from undamped.models.physics.fields.coordinates import split_inputs
from undamped.models.physics.fields.hamiltonian import HamiltonianField, SeparableField, by_autograd
from undamped.models.physics.fields.lagrangian import LagrangianField
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


Partners = Literal["own", "momenta", "velocities"]


class ExchangedField(nn.Module):
    """The motion of a field with conjugates in place of its partners: v = ∂H/∂p, or p = ∂L/∂v.

    A field has momenta or velocities, its partners of the positions; the others are the conjugates.
    In mechanics the map between them is linear, so that its inverse solves a linear system.

    Args:
        field: A Hamiltonian field, or a Lagrangian one.
    """

    separable = False

    def __init__(self, field: HamiltonianField | LagrangianField) -> None:
        super().__init__()
        self.field = field

    def conjugate(self, q: Tensor, partner: Tensor) -> Tensor:
        """Return the conjugates of the field's partners, (…, dof)."""
        field = self.field
        if isinstance(field, HamiltonianField):
            return field.gradient(0.0, q, partner)[1]
        return by_autograd(lambda v: field.lagrangian(q, v), partner)[0]

    def partner(self, q: Tensor, conjugate: Tensor) -> Tensor:
        """Return the field's partners from their conjugates, (…, dof)."""
        zero = torch.zeros_like(q)
        offset = self.conjugate(q, zero)
        columns = []
        for k in range(q.shape[-1]):
            unit = zero.clone()
            unit[..., k] = 1
            columns.append(self.conjugate(q, unit) - offset)
        return torch.linalg.solve(torch.stack(columns, dim=-1), conjugate - offset)

    def to_field(self, state: Tensor) -> Tensor:
        """Return states in the coordinates of the field."""
        q, conjugate = state.chunk(2, dim=-1)
        return torch.cat((q, self.partner(q, conjugate)), dim=-1)

    def from_field(self, state: Tensor) -> Tensor:
        """Return states of the field with conjugates in place of partners."""
        q, partner = state.chunk(2, dim=-1)
        return torch.cat((q, self.conjugate(q, partner).detach()), dim=-1)

    def forward(self, t: Any, state: Tensor, u: Tensor | None = None) -> Tensor:
        """Return the rates of a state, (…, size)."""
        state = self.to_field(state)
        q_rate, partner_rate = self.field(t, state, u).chunk(2, dim=-1)
        with torch.enable_grad():
            q, partner = (x.detach().requires_grad_() for x in state.chunk(2, dim=-1))
            rows = []
            for value in self.conjugate(q, partner).unbind(-1):
                slopes = torch.autograd.grad(
                    value.sum(), (q, partner), retain_graph=True, materialize_grads=True
                )
                rows.append((slopes[0] * q_rate + slopes[1] * partner_rate).sum(-1))
        return torch.cat((q_rate, torch.stack(rows, dim=-1).detach()), dim=-1)

    def energy(self, state: Tensor) -> Tensor:
        """Return the energy of states, (…,)."""
        return self.field.energy(self.to_field(state))


class Exchanged(System[ExchangedField]):
    """A system with conjugates in place of the partners of its positions.

    Args:
        system: The system.
    """

    def __init__(self, system: System[Any]) -> None:
        self.system = system
        self.field = ExchangedField(system.field)
        space = system.space
        half = space.size // 2
        momenta = "velocity" in space.kinds
        kinds: tuple[Coordinate, ...] = ("momentum" if momenta else "velocity",) * half
        names = tuple(f"{'p' if momenta else 'v'}_{name}" for name in space.names[:half])
        self.space = replace(
            space, names=(*space.names[:half], *names), kinds=(*space.kinds[:half], *kinds)
        )

    @property
    def title(self) -> str:
        return self.system.title

    def constants(self) -> dict[str, Any]:
        return self.system.constants()

    def drawing(self, states: Tensor) -> Drawing:
        return self.system.drawing(
            self.field.to_field(states.double()) if states.numel() else states
        )

    def starts(self, count: int, generator: torch.Generator) -> Tensor:
        starts = self.system.starts(count, generator)
        size = self.space.size
        return torch.cat((self.field.from_field(starts[:, :size]), starts[:, size:]), dim=1)

    @torch.no_grad()
    def simulate(self, starts: Tensor, times: Tensor) -> Tensor:
        """Simulate the system, and exchange the partners of all states; see `System.simulate`."""
        size, starts = self.space.size, starts.double()
        states = torch.cat((self.field.to_field(starts[:, :size]), starts[:, size:]), dim=1)
        return self.field.from_field(self.system.simulate(states, times))


def with_partners(system: System[Any], partners: Partners) -> System[Any]:
    """Return a system whose positions have the requested partners."""
    kinds = system.space.kinds
    has = "momenta" if "momentum" in kinds else "velocities" if "velocity" in kinds else "neither"
    if partners in ("own", has):
        return system
    mechanical = isinstance(system.field, HamiltonianField | LagrangianField)
    if not mechanical or not _linear(system):
        remedy = ", or choose task.coordinates=angles" if hasattr(system, "links") else ""
        raise OptionError(
            f"task.partners must be own for {type(system).__name__}, whose positions have no "
            f"conjugate partners; got {partners}. Leave it out{remedy}."
        )
    return Exchanged(system)


def _linear(system: System[Any]) -> bool:
    """Whether momenta are linear in velocities at some states, as in mechanics."""
    start = system.starts(4, torch.Generator().manual_seed(0))[:, : system.space.size]
    q, partner = start.chunk(2, dim=-1)
    field = ExchangedField(system.field)
    offset, once, twice = (field.conjugate(q, k * partner).detach() for k in (0.0, 1.0, 2.0))
    return torch.allclose(twice - offset, 2 * (once - offset), rtol=1e-8, atol=1e-10)
