"""Perceptrons with closed derivatives: slopes are written out, so that no graph is needed for them.

A field made of the gradient of a network is evaluated thousands of times in a solve. Written out,
the gradient is a few more products, works under `no_grad` and in inference mode, and training
back-propagates through it once, where a gradient of a gradient would build the graph of a graph.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.options import PositiveInt

SmoothActivation = Literal["tanh", "softplus", "sigmoid", "silu"]
"""Activations with two derivatives; an energy of straight pieces would have forces that jump."""


class Curve(NamedTuple):
    """An activation; its slope, from input and value; its second derivative, from slope too."""

    value: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor, Tensor], Tensor]
    bend: Callable[[Tensor, Tensor, Tensor], Tensor]


def _silu_slope(x: Tensor, y: Tensor) -> Tensor:
    gate = torch.sigmoid(x)
    return gate + y * (1 - gate)


def _silu_bend(x: Tensor, y: Tensor, slope: Tensor) -> Tensor:
    gate = torch.sigmoid(x)
    return gate * (1 - gate) * (2 + x * (1 - 2 * gate))


CURVES: dict[str, Curve] = {
    "tanh": Curve(torch.tanh, lambda x, y: 1 - y * y, lambda x, y, s: -2 * y * s),
    "softplus": Curve(
        nn.functional.softplus, lambda x, y: torch.sigmoid(x), lambda x, y, s: s * (1 - s)
    ),
    "sigmoid": Curve(torch.sigmoid, lambda x, y: y * (1 - y), lambda x, y, s: s * (1 - 2 * y)),
    "silu": Curve(nn.functional.silu, _silu_slope, _silu_bend),
}


class SmoothPerceptron(nn.Module):
    """A perceptron that also gives its value's derivatives, forward and backward.

    Equation:
        y = W_n σ(W_{n−1} … σ(W₁ x + b₁) …) + b_n

    Args:
        input_size: Features in.
        output_size: Features out.
        hidden_size: Width of the hidden layers.
        hidden_layers: Their number.
        activation: σ.
        orthogonal: Whether weights start orthogonal; otherwise as PyTorch's linear layers do.
        readout_bias: Whether the last layer has a bias; an energy needs none.

    Example:
        >>> net = SmoothPerceptron(3, 1)
        >>> at = net.linearise(torch.randn(5, 3))
        >>> at.value.shape, at.pull(torch.ones(5, 1)).shape
        (torch.Size([5, 1]), torch.Size([5, 3]))
    """

    @checked
    def __init__(
        self,
        input_size: PositiveInt,
        output_size: PositiveInt,
        hidden_size: PositiveInt = 64,
        *,
        hidden_layers: PositiveInt = 2,
        activation: SmoothActivation = "tanh",
        orthogonal: bool = False,
        readout_bias: bool = True,
    ) -> None:
        super().__init__()
        widths = [input_size] + [hidden_size] * hidden_layers
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(widths))
        self.readout = nn.Linear(hidden_size, output_size, bias=readout_bias)
        self.activation = activation
        if orthogonal:
            for layer in (*self.hidden, self.readout):
                nn.init.orthogonal_(layer.weight)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        """Return (…, output)."""
        curve = CURVES[self.activation].value
        for layer in self.hidden:
            x = curve(layer(x))
        return self.readout(x)

    def linearise(self, x: Tensor) -> Linearised:
        """Return value and slopes at x, from one forward pass."""
        curve, slopes = CURVES[self.activation], []
        for layer in self.hidden:
            before = layer(x)
            x = curve.value(before)
            slopes.append(curve.slope(before, x))
        return Linearised(self, slopes, self.readout(x))


class Linearised:
    """A perceptron at a place: its value, and products with its Jacobian D = ∂y/∂x.

    Args:
        net: The perceptron.
        slopes: σ' of every hidden layer.
        value: y.
    """

    def __init__(self, net: SmoothPerceptron, slopes: Sequence[Tensor], value: Tensor) -> None:
        self._weights = [layer.weight for layer in net.hidden]
        self._readout = net.readout.weight
        self.slopes, self.value = slopes, value

    def pull(self, cotangent: Tensor) -> Tensor:
        """Return cotangent · D, (…, input), for a cotangent (…, output)."""
        return self._pull_hidden(cotangent @ self._readout)

    def gradient(self) -> Tensor:
        """Return the gradient of a single output, (…, input): `pull` of ones, one product less."""
        assert self._readout.shape[0] == 1, "several outputs have several gradients"
        return self._pull_hidden(self._readout[0])

    def _pull_hidden(self, pulled: Tensor) -> Tensor:
        for weight, slope in zip(reversed(self._weights), reversed(self.slopes), strict=True):
            pulled = (pulled * slope) @ weight  # type: ignore[operator]
        return pulled

    def push(self, tangent: Tensor) -> Tensor:
        """Return D · tangent, (…, output), for a tangent (…, input)."""
        for weight, slope in zip(self._weights, self.slopes, strict=True):
            tangent = (tangent @ weight.T) * slope  # type: ignore[union-attr]
        return tangent @ self._readout.T
