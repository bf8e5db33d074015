"""Fields whose parameters flow with depth, by a motion that all samples share.

Antisymmetric fields are ẋ = σ((A − Aᵀ)x + b), with A and b constant or flowing. Orthogonal fields
are those of ODEtoODE (Choromanski and others, 2020), whose weights move on the orthogonal group.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.options import PositiveFloat, PositiveInt
from undamped.kernels.skew_exponential import skew_exponential
from undamped.ode.fields.perceptron import ACTIVATIONS
from undamped.parametrizations.initial import random_orthogonal


class MovingField(nn.Module, ABC):
    """A field ẋ = f(x, θ(t)) with a motion of θ: dθ/dt = g(t, θ), or dθ/dt = θ b(t, θ), b skew.

    θ is one tensor. Its motion takes many at once, (…, n, m) at times that broadcast against
    them; `undamped.models.continuous.shared_flow.SharedFlow` solves it once per pass.
    """

    turns: ClassVar[bool]
    """Whether `motion` returns the generator b of a rotation, in place of dθ/dt."""

    @abstractmethod
    def beginning(self) -> Tensor:
        """Return θ(0)."""

    @abstractmethod
    def motion(self, t: Any, value: Tensor) -> Tensor:
        """Return dθ/dt, or b, at a time and θ."""

    def constants(self) -> tuple[Tensor, ...]:
        """Return what `read` needs besides θ and is computed from the parameters of θ.

        It is computed once per pass: a gradient that evaluates the field again has to stop there.
        """
        return ()

    @abstractmethod
    def read(self, value: Tensor, *constants: Tensor) -> tuple[Tensor, ...]:
        """Return the parameters of `move`, from θ and `constants`."""

    @abstractmethod
    def move(self, x: Tensor, *parameters: Tensor) -> Tensor:
        """Return dx/dt for samples (…, n) and the result of `read`."""

    def forward(self, t: Any, x: Tensor) -> Tensor:
        """Return dx/dt with the initial parameters."""
        return self.move(x, *self.read(self.beginning(), *self.constants()))


def matrix_times(matrix: Tensor, x: Tensor) -> Tensor:
    """Return M x for rows x (…, n), with one matrix for all or one for every sample.

    Args:
        matrix: (n, n), or (batch, n, n).
        x: (…, n), or (batch, …, n).
    """
    if matrix.dim() == 2:
        return x @ matrix.mT
    if x.dim() == 2:
        return (matrix @ x.unsqueeze(-1)).squeeze(-1)
    return x @ matrix.reshape(len(matrix), *(1,) * (x.dim() - 3), *matrix.shape[1:]).mT


def bracket(a: Tensor, b: Tensor) -> Tensor:
    """Return ab − ba."""
    return a @ b - b @ a


class AntisymmetricField(MovingField):
    """A field through a skew matrix: its Jacobian has an imaginary spectrum and no trace.

    Equation:
        ẋ = σ(S x + b),  S = A − Aᵀ

    Symbols:
        σ tanh, or the identity without b where the field is linear.

    Args:
        size: Features of the state.
        linear: Whether σ is the identity.

    Example:
        >>> AntisymmetricField(4)(torch.tensor(0.0), torch.randn(5, 4)).shape
        torch.Size([5, 4])

    Reference:
        B. Chang, M. Chen, E. Haber, E. Chi. AntisymmetricRNN: a dynamical system view on
        recurrent neural networks. ICLR, 2019.
    """

    turns = False

    @checked
    def __init__(self, size: PositiveInt, *, linear: bool = False) -> None:
        super().__init__()
        self.size, self.linear = size, linear
        # So that S has entries of variance 1/n, and a spectrum within about ±2i.
        self.weight = nn.Parameter(torch.randn(size, size) / math.sqrt(2 * size))
        self.bias = None if linear else nn.Parameter(torch.zeros(size))

    def skew(self) -> Tensor:
        """S at the beginning."""
        return self.weight - self.weight.mT

    def beginning(self) -> Tensor:
        """Return A and b side by side, (n, n + 1), or A alone."""
        if self.bias is None:
            return self.weight
        return torch.cat((self.weight, self.bias.unsqueeze(-1)), dim=-1)

    def motion(self, t: Any, value: Tensor) -> Tensor:
        """Nothing moves."""
        return torch.zeros_like(value)

    def read(self, value: Tensor, *constants: Tensor) -> tuple[Tensor, ...]:
        """Return S, and b where there is one."""
        if self.bias is None:
            return (value - value.mT,)
        weight = value[..., : self.size]
        return weight - weight.mT, value[..., self.size]

    def move(self, x: Tensor, *parameters: Tensor) -> Tensor:
        """Return σ(S x + b)."""
        product = matrix_times(parameters[0], x)
        return product if self.linear else torch.tanh(product + parameters[1])


class BoundedAntisymmetricField(AntisymmetricField):
    """An antisymmetric field whose A and b flow at a bounded rate.

    Equation:
        Ȧ = ρ/√n tanh(U A V + C),  ḃ = ρ/√n tanh(R b + c)

    Symbols:
        U, V, C, R, c learned, ρ rate: no entry of A or b changes by more than ρt/√n.

    Args:
        size: Features of the state.
        linear: Whether σ is the identity.
        rate: ρ.
    """

    @checked
    def __init__(
        self, size: PositiveInt, *, linear: bool = False, rate: PositiveFloat = 1.0
    ) -> None:
        super().__init__(size, linear=linear)
        self.rate = rate

        def random_matrix() -> nn.Parameter:
            return nn.Parameter(torch.randn(size, size) / math.sqrt(size))

        self.left, self.right, self.shift = random_matrix(), random_matrix(), random_matrix()
        self.bias_weight = None if linear else random_matrix()
        self.bias_shift = None if linear else nn.Parameter(torch.randn(size) / math.sqrt(size))

    def motion(self, t: Any, value: Tensor) -> Tensor:
        """Return Ȧ and ḃ side by side."""
        weight = value[..., : self.size]
        change = torch.tanh(self.left @ weight @ self.right + self.shift)
        if self.bias_weight is not None and self.bias_shift is not None:
            bias = value[..., self.size] @ self.bias_weight.mT + self.bias_shift
            change = torch.cat((change, torch.tanh(bias).unsqueeze(-1)), dim=-1)
        return self.rate / math.sqrt(self.size) * change


class IsospectralAntisymmetricField(AntisymmetricField):
    """An antisymmetric field whose S rotates with depth and has a constant spectrum.

    Equation:
        Ṡ = [S, [S, N]],  ḃ = −[S, N] b;  solved as S = QᵀS₀Q, b = Qᵀb₀, Q̇ = Q [S, N], Q(0) = I

    Symbols:
        N learned and skew, [·, ·] commutator, Q orthogonal.

    Args:
        size: Features of the state.
        linear: Whether σ is the identity.
    """

    turns = True

    @checked
    def __init__(self, size: PositiveInt, *, linear: bool = False) -> None:
        super().__init__(size, linear=linear)
        self.target = nn.Parameter(torch.randn(size, size) / math.sqrt(2 * size))

    def beginning(self) -> Tensor:
        """Return Q(0) = I."""
        return torch.eye(self.size, dtype=self.weight.dtype, device=self.weight.device)

    def motion(self, t: Any, value: Tensor) -> Tensor:
        """Return [S, N]."""
        skew = value.mT @ self.skew() @ value
        return bracket(skew, self.target - self.target.mT)

    def constants(self) -> tuple[Tensor, ...]:
        return (self.skew(),)

    def read(self, value: Tensor, *constants: Tensor) -> tuple[Tensor, ...]:
        """Return QᵀS₀Q, and Qᵀb₀ where there is a b."""
        skew = value.mT @ constants[0] @ value
        skew = (skew - skew.mT) / 2  # what rounding left
        return (skew,) if self.bias is None else (skew, self.bias @ value)


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
        eye = torch.eye(self.size, dtype=self.base.dtype, device=self.base.device)
        # A step of Newton and Schulz: B was drawn in single precision, and may be double now.
        base = self.base @ (1.5 * eye - 0.5 * self.base.mT @ self.base)
        return base @ skew_exponential(self.free - self.free.mT)

    def read(self, value: Tensor, *constants: Tensor) -> tuple[Tensor, ...]:
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
