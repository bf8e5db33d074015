"""What whole continuous-depth models have in common: input, a flow in depth, a linear readout.

All are used alike: (batch, input) in, (batch, output) out, for classes or targets; after a
forward pass `evaluations` holds the number of field evaluations, after a backward pass
`evaluations_backward` holds those.
"""

from __future__ import annotations

from torch import Tensor, nn

from undamped.flows.input_checks import fitting, type_of
from undamped.flows.neural_ode import NeuralODE
from undamped.flows.stacked import StackedODE


class ContinuousModel(nn.Module):
    """A flow in depth with a linear readout; subclasses build `start` and `flow`."""

    start: nn.Module
    flow: NeuralODE | StackedODE
    head: nn.Linear
    input_size: int | None = None

    def features(self, x: Tensor) -> Tensor:
        """Return the state at the end of depth, (batch, state)."""
        return self.flow(self.start(x))

    def forward(self, x: Tensor) -> Tensor:
        """Return scores or values, (batch, output)."""
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
