"""Perceptrons, and matrices by a perceptron, with derivatives in closed form.

A field that is the gradient of a network is evaluated thousands of times in a solve. In closed form
the gradient costs a few more products, works under `no_grad` and in inference mode, and training
backpropagates through it once, where autograd would differentiate a graph of a graph.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.options import PositiveInt
from undamped.models.physics.fields.ports import times

SmoothActivation = Literal["tanh", "softplus", "sigmoid", "silu"]
"""Activations with two derivatives; a piecewise linear energy would have forces that jump."""


class Curve(NamedTuple):
    """An activation; its slope, of input and value; its second derivative, also of the slope."""

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
    """A perceptron with products of its Jacobian in closed form, forward and backward.

    Equation:
        y = W_n σ(W_{n−1} … σ(W₁ x + b₁) …) + b_n

    Args:
        input_size: Features in.
        output_size: Features out.
        hidden_size: Width of the hidden layers.
        hidden_layers: Their number.
        activation: σ.
        orthogonal: Whether weights are initialised orthogonal; otherwise as in `torch.nn.Linear`.
        readout_bias: Whether the last layer has a bias; an energy needs none.

    Example:
        >>> net = SmoothPerceptron(3, 1)
        >>> at = net.linearise(torch.randn(5, 3))
        >>> at.value.shape, at.vjp(torch.ones(5, 1)).shape
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
        """Return value and slopes at x from one forward pass."""
        curve, slopes = CURVES[self.activation], []
        for layer in self.hidden:
            before = layer(x)
            x = curve.value(before)
            slopes.append(curve.slope(before, x))
        return Linearised(self, slopes, self.readout(x))


class Linearised:
    """A perceptron at a point: its value, and products with its Jacobian D = ∂y/∂x.

    Args:
        net: The perceptron.
        slopes: σ' of every hidden layer.
        value: y.
    """

    def __init__(self, net: SmoothPerceptron, slopes: Sequence[Tensor], value: Tensor) -> None:
        self._weights = [layer.weight for layer in net.hidden]
        self._readout = net.readout.weight
        self.slopes, self.value = slopes, value

    def vjp(self, cotangent: Tensor) -> Tensor:
        """Return cotangent · D, (…, input), for a cotangent (…, output)."""
        return self._hidden_vjp(cotangent @ self._readout)

    def gradient(self) -> Tensor:
        """Return the gradient of a single output, (…, input): `vjp` of ones, faster."""
        assert self._readout.shape[0] == 1, "several outputs have several gradients"
        return self._hidden_vjp(self._readout[0])

    def _hidden_vjp(self, cotangent: Tensor) -> Tensor:
        for weight, slope in zip(reversed(self._weights), reversed(self.slopes), strict=True):
            cotangent = (cotangent * slope) @ weight  # type: ignore[operator]
        return cotangent

    def jvp(self, tangent: Tensor) -> Tensor:
        """Return D · tangent, (…, output), for a tangent (…, input)."""
        for weight, slope in zip(self._weights, self.slopes, strict=True):
            tangent = (tangent @ weight.T) * slope  # type: ignore[union-attr]
        return tangent @ self._readout.T


class Curvature:
    """A perceptron with one output at a point: value, gradient, second derivatives.

    The input z of a layer is linear in the layer before, so that only activations have curvature:
    the Hessian of y is a sum over layers of Jᵀ diag(c) J, with J the Jacobian of z and c the
    curvature of the layer times the gradient of y behind it. Tangents are propagated forward once,
    and no tangent needs a backward pass.

    Equation:
        ∂²y/∂a∂b = Σ_k (∂z_k/∂a)ᵀ diag(σ''(z_k) ∘ ∂y/∂h_k) ∂z_k/∂b

    Symbols:
        z_k input of hidden layer k, h_k = σ(z_k), a and b directions.

    Args:
        net: The perceptron.
        x: The point, (…, input).

    Example:
        >>> at = Curvature(SmoothPerceptron(3, 1), torch.randn(5, 3))
        >>> at.value.shape, at.gradient.shape, at.along(at.enter(torch.eye(3))).shape
        (torch.Size([5]), torch.Size([5, 3]), torch.Size([5, 3, 3]))
    """

    def __init__(self, net: SmoothPerceptron, x: Tensor) -> None:
        curve = CURVES[net.activation]
        self._weights = [layer.weight for layer in net.hidden]
        self._slopes, bends = [], []
        for layer in net.hidden:
            z = layer(x)
            x = curve.value(z)
            self._slopes.append(curve.slope(z, x))
            bends.append(curve.bend(z, x, self._slopes[-1]))
        self.value = net.readout(x).squeeze(-1)
        """y, (…,)."""
        back: Tensor = net.readout.weight[0]
        self._curvatures: list[Tensor] = []  # from the last layer to the first
        for weight, slope, bend in zip(
            reversed(self._weights), reversed(self._slopes), reversed(bends), strict=True
        ):
            self._curvatures.append(bend * back)
            back = (back * slope) @ weight  # type: ignore[operator]
        self.gradient = back
        """∂y/∂x, (…, input)."""

    def enter(self, tangents: Tensor, features: slice = slice(None)) -> Tensor:
        """Return the change of the first layer's input along tangents, (…, hidden).

        Args:
            tangents: Directions (…, features) at the point.
            features: Which features the tangents have; all by default.
        """
        return tangents @ self._weights[0][:, features].T  # type: ignore[index]

    def along(self, tangents: Tensor) -> Tensor:
        """Return second derivatives along pairs of directions, (…, k, k), given by `enter`."""
        total: Tensor | None = None
        last = len(self._slopes) - 1
        for layer, (slope, curvature) in enumerate(
            zip(self._slopes, reversed(self._curvatures), strict=True)
        ):
            term = (tangents * curvature.unsqueeze(-2)) @ tangents.mT
            total = term if total is None else total + term
            if layer < last:
                tangents = (tangents * slope.unsqueeze(-2)) @ self._weights[layer + 1].T  # type: ignore[union-attr]
        assert total is not None
        return total


