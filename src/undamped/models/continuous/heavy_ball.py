"""What heavy-ball models of vectors and of pictures promise, and show of their field."""

from __future__ import annotations

import torch
from torch import Tensor

from undamped._base.promises import Kind, Promise
from undamped.models.continuous.base import ContinuousModel
from undamped.ode.fields.heavy_ball import HeavyBallField

HEAVY_BALL = (
    *ContinuousModel.promises,
    Promise(Kind.PAIRED_SPECTRUM, "Jacobian eigenvalues come in pairs of sum −γ"),
    Promise(Kind.VOLUME_RATE, "the flow's determinant is exp(−γ n T), whatever the force"),
)
GENERAL_HEAVY_BALL = (
    *HEAVY_BALL,
    Promise(Kind.BOUNDED_VELOCITY, "|ḣ| ≤ 1: no position moves further than T"),
)
_AT_THE_END = (
    "A force acts on momenta, which the readout does not see: at the end of depth y is nought."
)
NO_SHARE = {"parameters": _AT_THE_END, "direction": _AT_THE_END}
"""What second-order models cannot keep, and why."""


class HeavyBall(ContinuousModel):
    """A model whose flow is that of a heavy ball."""

    @property
    def _ball(self) -> HeavyBallField:
        field = self.flow.field
        assert isinstance(field, HeavyBallField)
        return field

    @property
    def damping(self) -> Tensor:
        """γ."""
        return self._ball.damping

    def volume_rate(self, numbers: int) -> Tensor:
        """Return d log det/dt of the flow: −γ for each position.

        Args:
            numbers: Of the state, half of which are positions.
        """
        return -self.damping * numbers / 2

    def derivative(self, t: float, state: Tensor) -> Tensor:
        """Return (ḣ, ṁ) at a time and state."""
        return self._ball(torch.tensor(t, dtype=state.dtype), state)
