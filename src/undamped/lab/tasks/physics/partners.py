"""A system whose states hold velocities in place of momenta, or momenta in place of velocities."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from undamped._base.contract import Coordinate
from undamped._base.errors import OptionError, explain
from undamped.lab.tasks.physics.drawing import Drawing
from undamped.lab.tasks.physics.system import System
from undamped.models.physics.fields.hamiltonian import HamiltonianField, by_autograd
from undamped.models.physics.fields.lagrangian import LagrangianField

Partners = Literal["own", "momenta", "velocities"]


class Exchange:
    """How partners of positions become the others: v = ∂H/∂p, or p = ∂L/∂v.

    In mechanics both are linear in what they are made of, so that the way back is a solve.

    Args:
        field: A Hamiltonian field, or a Lagrangian one.
    """

    def __init__(self, field: HamiltonianField | LagrangianField) -> None:
        self.field = field

    def other(self, q: Tensor, own: Tensor) -> Tensor:
        """Return the other partners of states, (…, freedoms)."""
        field = self.field
        if isinstance(field, HamiltonianField):
            return field.gradient(0.0, q, own)[1]
        return by_autograd(lambda v: field.lagrangian(q, v), own)[0]

    def own(self, q: Tensor, other: Tensor) -> Tensor:
        """Return the field's own partners, from the others."""
        zero = torch.zeros_like(q)
        offset = self.other(q, zero)
        columns = []
        for k in range(q.shape[-1]):
            unit = zero.clone()
            unit[..., k] = 1
            columns.append(self.other(q, unit) - offset)
        return torch.linalg.solve(torch.stack(columns, dim=-1), other - offset)

    def rate(self, q: Tensor, own: Tensor, q_rate: Tensor, own_rate: Tensor) -> Tensor:
        """Return how fast the other partners change."""
        with torch.enable_grad():
            q, own = (x.detach().requires_grad_() for x in (q, own))
            rows = []
            for value in self.other(q, own).unbind(-1):
                slopes = torch.autograd.grad(
                    value.sum(), (q, own), retain_graph=True, materialize_grads=True
                )
                rows.append((slopes[0] * q_rate + slopes[1] * own_rate).sum(-1))
        return torch.stack(rows, dim=-1).detach()


class ExchangedField(nn.Module):
    """The motion of a field in exchanged coordinates.

    Args:
        field: The field.
    """

    separable = False

    def __init__(self, field: HamiltonianField | LagrangianField) -> None:
        super().__init__()
        self.field = field
        self.exchange = Exchange(field)

    def own(self, state: Tensor) -> Tensor:
        """Return states as the field has them."""
        q, other = state.chunk(2, dim=-1)
        return torch.cat((q, self.exchange.own(q, other)), dim=-1)

    def forward(self, t: Any, state: Tensor, u: Tensor | None = None) -> Tensor:
        """Return the rates of a state, (…, size)."""
        own = self.own(state)
        halves = (*own.chunk(2, dim=-1), *self.field(t, own, u).chunk(2, dim=-1))
        return torch.cat((halves[2], self.exchange.rate(*halves)), dim=-1)

    def energy(self, state: Tensor) -> Tensor:
        """Return the energy of states, (…,)."""
        return self.field.energy(self.own(state))


class Exchanged(System[ExchangedField]):
    """A system with other partners of its positions.

    Args:
        system: The system.
    """

    def __init__(self, system: System[Any]) -> None:
        self.system = system
        self.field = ExchangedField(system.field)
        space = system.space
        half = space.size // 2
        momenta = "velocity" in space.kinds
        other: tuple[Coordinate, ...] = ("momentum" if momenta else "velocity",) * half
        names = tuple(f"{'p' if momenta else 'v'}_{name}" for name in space.names[:half])
        self.space = replace(
            space, names=(*space.names[:half], *names), kinds=(*space.kinds[:half], *other)
        )

    @property
    def title(self) -> str:
        """The name of the system."""
        return self.system.title

    def constants(self) -> dict[str, Any]:
        """Return those of the system."""
        return self.system.constants()

    def picture(self, states: Tensor) -> Drawing:
        """Draw what the system draws."""
        own = self.field.own(states.double()) if states.numel() else states
        return self.system.picture(own)

    def starts(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw what the system draws."""
        own = self.system.starts(count, generator)
        size = self.space.size
        return torch.cat((self._exchanged(own[:, :size]), own[:, size:]), dim=1)

    @torch.no_grad()
    def simulate(self, given: Tensor, times: Tensor) -> Tensor:
        """Follow the system as it is, and exchange partners all along: see `System.simulate`."""
        size = self.space.size
        own = torch.cat((self.field.own(given[:, :size].double()), given[:, size:].double()), dim=1)
        return self._exchanged(self.system.simulate(own, times))

    def _exchanged(self, own: Tensor) -> Tensor:
        q, partner = own.chunk(2, dim=-1)
        return torch.cat((q, self.field.exchange.other(q, partner).detach()), dim=-1)


def with_partners(system: System[Any], partners: Partners) -> System[Any]:
    """Return a system whose positions have the partners that are wanted, or refuse."""
    kinds = system.space.kinds
    has = "momenta" if "momentum" in kinds else "velocities" if "velocity" in kinds else "neither"
    if partners in ("own", has):
        return system
    mechanical = isinstance(system.field, HamiltonianField | LagrangianField)
    if not mechanical or not _linear(system):
        raise OptionError(
            explain(
                "task.partners",
                expected=f"own, since positions of {type(system).__name__} have no other partners "
                "that say as much",
                got=partners,
                remedy="Leave it out"
                + (", or choose task.coordinates=angles." if hasattr(system, "links") else "."),
            )
        )
    return Exchanged(system)


def _linear(system: System[Any]) -> bool:
    """Whether the other partners are linear in the own ones, at some states; so in mechanics."""
    start = system.starts(4, torch.Generator().manual_seed(0))[:, : system.space.size]
    q, own = start.chunk(2, dim=-1)
    exchange = Exchange(system.field)
    offset, once, twice = (exchange.other(q, k * own).detach() for k in (0.0, 1.0, 2.0))
    return torch.allclose(twice - offset, 2 * (once - offset), rtol=1e-8, atol=1e-10)
