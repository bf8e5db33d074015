"""The base of modules that solve an ODE, with their options, the last solution and waypoints.

Waypoints are states along depth between which gradients can be computed. Interpolated outputs of a
solve depend on its start as the end does, and the end does not depend on them: to compute ∂L/∂h(t),
the solve has to pass through h(t), and is divided into segments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated, Any, TypedDict

import torch
from torch import Tensor, nn

from undamped._base.errors import OptionError, UndampedError
from undamped._base.options import Default, PositiveFloat, PositiveInt, options_in
from undamped.ode import Solution, Solver, solve
from undamped.ode.flows.input_checks import explain_failed_field
from undamped.ode.settings import Gradient, choose_solver
from undamped.ode.solve import uncompiled

TOLERANCE = "Relative and absolute tolerance."


class SolveOptions(TypedDict, total=False):
    """How the field of a model is solved: method, tolerance or step size, gradient."""

    method: Annotated[str, Default("dopri5", "Solver.")]
    tolerance: Annotated[PositiveFloat, Default(1e-3, TOLERANCE)]
    step_size: Annotated[
        PositiveFloat | None,
        Default(
            None,
            "Size of all steps, instead of a tolerance; methods without step control, such as "
            "rk4, need it.",
        ),
    ]
    gradient: Annotated[Gradient, Default("checkpoint", "How gradients are taken.")]


class FlowOptions(TypedDict, total=False):
    """How a flow solves its field: method, tolerances or step size, most steps, gradient."""

    method: Annotated[str | Solver, Default("dopri5", "A solver or its registry name.")]
    rtol: Annotated[
        PositiveFloat | None,
        Default(None, "Relative tolerance, where the method chooses its steps."),
    ]
    atol: Annotated[PositiveFloat | None, Default(None, "Absolute tolerance, likewise.")]
    step_size: Annotated[
        PositiveFloat | None,
        Default(None, "Fixed step size, for methods that do not, or to keep the cost fixed."),
    ]
    max_steps: Annotated[PositiveInt, Default(100_000, "Steps after which to give up.")]
    gradient: Annotated[Gradient, Default("checkpoint", "How gradients are taken.")]


def solver_arguments(options: SolveOptions, group: type = SolveOptions) -> dict[str, Any]:
    """Return method, gradient and either tolerances or a step size, as flows take them.

    Args:
        options: All options, as `checked` completes them.
        group: The group of these options; its default tolerance counts as unset, since a
            tolerance has no effect on fixed steps.
    """
    arguments = {"method": options["method"], "gradient": options["gradient"]}  # type: ignore[typeddict-item]
    tolerance, step_size = options["tolerance"], options["step_size"]  # type: ignore[typeddict-item]
    if step_size is None:
        return {**arguments, "rtol": tolerance, "atol": tolerance}
    if tolerance != options_in(group)["tolerance"].default:
        raise OptionError(
            f"tolerance={tolerance:g} has no effect with step_size, which fixes the steps. Leave "
            "out one of the two."
        )
    return {**arguments, "step_size": step_size}


State = tuple[Tensor, ...]
Time = float | Tensor


@dataclass(frozen=True)
class Waypoint:
    """A state that a solve passed through.

    Args:
        time: Its time; (batch,) where every sample has its own depth.
        state: Its tensors, on the graph of the solve.
        field: The field of the segment that starts there, or of the last one.
    """

    time: Time
    state: State
    field: Callable[[Any, Any], Any]

    def detached(self) -> State:
        """Return the state without its graph."""
        return tuple(part.detach() for part in self.state)

    def slope(self, state: Any = None) -> Any:
        """Return the field at this time and state, or at another state."""
        if state is None:
            state = self.state[0] if len(self.state) == 1 else self.state
        time = self.time
        if isinstance(time, Tensor) and time.dim():
            time = time.reshape(-1, *(1,) * (self.state[0].dim() - 1))
        return self.field(torch.as_tensor(time).to(self.state[0]), state)


class Waypoints(list[Waypoint]):
    """The states that a solve passes through.

    Args:
        segments: Number of segments into which a solve is divided.
        gradient: Gradient method of the segments; None for that of the solve.
    """

    def __init__(self, segments: int, gradient: Gradient | None = None) -> None:
        super().__init__()
        self.segments = segments
        self.gradient: Gradient | None = gradient

    def arrive(self, time: Time, state: Any, field: Callable[[Any, Any], Any]) -> Any:
        """Record a state, and return the tensors with which the solve continues."""
        parts = (state,) if isinstance(state, Tensor) else tuple(state)
        # Copies, since the field may also use the same tensor as a context.
        copies = tuple(
            part.clone() if part.requires_grad else part.detach().clone().requires_grad_()
            for part in parts
        )
        self.append(Waypoint(time, copies, field))
        return copies[0] if isinstance(state, Tensor) else copies

    def cuts(self, times: Any, step_size: float | None) -> list[Time]:
        """Return the times at which to divide a solve, its ends included.

        With a fixed step_size they lie between steps. Times are (times, batch) for one depth per
        sample.
        """
        if isinstance(times, Tensor):
            fractions = torch.linspace(0, 1, self.segments + 1).to(times)
            return [torch.lerp(times[0], times[-1], fraction) for fraction in fractions.unbind()]
        begin, end = float(times[0]), float(times[-1])
        segments = self.segments
        if step_size is not None:
            steps = max(1, math.ceil(abs(end - begin) / step_size - 1e-9))
            indices = sorted({round(steps * k / segments) for k in range(segments + 1)})
            return [*(begin + (end - begin) * k / steps for k in indices[:-1]), end]
        return [*(begin + (end - begin) * k / segments for k in range(segments)), end]


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

    @uncompiled
    def run_solver(self, field: Any, state: Any, times: Any, **more: Any) -> Solution:
        """Solve with the options of this module; the solution is also stored as `solution`.

        Args:
            field: dy/dt.
            state: Tensor or tuple of tensors.
            times: Output times.
            more: Further arguments of `undamped.ode.solve`.
        """
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
