"""Fields of perceptrons: plain, through a bottleneck, gated by time, and around rotations."""

from __future__ import annotations

import itertools
import math
from typing import Any, Literal

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.options import PositiveFloat, PositiveInt

Activation = Literal["tanh", "softplus", "relu", "elu"]
ACTIVATIONS = {
    "tanh": torch.tanh,
    "softplus": nn.functional.softplus,
    "relu": torch.relu,
    "elu": nn.functional.elu,
}


def with_time(t: Any, y: Tensor) -> Tensor:
    """Append time as one more feature to (…, features)."""
    column = y[..., :1]
    return torch.cat((y, torch.zeros_like(column) + t), dim=-1)


class PerceptronField(nn.Module):
    """A perceptron with one or more hidden layers as dy/dt.

    Equation:
        f(t, y) = θ₂ σ(θ₁ [y, t])

    Args:
        size: Features of the state.
        hidden_size: Width of the hidden layers.
        input_size: Features the field sees; the state's own number by default.
        hidden_layers: Number of hidden layers.
        activation: σ.
        time: Whether time is an input.

    Example:
        >>> field = PerceptronField(2, 32)
        >>> field(torch.tensor(0.0), torch.randn(5, 2)).shape
        torch.Size([5, 2])
    """

    @checked
    def __init__(
        self,
        size: PositiveInt,
        hidden_size: PositiveInt = 32,
        *,
        input_size: PositiveInt | None = None,
        hidden_layers: PositiveInt = 1,
        activation: Activation = "tanh",
        time: bool = True,
    ) -> None:
        super().__init__()
        self.size = size
        self.time = time
        first = (size if input_size is None else input_size) + time
        widths = [first] + [hidden_size] * hidden_layers
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(widths))
        self.readout = nn.Linear(hidden_size, size)
        self.activation = activation

    def forward(self, t: Any, y: Tensor) -> Tensor:
        """Return dy/dt, (…, size)."""
        y = with_time(t, y) if self.time else y
        act = ACTIVATIONS[self.activation]
        for layer in self.hidden:
            y = act(layer(y))
        return self.readout(y)


class BottleneckField(nn.Module):
    """A field through few features, for the bottleneck trace.

    Equation:
        f = g ∘ h, h: ℝ^D → ℝ^H with H < D

    Args:
        size: D.
        bottleneck_size: H.
        hidden_size: Width of the hidden layers on both sides.
    """

    context_size = 0

    @checked
    def __init__(
        self, size: PositiveInt, bottleneck_size: PositiveInt, hidden_size: PositiveInt = 64
    ) -> None:
        super().__init__()
        self.bottleneck_size = bottleneck_size
        self.inner = nn.Sequential(
            nn.Linear(size + 1, hidden_size), nn.Tanh(), nn.Linear(hidden_size, bottleneck_size)
        )
        self.outer = nn.Sequential(
            nn.Tanh(),
            nn.Linear(bottleneck_size, hidden_size),
            nn.Tanh(),
            nn.Linear(hidden_size, size),
        )

    def narrow(self, t: Any, z: Tensor) -> Tensor:
        """Return h(t, z)."""
        return self.inner(with_time(t, z))

    def widen(self, t: Any, few: Tensor) -> Tensor:
        """Return g(h)."""
        return self.outer(few)

    def forward(self, t: Any, z: Tensor) -> Tensor:
        """Return dz/dt."""
        return self.widen(t, self.narrow(t, z))


class ConcatSquashField(nn.Module):
    """FFJORD's field: layers gated and shifted by time.

    Equation:
        layer(t, x) = (W x + b) ⊙ σ̂(g t + c) + d t

    Symbols:
        g, c gate and d shift by time; tanh between layers.

    Args:
        size: Features of the state.
        hidden_size: Width of the hidden layers.
        hidden_layers: Their number.
        context_size: Features of a condition that is concatenated to the state.
        detail: Factor on the first layer's weights at the start. A field drawn with factor 1 is
            nearly linear over the data and takes thousands of steps to find detail such as rings
            inside rings; 3 to 6 starts with features of about their size.

    Reference:
        W. Grathwohl and others. FFJORD: free-form continuous dynamics for scalable reversible
        generative models. ICLR, 2019.
    """

    @checked
    def __init__(
        self,
        size: PositiveInt,
        hidden_size: PositiveInt = 64,
        *,
        hidden_layers: PositiveInt = 2,
        context_size: int = 0,
        detail: PositiveFloat = 1.0,
    ) -> None:
        super().__init__()
        self.context_size = context_size
        widths = [size + context_size] + [hidden_size] * hidden_layers + [size]
        pairs = list(itertools.pairwise(widths))
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairs)
        with torch.no_grad():
            for parameter in self.layers[0].parameters():
                parameter.mul_(detail)
        self.gates = nn.ModuleList(nn.Linear(1, b) for _, b in pairs)
        self.shifts = nn.ModuleList(nn.Linear(1, b, bias=False) for _, b in pairs)

    def forward(self, t: Any, x: Tensor) -> Tensor:
        """Return dx/dt."""
        time = torch.as_tensor(t, dtype=x.dtype, device=x.device)
        time = time.reshape(-1, *(1,) * (x.dim() - 1))  # one for all, or one a sample
        last = len(self.layers) - 1
        rows = zip(self.layers, self.gates, self.shifts, strict=True)
        for k, (layer, gate, shift) in enumerate(rows):
            x = layer(x) * torch.sigmoid(gate(time)) + shift(time)
            x = torch.tanh(x) if k < last else x
        return x


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
