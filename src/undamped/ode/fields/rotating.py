"""A field that is initialized as rotations, so that it oscillates from the start."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.options import PositiveFloat, PositiveInt
from undamped.ode.fields.perceptron import PerceptronField

INITIAL_SCALE = 0.1
"""Scale of the perceptron's initial output, which disturbs rotations only a little."""


class RotatingField(nn.Module):
    """The sum of linear rotations and a perceptron.

    Equation:
        f(y) = Ω y + θ₂ tanh(θ₁ y)

    Symbols:
        Ω a matrix that begins as rotations of pairs of coordinates, at frequencies from the
        slowest to the fastest, evenly in their logarithm; all of it is learned.

    A perceptron has to learn every oscillation on a plateau of the loss, where the mean of a wave
    is the best prediction; a field that begins with some frequencies of each scale only has to
    select and adjust them.

    Args:
        size: Features of the state; with an odd number the last one does not rotate.
        hidden_size: Width of the hidden layers.
        hidden_layers: Their number.
        slowest: The slowest frequency, in radians per unit of time.
        fastest: The fastest.

    Example:
        >>> field = RotatingField(4, 32, slowest=0.1, fastest=2.0)
        >>> field(torch.tensor(0.0), torch.randn(5, 4)).shape
        torch.Size([5, 4])
    """

    @checked
    def __init__(
        self,
        size: PositiveInt,
        hidden_size: PositiveInt = 32,
        *,
        hidden_layers: PositiveInt = 1,
        slowest: PositiveFloat = 0.1,
        fastest: PositiveFloat = 1.0,
    ) -> None:
        super().__init__()
        self.size = size
        self.perceptron = PerceptronField(
            size, hidden_size, hidden_layers=hidden_layers, time=False
        )
        self.turning = nn.Parameter(rotations(size, slowest, fastest))
        with torch.no_grad():
            self.perceptron.readout.weight.mul_(INITIAL_SCALE)
            self.perceptron.readout.bias.mul_(INITIAL_SCALE)

    def forward(self, t: Any, y: Tensor) -> Tensor:
        """Return dy/dt, (…, size)."""
        return self.perceptron(t, y) + y @ self.turning.mT


def rotations(size: int, slowest: float, fastest: float) -> Tensor:
    """Return a skew matrix (size, size) that rotates coordinates k and k + size//2.

    Args:
        size: Its rows.
        slowest: The slowest frequency.
        fastest: The fastest.
    """
    pairs = size // 2
    frequency = torch.exp(torch.linspace(math.log(slowest), math.log(fastest), pairs))
    matrix = torch.zeros(size, size)
    index = torch.arange(pairs)
    matrix[index, index + pairs] = -frequency
    matrix[index + pairs, index] = frequency
    return matrix
