"""Fields whose parameters flow with depth, by a motion that all samples share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from torch import Tensor, nn


class MovingField(nn.Module, ABC):
    """A field ẋ = f(x, θ(t)) with a motion of θ: dθ/dt = g(t, θ), or dθ/dt = θ b(t, θ), b skew.

    θ is one tensor. Its motion takes many at once, (…, n, m) at times that broadcast against
    them; `undamped.ode.flows.SharedFlow` solves it once per pass.
    """

    turns: ClassVar[bool]
    """Whether `motion` returns the generator b of a rotation, in place of dθ/dt."""

    @abstractmethod
    def beginning(self) -> Tensor:
        """Return θ(0)."""

    @abstractmethod
    def motion(self, t: Any, value: Tensor) -> Tensor:
        """Return dθ/dt, or b, at a time and θ."""

    def constants(self) -> tuple[Tensor, ...]:
        """Return what `read` needs besides θ and is computed from the parameters of θ.

        It is computed once per pass: a gradient that evaluates the field again has to stop there.
        """
        return ()

    @abstractmethod
    def read(self, value: Tensor, *constants: Tensor) -> tuple[Tensor, ...]:
        """Return the parameters of `move`, from θ and `constants`."""

    @abstractmethod
    def move(self, x: Tensor, *parameters: Tensor) -> Tensor:
        """Return dx/dt for samples (…, n) and the result of `read`."""

    def forward(self, t: Any, x: Tensor) -> Tensor:
        """Return dx/dt with the initial parameters."""
        return self.move(x, *self.read(self.beginning(), *self.constants()))


def matrix_times(matrix: Tensor, x: Tensor) -> Tensor:
    """Return M x for rows x (…, n), with one matrix for all or one for every sample.

    Args:
        matrix: (n, n), or (batch, n, n).
        x: (…, n), or (batch, …, n).
    """
    if matrix.dim() == 2:
        return x @ matrix.mT
    if x.dim() == 2:
        return (matrix @ x.unsqueeze(-1)).squeeze(-1)
    return x @ matrix.reshape(len(matrix), *(1,) * (x.dim() - 3), *matrix.shape[1:]).mT
