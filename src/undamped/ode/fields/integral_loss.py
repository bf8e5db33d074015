"""Losses along the whole depth: the integral rides in the state, so every gradient follows."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn


class WithIntegral(nn.Module):
    """A field together with a running integral of a loss.

    Equation:
        ż = f(s, z),  λ̇ = l(s, z);  loss L(z(S)) + λ(S)

    Symbols:
        z state, l loss per unit of depth, λ its integral. Differentiating this system gives the
        generalised adjoint ȧ = −aᵀ ∂f/∂z − ∂l/∂z, and the gradient of parameters inside l.

    Args:
        field: f.
        integrand: l, called with (s, z), returning (batch,).

    Example:
        >>> both = WithIntegral(field, lambda s, z: z.pow(2).sum(-1))
        >>> state, integral = solve(both, (x, x.new_zeros(len(x))), [0.0, 1.0]).final

    Reference:
        S. Massaroli and others. Dissecting neural ODEs. NeurIPS, 2020.
    """

    def __init__(self, field: nn.Module, integrand: Any) -> None:
        super().__init__()
        self.field = field
        self.integrand = integrand

    def forward(self, t: Any, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Return both derivatives."""
        z, _ = state
        return self.field(t, z), self.integrand(t, z)
