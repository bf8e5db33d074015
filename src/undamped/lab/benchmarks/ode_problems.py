"""The fields that solvers are timed on, and ways to solve and differentiate them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from undamped.ode import solve
from undamped.ode.methods.explicit.methods import Dopri5

TOLERANCE = 1e-5
SMALL_TIMES = [0.5 * k for k in range(9)]
"""Outputs of the small field. It contracts: an adjoint without intermediate outputs is refused."""


class SmallField(nn.Module):
    """8 → 64 → 8 with tanh."""

    def __init__(self) -> None:
        super().__init__()
        layers = nn.Linear(8, 64), nn.Linear(64, 8)
        for layer in layers:
            nn.init.normal_(layer.weight, std=0.5)
        self.net = nn.Sequential(layers[0], nn.Tanh(), layers[1])

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        """Return dy/dt."""
        return self.net(y)


class ConvolutionalField(nn.Module):
    """Two 3 × 3 convolutions on 16 channels, with tanh between."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(16, 16, 3, padding=1), nn.Tanh(), nn.Conv2d(16, 16, 3, padding=1)
        )

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        """Return dy/dt."""
        return self.net(y)


@dataclass(frozen=True)
class Problem:
    """An initial value problem, and ways to solve and differentiate it.

    Args:
        model: The field.
        start: The initial state.
        times: Output times.
    """

    model: nn.Module
    start: Tensor
    times: list[float]

    def solve(self, start: Tensor, **options: Any) -> Any:
        """Solve it with our dopri5."""
        return solve(self.model, start, self.times, rtol=TOLERANCE, atol=TOLERANCE, **options)

    def torchdiffeq(self, name: str, field: Any, start: Tensor) -> Any:
        """Solve it with a function of torchdiffeq."""
        import torchdiffeq  # pyright: ignore[reportMissingImports]

        options = {"rtol": TOLERANCE, "atol": TOLERANCE, "method": "dopri5"}
        return getattr(torchdiffeq, name)(field, start, torch.tensor(self.times), **options)

    def evaluate(self, count: int) -> None:
        """Evaluate the field a number of times."""
        time = torch.tensor(self.times[0])
        for _ in range(count):
            self.model(time, self.start)

    def bare_graph(self, count: int, leaf: Tensor) -> Tensor:
        """Return the sum of a number of evaluations, in one graph."""
        total, time = leaf, torch.tensor(self.times[0])
        for _ in range(count):
            total = total + self.model(time, leaf)
        return total

    def steps_graph(self, count: int, leaf: Tensor) -> Tensor:
        """Return the state after steps of dopri5 with a number of evaluations, in one graph."""
        solver, steps = Dopri5(), count // 6
        size, first = (self.times[-1] - self.times[0]) / steps, None
        for number in range(steps):
            now = self.times[0] + number * size
            leaf, stages = solver.stages(self.model, now, size, leaf, first=first, last=True)
            first = stages[-1]
        return leaf

    def gradient(self, forward: Callable[[Tensor], Tensor]) -> None:
        """Differentiate the mean square of what a function returns for the initial state."""
        self.model.zero_grad()
        forward(self.start.clone().requires_grad_()).pow(2).mean().backward()