class PositiveMatrix(nn.Module):
    """A symmetric matrix that is positive definite for any weights.

    Equation:
        A(x) = L(x) L(x)ᵀ + ε I, L lower triangular

    Symbols:
        x features of positions, ε smallest eigenvalue.

    Args:
        input_size: Features of x.
        size: Rows and columns of A.
        smallest: ε; 0 for a matrix that may be singular, such as friction.
        layers: Sizes and activation, as for `SmoothPerceptron`.

    Example:
        >>> matrix = PositiveMatrix(3, 2)
        >>> matrix(torch.randn(5, 3)).shape
        torch.Size([5, 2, 2])
    """

    def __init__(self, input_size: int, size: int, *, smallest: float = 0.1, **layers: Any) -> None:
        super().__init__()
        self.size, self.smallest = size, smallest
        rows, columns = torch.tril_indices(size, size)
        self.triangle_index = (rows.tolist(), columns.tolist())
        self.net = SmoothPerceptron(input_size, len(rows), **layers)
        with torch.no_grad():  # near the identity, for a well-conditioned initial system
            on_diagonal = (rows == columns).to(self.net.readout.weight.dtype)
            self.net.readout.bias.copy_(on_diagonal)

    def forward(self, x: Tensor) -> Tensor:
        """Return A, (…, size, size)."""
        return self.linearise(x).value

    def linearise(self, x: Tensor) -> LinearisedMatrix:
        """Return A at x with products of its derivatives."""
        return LinearisedMatrix(self, self.net.linearise(x))

    def triangle(self, entries: Tensor) -> Tensor:
        """Return entries (…, size (size + 1) / 2) as a lower triangular matrix."""
        lower = entries.new_zeros(*entries.shape[:-1], self.size, self.size)
        lower[..., *self.triangle_index] = entries
        return lower

    def entries(self, matrix: Tensor) -> Tensor:
        """Return the entries of a matrix on and below its diagonal."""
        return matrix[..., *self.triangle_index]


class LinearisedMatrix:
    """A positive matrix and its perceptron at a point, with products of its derivatives."""

    def __init__(self, owner: PositiveMatrix, at: Linearised) -> None:
        self.owner, self.at = owner, at
        self.lower = owner.triangle(at.value)

    @property
    def value(self) -> Tensor:
        """A, (…, size, size)."""
        square = self.lower @ self.lower.mT
        if not self.owner.smallest:
            return square
        eye = torch.eye(self.owner.size, dtype=square.dtype, device=square.device)
        return square + self.owner.smallest * eye

    def product(self, v: Tensor) -> Tensor:
        """Return A v, (…, size)."""
        return times(self.lower, times(self.lower.mT, v)) + self.owner.smallest * v

    def solve(self, r: Tensor) -> Tensor:
        """Return A⁻¹ r, (…, size); A has an inverse if ε > 0."""
        if self.owner.size == 1:
            return r / self.value.squeeze(-1)
        factor = torch.linalg.cholesky_ex(self.value).L
        return torch.cholesky_solve(r.unsqueeze(-1), factor).squeeze(-1)

    def half_square_slope(self, v: Tensor) -> Tensor:
        """Return ∂(vᵀ A v / 2)/∂x for a fixed v, (…, input): one backward pass."""
        along = times(self.lower.mT, v)
        return self.at.vjp(self.owner.entries(v.unsqueeze(-1) * along.unsqueeze(-2)))

    def rate(self, tangent: Tensor) -> Tensor:
        """Return the derivative of A along a tangent of x, (…, size, size): one forward pass."""
        half = self.owner.triangle(self.at.jvp(tangent)) @ self.lower.mT
        return half + half.mT


class LearnedInput(nn.Module):
    """g(q), the input matrix of a system, by a perceptron.

    Args:
        features: Features of positions.
        dof: Rows.
        inputs: Columns.
        layers: Sizes and activation, as for `SmoothPerceptron`.
    """

    def __init__(self, features: int, dof: int, inputs: int, **layers: Any) -> None:
        super().__init__()
        self.shape = (dof, inputs)
        self.net = SmoothPerceptron(features, dof * inputs, **layers)

    def forward(self, x: Tensor) -> Tensor:
        """Return g, (…, dof, inputs)."""
        return self.net(x).unflatten(-1, self.shape)
