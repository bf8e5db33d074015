"""Neural ODE (Chen, Rubanova, Bettencourt and Duvenaud, 2018): a field, times, a solver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Unpack

from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.errors import OptionError
from undamped._base.options import PositiveFloat
from undamped.ode import Solution
from undamped.ode.flows.input_checks import check_call
from undamped.ode.flows.solving import FlowOptions, SolvingModule, Waypoints


class NeuralODE(SolvingModule):
    """A neural ODE: the state flows along a field from the first time to the last.

    Equation:
        ḣ = f(t, h, θ),  output h(T) for h(0) = input

    Symbols:
        h state, f field, θ its parameters, T last time.

    Args:
        field: dh/dt, a module called with (t, h).
        times: First and last time, or more; all outputs after the first are available from
            `trajectory`.
        how: Method, rtol and atol or step_size, max_steps and gradient: see `FlowOptions`.

    Example:
        >>> model = undamped.NeuralODE(PerceptronField(2, 32), rtol=1e-4, atol=1e-5)
        >>> model(torch.randn(8, 2)).shape, model.evaluations
        (torch.Size([8, 2]), 20)

    Reference:
        R. Chen, Y. Rubanova, J. Bettencourt, D. Duvenaud. Neural ordinary differential
        equations. NeurIPS, 2018.
    """

    @checked
    def __init__(
        self, field: nn.Module, *, times: Sequence[float] = (0.0, 1.0), **how: Unpack[FlowOptions]
    ) -> None:
        super().__init__(how)
        check_call(type(self).__name__, field)
        self.field = field
        self.times = tuple(float(t) for t in times)

    def solve(self, state: Any, times: Sequence[float] | Tensor | None = None, **more: Any) -> Any:
        """Solve from a state and return the `Solution`, which is also stored as `solution`.

        Args:
            state: Tensor or tuple of tensors.
            times: Output times in place of the model's.
            more: Further arguments of `undamped.ode.solve`.
        """
        field = more.pop("field", self.field)
        return self.solve_through(field, state, self.times if times is None else times, **more)

    def trajectory(self, state: Any, times: Sequence[float] | None = None) -> Any:
        """Return the states at the model's times, or at others, (times, …)."""
        return self.solve(state, times).values

    def inverse(self, state: Any, **more: Any) -> Any:
        """Return the state at the first time that flows to this one at the last.

        Args:
            state: Tensor or tuple of tensors.
            more: As for `solve`.
        """
        times = more.pop("times", None)
        times = self.times if times is None else times
        back = times.flip(0) if isinstance(times, Tensor) else tuple(times)[::-1]
        return self.solve(state, back, **more).final

    def forward(self, state: Any) -> Any:
        """Return the state at the last time."""
        return self.solve(state).final


class StackedODE(nn.Module):
    """Stacked neural ODEs: one field after another, each on its own segment of depth.

    Equation:
        z(S) = h(x) + Σ_i ∫_{s_i}^{s_{i+1}} f_{θ_i}(τ, z(τ)) dτ

    Symbols:
        s_i ends of the segments, θ_i parameters of segment i.

    Args:
        fields: The fields, in order.
        depth: Time over all of them; each gets an equal part.
        how: Method, rtol and atol or step_size, max_steps and gradient: see `FlowOptions`.

    Reference:
        S. Massaroli and others. Dissecting neural ODEs. NeurIPS, 2020.
    """

    @checked
    def __init__(
        self, fields: Sequence[nn.Module], *, depth: PositiveFloat = 1.0, **how: Unpack[FlowOptions]
    ) -> None:
        super().__init__()
        if not fields:
            raise OptionError("fields must not be empty.")
        ends = [depth * k / len(fields) for k in range(len(fields) + 1)]
        self.segments = nn.ModuleList(
            NeuralODE(field, times=(begin, end), **how)
            for field, begin, end in zip(fields, ends, ends[1:], strict=False)
        )

    def _sum(self, name: str) -> int:
        return sum(getattr(segment, name) for segment in self.segments)

    @property
    def evaluations(self) -> int:
        """Evaluations of all fields in the last forward pass."""
        return self._sum("evaluations")

    @property
    def evaluations_backward(self) -> int:
        """Evaluations for its gradients."""
        return self._sum("evaluations_backward")

    @property
    def solutions(self) -> list[Solution]:
        """The solutions of the last forward pass, segment by segment."""
        return [segment.solution for segment in self.segments]  # type: ignore[misc]

    @contextmanager
    def passing_through(self, waypoints: Waypoints) -> Iterator[None]:
        """Divide solves in this context into segments, and record the states between them."""
        segments = [segment for segment in self.segments if isinstance(segment, NeuralODE)]
        each = Waypoints(-(-waypoints.segments // len(segments)), waypoints.gradient)
        with ExitStack() as stack:
            for segment in segments:
                stack.enter_context(segment.passing_through(each))
            yield
        # Where a segment ends the next begins; the state belongs to the later one.
        by_time = {waypoint.time: waypoint for waypoint in each if isinstance(waypoint.time, float)}
        waypoints.extend(by_time.values())

    def inverse(self, state: Tensor) -> Tensor:
        """Return the state at the start of the first segment that flows to this one."""
        for segment in reversed(self.segments):
            assert isinstance(segment, NeuralODE)
            state = segment.inverse(state)
        return state

    def forward(self, state: Tensor) -> Tensor:
        """Return the state at the end of the last segment."""
        for segment in self.segments:
            state = segment(state)
        return state
