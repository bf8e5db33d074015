"""What modules have in common that solve an ODE: their choices, and the last solution."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from undamped.errors import OptionError, UndampedError
from undamped.flows.field_checks import explain_failed_field
from undamped.flows.solve_options import FlowOptions
from undamped.solvers import Solution, solve
from undamped.solvers.settings import Gradient, choose_solver


class SolvingModule(nn.Module):
    """A module that solves an ODE in its forward pass.

    Args:
        how: Method, tolerances or step size, most steps and gradient, as `checked` completes them.
    """

    def __init__(self, how: FlowOptions) -> None:
        super().__init__()
        chosen: dict[str, Any] = dict(how)
        self.method = chosen["method"]
        self.rtol: float | None = chosen["rtol"]
        self.atol: float | None = chosen["atol"]
        self.step_size: float | None = chosen["step_size"]
        self.max_steps: int = chosen["max_steps"]
        self.gradient: Gradient = chosen["gradient"]
        self.solution: Solution | None = None
        solver = choose_solver(self.method)
        if not solver.adaptive and self.step_size is None:
            raise OptionError(
                f"{type(self).__name__}.step_size: expected a number for '{solver.name}', which "
                "takes fixed steps, got none. Give step_size=0.1, or choose method='dopri5'."
            )
        if self.step_size is not None and (self.rtol is not None or self.atol is not None):
            raise OptionError(
                f"{type(self).__name__}.step_size: expected to be left out beside rtol and atol, "
                f"got {self.step_size:g}. Leave out step_size, which fixes the steps, or the "
                "tolerances."
            )

    def run_solver(self, field: Any, state: Any, times: Any, **more: Any) -> Solution:
        """Solve as this module was told to; return the solution, which is also kept.

        Args:
            field: dy/dt.
            state: Tensor or tuple of tensors.
            times: When.
            more: Further arguments of `undamped.solvers.solve`.
        """
        if torch.compiler.is_compiling():
            # How many steps a solve takes is known only from its numbers. The compiler is asked
            # to leave it alone when there is one: asking loads it, which takes seconds.
            alone: Any = torch.compiler.disable(self._solve)
            return alone(field, state, times, more)
        return self._solve(field, state, times, more)

    def _solve(self, field: Any, state: Any, times: Any, more: dict[str, Any]) -> Solution:
        options: dict[str, Any] = {"max_steps": self.max_steps}
        if self.step_size is not None:
            options["step_size"] = self.step_size
        try:
            self.solution = solve(
                field,
                state,
                times,
                method=self.method,
                rtol=self.rtol,
                atol=self.atol,
                options=options,
                gradient=self.gradient,
                **more,
            )
        except (RuntimeError, TypeError) as error:
            if not isinstance(error, UndampedError):
                explain_failed_field(type(self).__name__, field, times, state, error)
            raise
        return self.solution

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
