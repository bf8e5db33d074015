"""Fields behind recurrent cells: one step of a solver on them is one step of the cell."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.errors import OptionError
from undamped.ode import Solver
from undamped.ode.settings import choose_solver


class AntisymmetricField(nn.Module):
    """ḣ = tanh((W − Wᵀ − γI) h + u): Euler's method gives the antisymmetric RNN.

    Args:
        weight: W, (hidden, hidden).
        gamma: Diffusion γ.
        drive: u = V x + b, (batch, hidden), constant during a step.

    Reference:
        B. Chang and others. AntisymmetricRNN: a dynamical system view on recurrent neural
        networks. ICLR, 2019.
    """

    def __init__(self, weight: Tensor, gamma: float, drive: Tensor) -> None:
        super().__init__()
        self.weight, self.gamma, self.drive = weight, gamma, drive

    def forward(self, t: Any, h: Tensor) -> Tensor:
        """Return ḣ."""
        inner = h @ (self.weight - self.weight.T).T - self.gamma * h
        return torch.tanh(inner + self.drive)


class CoRNNField(nn.Module):
    """ẏ = z, ż = tanh(W y + 𝒲 z + u) − γ y − ε z: symplectic Euler gives coRNN.

    Args:
        weight: W, (hidden, hidden).
        velocity_weight: 𝒲, (hidden, hidden).
        gamma: Restoring force γ.
        epsilon: Damping ε.
        drive: u = V x + b, (batch, hidden).

    Reference:
        T. K. Rusch, S. Mishra. Coupled oscillatory recurrent neural network (coRNN). ICLR, 2021.
    """

    def __init__(
        self, weight: Tensor, velocity_weight: Tensor, gamma: float, epsilon: float, drive: Tensor
    ) -> None:
        super().__init__()
        self.weight, self.velocity_weight = weight, velocity_weight
        self.gamma, self.epsilon, self.drive = gamma, epsilon, drive

    def forward(self, t: Any, state: Tensor) -> Tensor:
        """Return (ẏ, ż) for a state (batch, 2 × hidden)."""
        y, z = state.chunk(2, dim=-1)
        inner = y @ self.weight.T + z @ self.velocity_weight.T + self.drive
        force = torch.tanh(inner) - self.gamma * y - self.epsilon * z
        return torch.cat((z, force), dim=-1)


class UnICORNNField(nn.Module):
    """ẏ = s z, ż = −s [tanh(w ⊙ y + u) + α y]: symplectic Euler with step Δt gives UnICORNN.

    Args:
        weight: w, (hidden,).
        alpha: Restoring force α.
        rate: s = σ̂(c), (hidden,).
        drive: u = V x + b, (batch, hidden).

    Reference:
        T. K. Rusch, S. Mishra. UnICORNN: a recurrent model for learning very long time
        dependencies. ICML, 2021.
    """

    def __init__(self, weight: Tensor, alpha: float, rate: Tensor, drive: Tensor) -> None:
        super().__init__()
        self.weight, self.alpha, self.rate, self.drive = weight, alpha, rate, drive

    def forward(self, t: Any, state: Tensor) -> Tensor:
        """Return (ẏ, ż) for a state (batch, 2 × hidden)."""
        y, z = state.chunk(2, dim=-1)
        force = torch.tanh(self.weight * y + self.drive) + self.alpha * y
        return torch.cat((self.rate * z, -self.rate * force), dim=-1)


def step_of(field: nn.Module, state: Tensor, step_size: float, method: str | Solver) -> Tensor:
    """Take one step of a recurrent cell: its field, driven by one input, and a solver.

    Args:
        field: The field with its drive.
        state: (batch, features).
        step_size: Δt.
        method: `euler` or `symplectic-euler`, or any other method without memory of its own.
    """
    solver = choose_solver(method)
    started = solver.start(field, 0.0, state)
    if len(started) > 1:
        raise OptionError(
            f"'{solver.name}': expected a method without memory of its own, got one that carries "
            "more than the state. Use 'euler', 'symplectic-euler' or 'rk4'."
        )
    return solver.step(field, 0.0, step_size, started)[0][0]
