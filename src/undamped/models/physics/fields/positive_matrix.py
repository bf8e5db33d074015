"""Positive matrices by a perceptron: masses, their inverses and friction, with closed slopes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from undamped.models.physics.fields.ports import times
from undamped.models.physics.fields.smooth_perceptron import (
    Linearised,
    SmoothActivation,
    SmoothPerceptron,
)


class PositiveMatrix(nn.Module):
    """A symmetric matrix that is positive whatever the weights.

    Equation:
        A(x) = L(x) L(x)ᵀ + ε I, L lower triangular

    Symbols:
        x what the perceptron sees of positions, ε smallest eigenvalue.

    Args:
        input_size: Features of x.
        size: Rows and columns of A.
        hidden_size: Width of the perceptron.
        hidden_layers: Its hidden layers.
        activation: Its activation.
        smallest: ε; 0 for a matrix that may be singular, as friction may.

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
        hidden_layers: int = 2,
        activation: SmoothActivation = "tanh",
        smallest: float = 0.1,
    ) -> None:
        super().__init__()
        self.size, self.smallest = size, smallest
        rows, columns = torch.tril_indices(size, size)
        self.places = (rows.tolist(), columns.tolist())
        self.net = SmoothPerceptron(
            input_size, len(rows), hidden_size, hidden_layers=hidden_layers, activation=activation
        )
        with torch.no_grad():  # near the identity, so that systems start neither stiff nor loose
            on_diagonal = (rows == columns).to(self.net.readout.weight.dtype)
            self.net.readout.bias.copy_(on_diagonal)

    def forward(self, x: Tensor) -> Tensor:
        """Return A, (…, size, size)."""
        return self.linearise(x).value

    def linearise(self, x: Tensor) -> LinearisedMatrix:
        """Return A at x, and what it takes to differentiate it."""
        return LinearisedMatrix(self, self.net.linearise(x))

    def triangle(self, entries: Tensor) -> Tensor:
        """Return entries (…, size (size + 1) / 2) as a lower triangular matrix."""
        lower = entries.new_zeros(*entries.shape[:-1], self.size, self.size)
        lower[..., self.places[0], self.places[1]] = entries
        return lower

    def entries(self, matrix: Tensor) -> Tensor:
        """Return the entries of a matrix on and below its diagonal."""
        return matrix[..., self.places[0], self.places[1]]


class LinearisedMatrix:
    """A positive matrix at a place: its value, and how it changes.

    Args:
        owner: The matrix.
        at: Its perceptron there.
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
        """Return A⁻¹ r, (…, size); A is positive, so it has an inverse if ε > 0."""
        if self.owner.size == 1:
            return r / self.value.squeeze(-1)
        return torch.cholesky_solve(
            r.unsqueeze(-1), torch.linalg.cholesky_ex(self.value).L
        ).squeeze(-1)

    def half_square_slope(self, v: Tensor) -> Tensor:
        """Return ∂(vᵀ A v / 2)/∂x for a fixed v, (…, input): one backward pass."""
        along = times(self.lower.mT, v)
        return self.at.pull(self.owner.entries(v.unsqueeze(-1) * along.unsqueeze(-2)))

    def rate(self, tangent: Tensor) -> Tensor:
        """Return dA/dt where x changes as a tangent says, (…, size, size): one forward pass."""
        turned = self.owner.triangle(self.at.push(tangent)) @ self.lower.mT
        return turned + turned.mT
