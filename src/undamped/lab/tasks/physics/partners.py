"""A system in which velocities replace momenta, or momenta replace velocities."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from undamped._base.contract import Coordinate
from undamped._base.errors import OptionError
from undamped.lab.tasks.physics.system import Drawing, System
from undamped.models.physics.fields.hamiltonian import HamiltonianField, by_autograd
from undamped.models.physics.fields.lagrangian import LagrangianField

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
