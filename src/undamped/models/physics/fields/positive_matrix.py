"""Matrices by a perceptron: positive ones for masses and friction, and those of inputs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from undamped.models.physics.fields.ports import times
from undamped.models.physics.fields.smooth_perceptron import Linearised, SmoothPerceptron


class PositiveMatrix(nn.Module):
    """A symmetric matrix that is positive definite for any weights.

    Equation:
        A(x) = L(x) L(x)ᵀ + ε I, L lower triangular

    Symbols:
        x features of positions, ε smallest eigenvalue.

    Args:
        input_size: Features of x.
        size: Rows and columns of A.
        hidden_size: Width of the perceptron.
        smallest: ε; 0 for a matrix that may be singular, such as friction.
        layers: Hidden layers and activation, as for `SmoothPerceptron`.

    Example:
        >>> matrix = PositiveMatrix(3, 2)
        >>> matrix(torch.randn(5, 3)).shape
        torch.Size([5, 2, 2])
    """

    def __init__(
        self,
        input_size: int,
        size: int,
        hidden_size: int = 64,
        *,
        smallest: float = 0.1,
        **layers: Any,
    ) -> None:
        super().__init__()
        self.size, self.smallest = size, smallest
        rows, columns = torch.tril_indices(size, size)
        self.triangle_index = (rows.tolist(), columns.tolist())
        self.net = SmoothPerceptron(input_size, len(rows), hidden_size, **layers)
        with (
            torch.no_grad()
        ):  # near the identity, so that training starts from a well-conditioned system
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
    """A positive matrix at a point: its value, and products of its derivatives.

    Args:
        owner: The matrix.
        at: Its perceptron at that point.
    """

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
        return torch.cholesky_solve(
            r.unsqueeze(-1), torch.linalg.cholesky_ex(self.value).L
        ).squeeze(-1)

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
