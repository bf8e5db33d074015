"""The contract of Lagrangian fields: L(q, q̇), and the accelerations that follow from it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.errors import NonFiniteError, explain
from undamped.models.physics.fields.hamiltonian import by_autograd, seen_by_autograd
from undamped.models.physics.fields.ports import Mechanics, Ports, times
from undamped.ode.methods.symplectic.phase import split


class LagrangianField(nn.Module, ABC):
    """A field whose motion makes the action of a Lagrangian stationary, perhaps with ports.

    A subclass gives `lagrangian`; accelerations follow from it. One that knows a shorter way to
    them overrides `acceleration`. A state holds positions first and velocities second.

    Equation:
        L_q̇q̇ q̈ = L_q − L_q̇q q̇ + F,  F = g(q) u − D(q) q̇,  E = q̇ᵀ L_q̇ − L

    Symbols:
        q positions, L Lagrangian, subscripts derivatives, u inputs, g and D as in `Ports`.

    Args:
        freedoms: Positions; as many velocities.
        ports: Inputs and friction, if there are any.
    """

    separable = False

    def __init__(self, freedoms: int, ports: Ports | None = None) -> None:
        super().__init__()
        self.freedoms = freedoms
        self.ports = ports

    @property
    def size(self) -> int:
        """Numbers of a state."""
        return 2 * self.freedoms

    @abstractmethod
    def lagrangian(self, q: Tensor, v: Tensor) -> Tensor:
        """Return L, (…,), of positions and velocities (…, freedoms)."""

    def acceleration(self, q: Tensor, v: Tensor, force: Tensor | float = 0.0) -> Tensor:
        """Return q̈, (…, freedoms), where a force acts besides the Lagrangian's own."""
        recording = torch.is_grad_enabled()
        with torch.inference_mode(False), torch.enable_grad():
            q, v = (seen_by_autograd(x, recording) for x in (q, v))
            value = self.lagrangian(q, v).sum()
            by_q, momentum = torch.autograd.grad(value, (q, v), create_graph=True)
            rows = [_row(part.sum(), q, v, recording) for part in momentum.unbind(-1)]
            by_q_too, hessian = (torch.stack(part, dim=-2) for part in zip(*rows, strict=True))
            found = solve_each(hessian, by_q - times(by_q_too, v) + force)
        return found if recording else found.detach()

    def forward(self, t: Any, state: Any, u: Tensor | None = None) -> Any:
        """Return (q̇, q̈), in the form the state came in.

        Args:
            t: Time.
            state: (…, 2 × freedoms), or a pair (q, q̇).
            u: Inputs, (…, inputs).
        """
        q, v = state if isinstance(state, tuple) else split(state)
        force = 0.0 if self.ports is None else self.ports.force(q, v, u)
        rate = self.acceleration(q, v, force)
        return (v, rate) if isinstance(state, tuple) else torch.cat((v, rate), dim=-1)

    def energy(self, state: Tensor) -> Tensor:
        """Return E = q̇ᵀ L_q̇ − L of states (…, 2 × freedoms)."""
        q, v = split(state)
        (momentum,) = by_autograd(lambda rate: self.lagrangian(q, rate), v)
        return (v * momentum).sum(-1) - self.lagrangian(q, v)

    def supplied(self, state: Tensor, u: Tensor | None) -> Tensor:
        """Return the power that the inputs supply, (…,)."""
        q, v = split(state)
        if self.ports is None:
            return state.new_zeros(state.shape[:-1])
        return self.ports.supplied(q, v, u)

    def mechanics(self, state: Tensor) -> Mechanics:
        """Return positions, velocities, the slope of −L at rest, and how inputs act."""
        q, v = split(state)
        acting = None if self.ports is None or self.ports.inputs is None else self.ports.inputs(q)
        still = torch.zeros_like(v)
        (slope,) = by_autograd(lambda place: -self.lagrangian(place, still), q)
        return Mechanics(q, v, slope, acting)


def _row(part: Tensor, q: Tensor, v: Tensor, recording: bool) -> tuple[Tensor, ...]:
    """Return how one momentum changes with the positions and with the velocities."""
    if not part.requires_grad:  # a Lagrangian without this velocity
        return torch.zeros_like(q), torch.zeros_like(v)
    found = torch.autograd.grad(
        part, (q, v), create_graph=recording, retain_graph=True, allow_unused=True
    )
    return tuple(
        torch.zeros_like(x) if slope is None else slope
        for x, slope in zip((q, v), found, strict=True)
    )


def solve_each(matrices: Tensor, right: Tensor) -> Tensor:
    """Return M⁻¹ r for every sample, or say which sample's M has no inverse.

    Args:
        matrices: M, (…, n, n).
        right: r, (…, n).
    """
    found, info = torch.linalg.solve_ex(matrices, right.unsqueeze(-1))
    singular = (info != 0).flatten()
    if bool(singular.any()):
        raise NonFiniteError(
            explain(
                "the second derivative of the Lagrangian by the velocities",
                expected="a matrix with an inverse at every state",
                got=f"a singular one at sample {int(singular.nonzero()[0])} of {len(singular)}",
                remedy="Start from other weights (another seed), compute in float64, or choose a "
                "model whose mass matrix is positive by construction, such as delan.",
            )
        )
    return found.squeeze(-1)
