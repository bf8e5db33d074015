"""The base of modules that solve an ODE, with their options and the last solution."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.errors import OptionError, UndampedError
from undamped.ode import Solution, solve
from undamped.ode.flows.input_checks import explain_failed_field
from undamped.ode.flows.solve_options import FlowOptions
from undamped.ode.flows.waypoints import Waypoints
from undamped.ode.settings import Gradient, choose_solver
from undamped.ode.solve import uncompiled


class SolvingModule(nn.Module):
    """A module that solves an ODE in its forward pass.

    Args:
        how: Method, tolerances or step size, most steps and gradient, as `checked` completes them.
    """

    def __init__(self, how: FlowOptions) -> None:
        super().__init__()
        options: dict[str, Any] = dict(how)
        self.method = options["method"]
        self.rtol: float | None = options["rtol"]
        self.atol: float | None = options["atol"]
        self.step_size: float | None = options["step_size"]
        self.max_steps: int = options["max_steps"]
        self.gradient: Gradient = options["gradient"]
        self.solution: Solution | None = None
        self._before: tuple[Solution, ...] = ()
        self._waypoints: Waypoints | None = None
        solver = choose_solver(self.method)
        if not solver.adaptive and self.step_size is None:
            raise OptionError(
                f"{type(self).__name__} needs a step_size with '{solver.name}', which takes fixed "
                "steps. Give step_size=0.1, or choose method='dopri5'."
            )
        if self.step_size is not None and (self.rtol is not None or self.atol is not None):
            raise OptionError(
                f"{type(self).__name__} takes either step_size, which fixes the steps, or rtol and "
                f"atol, got both (step_size={self.step_size:g}). Leave "
                "one of them out."
            )

    @contextmanager
    def passing_through(self, waypoints: Waypoints) -> Iterator[None]:
        """Divide solves in this context into segments, and record the states between them."""
        self._waypoints = waypoints
        try:
            yield
        finally:
            self._waypoints = None

    def solve_through(self, field: Any, state: Any, times: Any, **more: Any) -> Solution:
        """Solve as `run_solver` does, from waypoint to waypoint inside `passing_through`.

        Args:
            field: dy/dt.
            state: Tensor or tuple of tensors.
            times: Output times. With waypoints, the solution is that of the last segment.
            more: Further arguments of `undamped.ode.solve`.
        """
        waypoints = self._waypoints
        if waypoints is None:
            return self.run_solver(field, state, times, **more)
        if waypoints.gradient is not None:
            more["gradient"] = waypoints.gradient
        ends: list[Any] = waypoints.cuts(times, self.step_size)
        solutions: list[Solution] = []
        for begin, end in pairwise(ends):
            state = waypoints.arrive(begin, state, field)
            tensors = isinstance(begin, Tensor) and isinstance(end, Tensor)
            both = torch.stack((begin, end)) if tensors else (begin, end)
            solutions.append(self.run_solver(field, state, both, **more))
            state = solutions[-1].final
        arrived = waypoints.arrive(ends[-1], state, field)
        single = isinstance(arrived, Tensor)
        last = arrived[None] if single else tuple(part[None] for part in arrived)
        self._before = tuple(solutions[:-1])
        self.solution = combined = replace(
            solutions[-1], values=last, times=solutions[-1].times[-1:]
        )
        return combined

    def run_solver(self, field: Any, state: Any, times: Any, **more: Any) -> Solution:
        """Solve with the options of this module; the solution is also stored as `solution`.

        Args:
            field: dy/dt.
            state: Tensor or tuple of tensors.
            times: Output times.
            more: Further arguments of `undamped.ode.solve`.
        """
        return uncompiled(self._solve)(field, state, times, more)

    def _solve(self, field: Any, state: Any, times: Any, more: dict[str, Any]) -> Solution:
        options: dict[str, Any] = {"max_steps": self.max_steps}
        how = {"gradient": self.gradient, **more}
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
                **how,
            )
        except (RuntimeError, TypeError) as error:
            if not isinstance(error, UndampedError):
                explain_failed_field(type(self).__name__, field, times, state, error)
            raise
        self._before = ()
        return self.solution

    def __getstate__(self) -> dict[str, Any]:
        # The last solution belongs to a pass, not to the model, and its graph cannot be copied.
        return {**self.__dict__, "solution": None, "_before": (), "_waypoints": None}

    @property
    def _solutions(self) -> tuple[Solution, ...]:
        """The solutions of the last forward pass, one for each segment."""
        return self._before if self.solution is None else (*self._before, self.solution)

    @property
    def evaluations(self) -> int:
        """Evaluations of the field in the last forward pass (NFE)."""
        return sum(solution.evaluations for solution in self._solutions)

    @property
    def evaluations_backward(self) -> int:
        """Evaluations for the gradients of the last forward pass, once they have been taken."""
        return sum(solution.evaluations_backward for solution in self._solutions)
