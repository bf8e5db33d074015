"""Checkpoints: the recorded steps are repeated, piece by piece, from states that were kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from undamped.ode.gradients.gradient import Found, GradientMethod, register_gradient
from undamped.ode.gradients.replay import Replay

if TYPE_CHECKING:
    from undamped.ode.problem import Problem


@register_gradient("checkpoint")
class Checkpoint(GradientMethod):
    """Exact; the memory of one piece at a time beside the states."""

    keeps_states = True

    def saved(self, problem: Problem, values: Tensor) -> Sequence[Tensor]:
        """Return the states at the starts of the pieces."""
        assert problem.run is not None
        return [part for state in problem.run.trace.checkpoints for part in state]

    def backward(self, problem: Problem, y0: Tensor, values: Tensor, incoming: Tensor) -> Found:
        """Repeat the pieces, the last first."""
        return Replay.of(problem).from_checkpoints(y0, incoming)
