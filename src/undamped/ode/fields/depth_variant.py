"""Depth-variant neural ODEs (Massaroli and others, 2020): parameters that change with depth."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.options import PositiveFloat, PositiveInt
from undamped.ode.fields.perceptron import ACTIVATIONS, Activation

Basis = Literal["fourier", "chebyshev", "polynomial", "piecewise"]


def basis_values(basis: Basis, terms: int, s: Tensor) -> Tensor:
    """Return ψ_1(s), …, ψ_terms(s) for s in [0, 1], along a new last dimension.

    All four are orthogonal on [0, 1] (Chebyshev with its own weight): 1, cos 2πs, sin 2πs, …;
    Chebyshev and Legendre polynomials of 2s − 1; indicators of equal intervals.

    Args:
        basis: Which functions.
        terms: How many.
        s: Where.
    """
    if basis == "piecewise":
        index = (s * terms).floor().clamp(0, terms - 1)
        return torch.stack([(index == k).to(s.dtype) for k in range(terms)], dim=-1)
    if basis == "fourier":
        values = [torch.ones_like(s)]
        for k in range(1, terms):
            wave = torch.cos if k % 2 else torch.sin
            values.append(wave(2 * math.pi * ((k + 1) // 2) * s))
        return torch.stack(values, dim=-1)
    x = 2 * s - 1
    values = [torch.ones_like(x), x]
    for k in range(1, terms - 1):
        if basis == "chebyshev":
            values.append(2 * x * values[k] - values[k - 1])
        else:
            values.append(((2 * k + 1) * x * values[k] - k * values[k - 1]) / (k + 1))
    return torch.stack(values[:terms], dim=-1)


class GalerkinLinear(nn.Module):
    """A linear layer whose weights are a sum of basis functions of depth.

    Equation:
        W(s) = Σ_j A_j ψ_j(s),  b(s) = Σ_j a_j ψ_j(s)

    Symbols:
        s depth as a fraction of the total, ψ_j basis, A_j and a_j learned coefficients.

    Args:
        input_size: Features in.
        output_size: Features out.
        basis: The ψ_j.
        terms: How many.
        depth: Time at which s = 1.

    Reference:
        S. Massaroli and others. Dissecting neural ODEs. NeurIPS, 2020.
    """

    @checked
    def __init__(
        self,
        input_size: PositiveInt,
        output_size: PositiveInt,
        *,
        basis: Basis = "fourier",
        terms: PositiveInt = 5,
        depth: PositiveFloat = 1.0,
    ) -> None:
        super().__init__()
        self.basis: Basis = basis
        self.terms, self.depth = terms, depth
        bound = 1 / math.sqrt(input_size)
        shape = (terms, output_size, input_size)
        self.weight = nn.Parameter(torch.empty(shape).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(terms, output_size).uniform_(-bound, bound))
        with torch.no_grad():  # at first, much like a layer that does not change
            if basis != "piecewise":
                self.weight[1:] *= 0.1
                self.bias[1:] *= 0.1

    def forward(self, t: Any, x: Tensor) -> Tensor:
        """Apply the layer as it is at time t."""
        s = torch.as_tensor(t, dtype=x.dtype, device=x.device).reshape(-1) / self.depth
        values = basis_values(self.basis, self.terms, s)  # (times, terms)
        if len(values) > 1:  # one depth per sample
            out = torch.einsum("bj,joi,b...i->b...o", values, self.weight, x)
            between = (1,) * (x.dim() - 2)
            return out + (values @ self.bias).reshape(len(values), *between, -1)
        weight = torch.einsum("j,joi->oi", values[0], self.weight)
        return nn.functional.linear(x, weight, values[0] @ self.bias)


class GalerkinField(nn.Module):
    """A perceptron of Galerkin layers: depth enters through the parameters.

    Equation:
        f(s, y) = W₂(s) σ(W₁(s) y + b₁(s)) + b₂(s)

    Symbols:
        s depth, W and b as in `GalerkinLinear`, σ activation.

    Args:
        size: Features of the state.
        hidden_size: Width of the hidden layer.
        basis: Basis of the parameters.
        terms: Number of basis functions.
        depth: Time at which the basis ends.
        activation: σ.

    Example:
        >>> GalerkinField(2, 16, basis="chebyshev", terms=4)(torch.tensor(0.3), torch.randn(5, 2))

    Reference:
        S. Massaroli and others. Dissecting neural ODEs. NeurIPS, 2020.
    """

    @checked
    def __init__(
        self,
        size: PositiveInt,
        hidden_size: PositiveInt = 32,
        *,
        basis: Basis = "fourier",
        terms: PositiveInt = 5,
        depth: PositiveFloat = 1.0,
        activation: Activation = "tanh",
    ) -> None:
        super().__init__()
        self.inner = GalerkinLinear(size, hidden_size, basis=basis, terms=terms, depth=depth)
        self.outer = GalerkinLinear(hidden_size, size, basis=basis, terms=terms, depth=depth)
        self.activation = activation

    def forward(self, t: Any, y: Tensor) -> Tensor:
        """Return dy/dt."""
        return self.outer(t, ACTIVATIONS[self.activation](self.inner(t, y)))
