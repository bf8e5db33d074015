"""ODEtoODE's fields (Choromanski and others, 2020): weights that move on the orthogonal group."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.options import PositiveInt
from undamped.kernels.skew_exponential import skew_exponential
from undamped.ode.fields.antisymmetric import bracket
from undamped.ode.fields.moving import MovingField, matrix_times
from undamped.ode.fields.perceptron import ACTIVATIONS
from undamped.parametrizations.initial import random_orthogonal

OrthogonalActivation = Literal["tanh", "softplus", "relu", "elu", "abs"]
"""All have slopes of at most one."""


class OrthogonalField(MovingField):
    """A field through an orthogonal matrix that rotates with depth, as subclasses define.

    Equation:
        ẋ = f(W x + c),  Ẇ = W b(t, W),  bᵀ = −b,  W(0)ᵀW(0) = I

    Symbols:
        f elementwise with |f'| ≤ 1, W weights, c bias, b generator. W(0) = B exp(F − Fᵀ), B drawn
        and F learned.

    Args:
        size: Features of the state.
        activation: f.
    """

    turns = True
    base: Tensor

    def __init__(self, size: int, activation: OrthogonalActivation) -> None:
        super().__init__()
        self.size = size
        self.activation: OrthogonalActivation = activation
        self.register_buffer("base", random_orthogonal(size))
        self.free = nn.Parameter(torch.zeros(size, size))
        self.bias = nn.Parameter(torch.zeros(size))

    def beginning(self) -> Tensor:
        """Return W(0)."""
        eye = torch.eye(self.size, dtype=self.base.dtype, device=self.base.device)
        # A step of Newton and Schulz: B was drawn in single precision, and may be double now.
        base = self.base @ (1.5 * eye - 0.5 * self.base.mT @ self.base)
        return base @ skew_exponential(self.free - self.free.mT)

    def read(self, value: Tensor, *constants: Tensor) -> tuple[Tensor, ...]:
        """Return W."""
        return (value,)

    def move(self, x: Tensor, *parameters: Tensor) -> Tensor:
        """Return f(W x + c)."""
        product = matrix_times(parameters[0], x) + self.bias
        return product.abs() if self.activation == "abs" else ACTIVATIONS[self.activation](product)


class GatedOrthogonalField(OrthogonalField):
    """Weights rotated by gated sums of small networks of the weights.

    Equation:
        b = Σ_i a_i (C_i − C_iᵀ),  C_i = V_i tanh(U_i [W, t] + u_i)

    Symbols:
        a_i gates, U_i, u_i and V_i learned; C_i is read as a matrix.

    Args:
        size: Features of the state.
        activation: f.
        gates: How many.
        gate_size: Hidden units of each network.

    Reference:
        K. Choromanski and others. Ode to an ODE. NeurIPS, 2020.
    """

    @checked
    def __init__(
        self,
        size: PositiveInt,
        *,
        activation: OrthogonalActivation = "tanh",
        gates: PositiveInt = 4,
        gate_size: PositiveInt = 8,
    ) -> None:
        super().__init__(size, activation)
        units, entries = gates * gate_size, size * size
        self.inner = nn.Linear(entries + 1, units)
        nn.init.normal_(self.inner.weight, std=1 / math.sqrt(size))  # W has the norm √size
        # So that b has a norm of about one at the start, whatever the size.
        scale = 1 / math.sqrt(3 * units * size)
        self.outer = nn.Parameter(scale * torch.randn(gates, gate_size, entries))
        self.gates = nn.Parameter(torch.ones(gates))

    def motion(self, t: Any, value: Tensor) -> Tensor:
        """Return b."""
        flat = value.flatten(-2)
        time = torch.zeros_like(flat[..., :1]) + torch.as_tensor(t).reshape(
            -1, *(1,) * (flat.dim() > 1)
        ).to(flat)
        hidden = torch.tanh(self.inner(torch.cat((flat, time), dim=-1)))
        hidden = hidden.unflatten(-1, self.outer.shape[:2]) * self.gates.unsqueeze(-1)
        free = (hidden.flatten(-2) @ self.outer.flatten(0, 1)).unflatten(-1, (self.size, self.size))
        return free - free.mT


class IsospectralOrthogonalField(OrthogonalField):
    """Weights rotated so that WᵀQW follows a double bracket, which converges.

    Equation:
        b = [H, N],  H = WᵀQW,  so that Ḣ = [H, [H, N]]

    Symbols:
        Q and N learned and symmetric; H keeps the spectrum of Q and tr(HN) never falls.

    Args:
        size: Features of the state.
        activation: f.

    Reference:
        K. Choromanski and others. Ode to an ODE. NeurIPS, 2020.
    """

    @checked
    def __init__(self, size: PositiveInt, *, activation: OrthogonalActivation = "tanh") -> None:
        super().__init__(size, activation)
        # Two draws: with Q = N and W = I nothing would move.
        self.form = nn.Parameter(torch.randn(size, size) / math.sqrt(2 * size))
        self.target = nn.Parameter(torch.randn(size, size) / math.sqrt(2 * size))

    def motion(self, t: Any, value: Tensor) -> Tensor:
        """Return [H, N]."""
        form, target = (part + part.mT for part in (self.form, self.target))
        return bracket(value.mT @ (form / 2) @ value, target / 2)
