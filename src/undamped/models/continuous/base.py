"""What whole continuous-depth models have in common: input, a flow in depth, a linear readout.

All are used alike: (batch, input) in, (batch, output) out, for classes or targets; after a
forward pass `evaluations` holds the number of field evaluations, after a backward pass
`evaluations_backward` holds those.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.promises import Kind, Promise
from undamped.models.continuous.keeping import GradientKeeping
from undamped.ode.flows.input_checks import fitting, type_of
from undamped.ode.flows.neural_ode import NeuralODE
from undamped.ode.flows.stacked import StackedODE


class ContinuousModel(GradientKeeping):
    """A flow in depth with a linear readout; subclasses build `start` and `flow`."""

    start: nn.Module
    flow: NeuralODE | StackedODE
    head: nn.Linear
    input_size: int | None = None

    promises: tuple[Promise, ...] = (
        Promise(Kind.INVERTIBLE_FLOW, "the flow is a homeomorphism: it can be solved back"),
    )

    @property
    def end_of_depth(self) -> float:
        """T, where the flow ends."""
        last = self.flow.pieces[-1] if isinstance(self.flow, StackedODE) else self.flow
        assert isinstance(last, NeuralODE)
        return last.times[-1]

    def field_now(self) -> Any:
        """Return the field with its parameters as they are now."""
        assert isinstance(self.flow, NeuralODE)
        return self.flow.field

    def features(self, x: Tensor) -> Tensor:
        """Return the state at the end of depth, (batch, state)."""
        return self.carry(self.start(x))

    def carry(self, state: Tensor, given: Tensor | None = None) -> Tensor:
        """Return the state at the end of depth from one at its start.

        Args:
            state: Where it starts.
            given: What the field is told beside it, of a model that tells it something.
        """
        return self.flow(state)

    def carry_back(self, state: Tensor, given: Tensor | None = None) -> Tensor:
        """Return the state at the start of depth that flows to this one at its end."""
        return self.flow.inverse(state)

    def example(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor | None]:
        """Return states that random inputs start from, and what the field is told beside them."""
        x = torch.randn(count, self.input_size or 1, generator=generator).to(self.head.weight)
        return self.start(x), None

    def forward(self, x: Tensor) -> Tensor:
        """Return scores or values, (batch, output)."""
        with self.noting_waypoints():
            return self.head(self.features(self.fitting(x)))

    def fitting(self, x: Tensor) -> Tensor:
        """Return the input as the model takes it, or say what it expects instead."""
        return fitting(x, self.input_size, type_of(self), f"{type(self).__name__} input")

    @property
    def evaluations(self) -> int:
        """Field evaluations of the last forward pass (NFE)."""
        return self.flow.evaluations

    @property
    def evaluations_backward(self) -> int:
        """Field evaluations of its gradients."""
        return self.flow.evaluations_backward
