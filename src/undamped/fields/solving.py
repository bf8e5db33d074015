"""What modules have in common that solve an ODE: their choices, and the last solution."""

from __future__ import annotations

from typing import Any

from torch import nn

from undamped.solvers import Solution, Solver
from undamped.solvers.choices import Gradient, choose_solver


class SolvingModule(nn.Module):
    """A module that solves an ODE in its forward pass.

    Args:
        method: A solver or its registry name.
        rtol: Relative tolerance, or the solver's own.
        atol: Absolute tolerance, likewise.
        gradient: How gradients are taken.
    """

    step_size: float | None = None

    def __init__(
        self, method: str | Solver, rtol: float | None, atol: float | None, gradient: Gradient
    ) -> None:
        super().__init__()
        choose_solver(method)  # an unknown name should be found now, not at the first pass
        self.method, self.rtol, self.atol = method, rtol, atol
        self.gradient: Gradient = gradient
        self.solution: Solution | None = None

    def __getstate__(self) -> dict[str, Any]:
        # The last solution belongs to a pass, not to the model, and its graph cannot be copied.
        return {**self.__dict__, "solution": None}

    @property
    def evaluations(self) -> int:
        """Evaluations of the field in the last forward pass (NFE)."""
        return 0 if self.solution is None else self.solution.evaluations

    @property
    def evaluations_backward(self) -> int:
        """Evaluations for the gradients of the last forward pass, once they have been taken."""
        return 0 if self.solution is None else self.solution.evaluations_backward
