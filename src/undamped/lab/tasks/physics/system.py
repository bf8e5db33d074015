"""The contract of a simulated system: its true field and energy, and where it starts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor, nn

from undamped._base.contract import StateSpace
from undamped._base.errors import DataError, SolveError, explain
from undamped.lab.tasks.physics.drawing import Drawing, in_phase_plane
from undamped.models.physics.fields.coordinates import split_inputs
from undamped.models.physics.fields.ports import Forced
from undamped.ode import solve

FieldT = TypeVar("FieldT", bound=nn.Module)
TIGHT: dict[str, Any] = {"method": "dopri8", "rtol": 1e-10, "atol": 1e-12}
"""How truth is simulated."""
_TOGETHER = 256
"""Trajectories solved with steps in common; the liveliest of them decides the steps of all."""


class System(ABC, Generic[FieldT]):
    """A system that moves.

    A subclass declares its space and true field, draws starts, and says what a set of data of it
    usually looks like. Everything is in double precision.
    """

    space: StateSpace
    field: FieldT
    """The true motion, called with (t, state, u); it has an `energy`."""
    trajectories: ClassVar[int] = 25
    """How many trajectories a model usually learns from."""
    readings: ClassVar[int] = 30
    """How many readings each has, the start among them."""
    span: ClassVar[float] = 3.0
    """The time they cover."""
    horizon: ClassVar[float] = 4.0
    """How many times that the longest test goes on for."""

    @abstractmethod
    def starts(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw states to start from, (count, size), with their inputs behind them."""

    @property
    def title(self) -> str:
        """What the system is called in run.json."""
        return type(self).__name__

    def constants(self) -> dict[str, Any]:
        """Return the numbers that define the system, for run.json."""
        return {}

    def energy(self, states: Tensor) -> Tensor:
        """Return the true energy of states (…, size)."""
        return self.field.energy(states.double())  # type: ignore[operator]

    def picture(self, states: Tensor) -> Drawing:
        """Return what states (…, size) look like; a point of the phase plane if nothing else."""
        return in_phase_plane(states, self.space.names)

    @torch.no_grad()
    def derivative(self, given: Tensor) -> Tensor:
        """Return the true rates (…, size) of states with their inputs behind them."""
        states, u = split_inputs(self.space, given.double())
        return self.field(torch.zeros((), dtype=torch.float64), states, u)

    @torch.no_grad()
    def simulate(self, given: Tensor, times: Tensor) -> Tensor:
        """Follow the system from its starts to tight tolerance.

        Args:
            given: Starts (count, size), with their inputs behind them; inputs stay as they are.
            times: Rising times from zero on, (readings,).

        Returns:
            States (readings, count, size).
        """
        start, u = split_inputs(self.space, given.double())
        return follow(self.field, start, times, u, owner=type(self).__name__)


@torch.no_grad()
def follow(
    field: nn.Module, start: Tensor, times: Tensor, u: Tensor | None = None, *, owner: str
) -> Tensor:
    """Return where a field leads to, to tight tolerance, (readings, count, size).

    Args:
        field: The field, called with (t, state, u).
        start: Where it begins, (count, size).
        times: Rising times from zero on, (readings,).
        u: Inputs (count, inputs), which stay as they are.
        owner: Whose motion it is, for the message where it cannot be followed.
    """
    parts = []
    for number, part in enumerate(start.split(_TOGETHER)):
        driven = field if u is None else Forced(field, u.split(_TOGETHER)[number])
        try:
            parts.append(solve(driven, part, times.double(), **TIGHT).values)
        except SolveError as error:
            raise DataError(
                explain(
                    f"{owner} over a time of {float(times[-1]):g}",
                    expected="trajectories that can be followed",
                    got=str(error).split(". ")[0],
                    remedy="Bodies may have met: choose a shorter task.span or another "
                    "task.data_seed.",
                )
            ) from error
    return torch.cat(parts, dim=1)


def uniform(generator: torch.Generator, low: float, high: float, *shape: int) -> Tensor:
    """Draw numbers evenly from an interval, in double precision."""
    return low + (high - low) * torch.rand(*shape, generator=generator, dtype=torch.float64)


def levels(generator: torch.Generator, largest: float, count: int) -> Tensor:
    """Draw inputs (count, 1) from five values, evenly from the largest to its opposite."""
    steps = torch.randint(-2, 3, (count, 1), generator=generator)
    return largest / 2 * steps.double()


def on_rings(count: int, low: float, high: float, generator: torch.Generator) -> Tensor:
    """Draw points of a plane, all directions alike, with radii evenly from an interval."""
    direction = torch.randn(count, 2, generator=generator, dtype=torch.float64)
    return direction / direction.norm(dim=1, keepdim=True) * uniform(generator, low, high, count, 1)
