"""The contract of Lagrangian fields: L(q, q̇), and the accelerations that follow from it."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from undamped._base.errors import NonFiniteError
from undamped.models.physics.fields.hamiltonian import by_autograd, differentiable_point
from undamped.models.physics.fields.ports import PortField, times
from undamped.ode.methods.symplectic import split


class LagrangianField(PortField):
    """A field whose motion makes the action of a Lagrangian stationary, with or without ports.

    A subclass defines `lagrangian`, from which autograd computes accelerations; a faster way
    overrides `acceleration`. A state holds positions first and velocities second.

    Equation:
        L_q̇q̇ q̈ = L_q − L_q̇q q̇ + F,  F = g(q) u − D(q) q̇,  E = q̇ᵀ L_q̇ − L

    Symbols:
        q positions, L Lagrangian, subscripts derivatives, u inputs, g and D as in `Ports`.

    Args:
        dof: Positions; as many velocities.
        ports: Inputs and friction, if there are any.
    """

    separable = False

    @abstractmethod
    def lagrangian(self, q: Tensor, v: Tensor) -> Tensor:
        """Return L, (…,), of positions and velocities (…, dof)."""

    def acceleration(self, q: Tensor, v: Tensor, force: Tensor | float = 0.0) -> Tensor:
        """Return q̈, (…, dof), under a force besides those of the Lagrangian."""
        recording = torch.is_grad_enabled()
        with torch.inference_mode(False), torch.enable_grad():
            q, v = (differentiable_point(x, recording) for x in (q, v))
            value = self.lagrangian(q, v).sum()
            by_q, momentum = torch.autograd.grad(value, (q, v), create_graph=True)
            rows = [_row(part.sum(), q, v, recording) for part in momentum.unbind(-1)]
            mixed, hessian = (torch.stack(part, dim=-2) for part in zip(*rows, strict=True))
            acceleration = solve_each(hessian, by_q - times(mixed, v) + force)
        return acceleration if recording else acceleration.detach()

    def forward(self, t: Any, state: Any, u: Tensor | None = None) -> Any:
        """Return (q̇, q̈) in the form of the state, (…, 2 × dof) or a pair (q, q̇), with inputs u."""
        q, v = state if isinstance(state, tuple) else split(state)
        force = 0.0 if self.ports is None else self.ports.force(q, v, u)
        rate = self.acceleration(q, v, force)
        return (v, rate) if isinstance(state, tuple) else torch.cat((v, rate), dim=-1)

    def energy(self, state: Tensor) -> Tensor:
        """Return E = q̇ᵀ L_q̇ − L of states (…, 2 × dof)."""
        q, v = split(state)
        (momentum,) = by_autograd(lambda rate: self.lagrangian(q, rate), v)
        return (v * momentum).sum(-1) - self.lagrangian(q, v)

    def velocities(self, q: Tensor, partner: Tensor) -> Tensor:
        """Return the velocities, which are part of the state."""
        return partner

    def rest_slope(self, q: Tensor) -> Tensor:
        """Return −∂L/∂q for velocities of zero, (…, dof)."""
        at_rest = torch.zeros_like(q)
        return by_autograd(lambda position: -self.lagrangian(position, at_rest), q)[0]


def _row(part: Tensor, q: Tensor, v: Tensor, recording: bool) -> tuple[Tensor, ...]:
    """Return the gradients of one momentum by the positions and by the velocities."""
    if not part.requires_grad:  # a Lagrangian without this velocity
        return torch.zeros_like(q), torch.zeros_like(v)
    gradients = torch.autograd.grad(
        part, (q, v), create_graph=recording, retain_graph=True, allow_unused=True
    )
    return tuple(
        torch.zeros_like(x) if slope is None else slope
        for x, slope in zip((q, v), gradients, strict=True)
    )


def solve_each(matrices: Tensor, right: Tensor) -> Tensor:
    """Return M⁻¹ r, (…, n), of matrices (…, n, n); the error for a singular M names the sample."""
    solution, info = torch.linalg.solve_ex(matrices, right.unsqueeze(-1))
    singular = (info != 0).flatten()
    if bool(singular.any()):
        raise NonFiniteError(
            "The second derivative of the Lagrangian by the velocities is singular at sample "
            f"{int(singular.nonzero()[0])} of {len(singular)}. Try another seed, float64, or a "
            "model whose mass matrix is positive by construction, such as delan."
        )
    return solution.squeeze(-1)
