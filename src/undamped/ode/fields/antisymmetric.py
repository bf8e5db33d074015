"""Antisymmetric fields: ẋ = σ((A − Aᵀ)x + b), with A and b constant or flowing with depth."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.options import PositiveFloat, PositiveInt
from undamped.ode.fields.moving import MovingField, matrix_times


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
        """Return S₀."""
        return (self.skew(),)

    def read(self, value: Tensor, *constants: Tensor) -> tuple[Tensor, ...]:
        """Return QᵀS₀Q, and Qᵀb₀ where there is a b."""
        skew = value.mT @ constants[0] @ value
        skew = (skew - skew.mT) / 2  # what rounding left
        return (skew,) if self.bias is None else (skew, self.bias @ value)
