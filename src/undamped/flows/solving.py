"""What modules have in common that solve an ODE: their choices, and the last solution."""

from __future__ import annotations

from typing import Any

from torch import nn

from undamped.errors import OptionError
from undamped.solvers import Solution, Solver
from undamped.solvers.settings import Gradient, choose_solver


class SolvingModule(nn.Module):
    """A module that solves an ODE in its forward pass.

    Args:
        method: A solver or its registry name.
        rtol: Relative tolerance, or the solver's own.
        atol: Absolute tolerance, likewise.
        gradient: How gradients are taken.
        step_size: Fixed step size, which methods without step control need.
    """

    def __init__(
        self,
        method: str | Solver,
        rtol: float | None,
        atol: float | None,
        gradient: Gradient,
        step_size: float | None = None,
    ) -> None:
        super().__init__()
        solver = choose_solver(method)
        if not solver.adaptive and step_size is None:
            raise OptionError(
                f"{type(self).__name__}.step_size: expected a number for '{solver.name}', which "
                "takes fixed steps, got none. Give step_size=0.1, or choose method='dopri5'."
            )
        if step_size is not None and (rtol is not None or atol is not None):
            raise OptionError(
                f"{type(self).__name__}.step_size: expected to be left out beside rtol and atol, "
                f"got {step_size:g}. Leave out step_size, which fixes the steps, or the tolerances."
            )
        self.method, self.rtol, self.atol = method, rtol, atol
        self.gradient: Gradient = gradient
        self.step_size = step_size
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
