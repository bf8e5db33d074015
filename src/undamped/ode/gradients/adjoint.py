"""The adjoint method: solve for state, adjoint and parameter gradients back in time.

Equation:
    ȧ = −aᵀ ∂f/∂y,  ġ = −aᵀ ∂f/∂θ,  from the last output to the first, a jumping by the
    gradient of each output it passes

This is the gradient of the true solution rather than of the numbers returned: its error is that of
two solves. With one step size for the batch and an explicit method, g is part of the state; it is
left out of the error norm (the seminorm), since nothing feeds back from it. Otherwise g takes no
part in the steps, and is summed over accepted ones at the points by which the method integrates:

Equation:
    g = −Σ_steps Σ_i b_i h a_iᵀ ∂f/∂θ(t_i, y_i)

Symbols:
    b_i weights of the method, h step size (negative: back in time), one for every sample where
    samples have their own; a_i, y_i adjoint and state at the time t_i.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from undamped._base.errors import SolveError
from undamped._base.torch_internals import flatten_tensors, vector_jacobian_product
from undamped.ode.dependencies import LateTensors, next_node
from undamped.ode.field import CountedField, use_adjoint_callbacks
from undamped.ode.loop.norm import ErrorNorm, largest
from undamped.ode.loop.route import Window
from undamped.ode.methods.explicit.runge_kutta import RungeKutta
from undamped.ode.methods.implicit.method import ImplicitMethod
from undamped.ode.methods.stages import combine_terms
from undamped.ode.record import Run, RunOptions
from undamped.ode.settings import Settings
from undamped.ode.state.packing import Packing, Part

if TYPE_CHECKING:
    from undamped.ode.gradients.methods import Gradients
    from undamped.ode.problem import Problem

TOLERANCES = 100.0
"""Allowed distance, in tolerances, between a state solved back in time and the original."""
LEAST = 3e-3
"""Distance that is allowed in any case, relative to the state."""


def refuse_drift(recovered: Tensor, stored: Tensor, end: Tensor, settings: Settings) -> None:
    """Raise an error if the state solved back in time is not the one of the forward pass.

    A flow that contracts expands on the way back: errors grow, and the adjoint is that of another
    solution.

    Args:
        recovered: The state at the end of the adjoint solve.
        stored: The state at that time in the forward pass.
        end: The state from which the adjoint solve started.
        settings: Tolerances of the adjoint solve.
    """
    if not stored.numel():
        return
    size = torch.maximum(_largest(stored), _largest(end))
    size = torch.maximum(size, LEAST * size.amax())
    tolerance = settings.rtol * size + settings.atol
    allowed = TOLERANCES * tolerance
    # Numbers below the tolerance do not count.
    distance = torch.where(tolerance < size, (recovered - stored).abs(), 0.0)
    allowed = torch.maximum(allowed, LEAST * size).clamp_min(torch.finfo(size.dtype).tiny)
    excess = distance / allowed
    if not excess.amax() <= 1:
        drift = (distance / size).flatten()[excess.flatten().nan_to_num(torch.inf).argmax()].item()
        raise SolveError(
            f"The adjoint solve back in time is off by {100 * drift:.2g} % from the states of the "
            "forward pass, since the field contracts: its gradient would be that of another "
            "solution. Use gradient='checkpoint', which solves nothing back in time, or more "
            "output times, from each of which the adjoint starts again."
        )


def _largest(value: Tensor) -> Tensor:
    """Return the largest number of every sample, as a column."""
    if value.dim() < 2:
        return value.abs().amax()
    return value.abs().flatten(1).amax(1).view(-1, *(1,) * (value.dim() - 1))


def add_gradients(totals: list[Tensor | None], gradients: Sequence[Tensor | None]) -> None:
    """Add gradients of some tensors to their totals; None stands for zero."""
    for index, gradient in enumerate(gradients):
        total = totals[index]
        if gradient is not None:
            totals[index] = gradient if total is None else total + gradient


class AdjointSolve:
    """An adjoint solve of state and adjoint, one sample per row; this one by an implicit method.

    Args:
        problem: The solve, with its run.
        values: Its outputs, (outputs, …).
    """

    def __init__(self, problem: Problem, values: Tensor) -> None:
        self.solver, self.settings = problem.backward or (problem.solver, problem.settings)
        self.field, self.tensors, self.values = problem.field, problem.tensors, values
        self.shape, self.times = values[0].shape, problem.run.value_times
        self.adaptive = self.settings.step_size is None and self.solver.adaptive
        self.late = LateTensors(self.tensors)
        self.totals: list[Tensor | None] = [None] * len(self.tensors)
        if isinstance(self.solver, ImplicitMethod):
            self.solver = self.solver.for_another_field()
        # The last step size of the forward pass suits the field where the backward pass begins.
        if self.settings.first_step is None and self.adaptive:
            self.settings = replace(self.settings, first_step=problem.run.next_step)

    def solve(self, gradients: Tensor) -> Gradients:
        """Return the gradients with respect to y0 and the tensors."""
        adjoint, norm = gradients[-1], self._norm()

        # An attribute would refer to `self` and so keep its tensors until the garbage collector.
        def slopes(t: Tensor, state: Tensor) -> Tensor:
            return self._slopes(t, state)

        use_adjoint_callbacks(self.field.function, slopes)
        for number in range(len(self.times) - 1, 0, -1):
            start = self._join(self.values[number], adjoint)
            field = CountedField(slopes, Packing.of(start))
            run = self._run(field, start, number, norm)
            if run.failure is not None:
                raise SolveError(
                    f"adjoint of the solve: {run.failure.message} With gradient='checkpoint' "
                    "nothing has to be solved on the way back."
                )
            state, adjoint = self._split(run.y)
            if self.adaptive:
                before, after = self.values[number - 1], self.values[number]
                refuse_drift(state, before, after, self.settings)
            adjoint = adjoint + gradients[number - 1]
        self.late.refuse()
        return adjoint, self.totals

    def _run(self, field: CountedField, start: Tensor, number: int, norm: ErrorNorm) -> Any:
        """Solve back from an output to the one before."""
        from undamped.ode.loop.batch import Integration

        times, first = (self.times[number], self.times[number - 1]), None
        # Runge–Kutta methods take it as their first stage, and implicit ones for predictions.
        if isinstance(self.solver, RungeKutta) or self.solver.implicit:
            with field.within(self.settings.jumps.window(times[0], times[1] - times[0])):
                first = field(start.new_tensor(times[0]), start)
        options = RunOptions(first=first, watch=self._watch(), norm=norm)
        run = Integration(field, self.solver, start, times, self.settings, options)
        run.run()
        if run.next_step is not None:
            # The adjoint jumps at an output, yet its speed is that of the field.
            self.settings = replace(self.settings, first_step=run.next_step)
        return run

    def _watch(self) -> Any:
        return self._add_step if self.tensors else None

    def _norm(self) -> ErrorNorm:
        """Return the norm of state and adjoint, both of which count."""
        inner = ErrorNorm.of(self.settings, self.field.packing)
        if inner.compiled:
            return inner
        rtol, atol = self._tolerances(inner)
        return ErrorNorm(
            rtol, atol, None, lambda r: largest(inner.reduce(half) for half in self._split(r))
        )

    def _tolerances(self, norm: ErrorNorm) -> tuple[Any, Any]:
        """Return the tolerances of state and adjoint from those of the state."""
        both = norm.rtol, norm.atol
        rtol, atol = (self._join(x, x) if isinstance(x, Tensor) else x for x in both)
        return rtol, atol

    def _join(self, y: Tensor, adjoint: Tensor) -> Tensor:
        if len(self.shape) > 1:
            return torch.cat((y.flatten(1), adjoint.flatten(1)), dim=1)
        return torch.cat((y.reshape(-1), adjoint.reshape(-1)))

    def _split(self, state: Tensor) -> tuple[Tensor, Tensor]:
        y, adjoint = state.chunk(2, dim=-1)
        return y.reshape(self.shape), adjoint.reshape(self.shape)

    def _slopes(self, t: Tensor, state: Tensor) -> Tensor:
        """Return the slopes of both, with a graph where one is being built."""
        create_graph = torch.is_grad_enabled() and state.requires_grad
        y, adjoint = self._split(state)
        with torch.enable_grad():
            first_node = next_node()
            if not create_graph:
                y = y.detach().requires_grad_()
            slope = self.field(t, y)
            if not create_graph:
                self.late.check([slope], [y], first_node)
            vjp = None
            if slope.requires_grad:
                (vjp,) = torch.autograd.grad(
                    slope, [y], -adjoint, allow_unused=True, create_graph=create_graph
                )
            vjp = torch.zeros_like(y) if vjp is None else vjp
        slope = slope if create_graph else slope.detach()
        return self._join(slope.to(state.dtype), vjp.to(state.dtype))

    def _add_step(self, stepper: Any, t: float, h: float, end: float) -> None:
        """Add what a step that is about to be accepted contributes to the tensors."""
        points = [
            (weight * h, state.new_tensor(t + node * h), state)
            for weight, node, state in stepper.points
        ]
        self._add_points(points, self.settings.jumps.window(t, h))

    def _add_points(
        self, points: Iterable[tuple[Any, Tensor, Tensor]], window: Window | None = None
    ) -> None:
        """Add the gradients at weights, times and states, evaluated on one side of a jump."""
        slopes, cotangents = [], []
        with torch.enable_grad(), self.field.within(window):
            for weight, time, state in points:
                y, adjoint = self._split(state.detach())
                slope = self.field(time, y)
                if slope.requires_grad:
                    slopes.append(slope)
                    cotangents.append((-weight * adjoint).to(slope.dtype))
        if slopes:
            gradients = torch.autograd.grad(slopes, self.tensors, cotangents, allow_unused=True)
            add_gradients(self.totals, gradients)


class ExplicitAdjoint(AdjointSolve):
    """The adjoint solve by an explicit method, with the parameters' part in a flat state."""

    def __init__(self, problem: Problem, values: Tensor) -> None:
        super().__init__(problem, values)
        self.separate_norm = problem.backward is not None
        """Whether a norm among the settings is one of the complete adjoint state."""
        self.size = values[0].numel()
        sizes = [tensor.numel() * (1 + tensor.is_complex()) for tensor in self.tensors]
        self.sizes, self.sums = sizes, values.new_zeros(sum(sizes))

    def solve(self, gradients: Tensor) -> Gradients:
        adjoint, _ = super().solve(gradients)
        parts = self.sums.split(self.sizes) if self.sizes else ()
        pairs = zip(parts, self.tensors, strict=True)
        return adjoint, [_as_before(part, tensor) for part, tensor in pairs]

    def _run(self, field: CountedField, start: Tensor, number: int, norm: ErrorNorm) -> Any:
        run = super()._run(field, start, number, norm)
        self.sums = run.y[2 * self.size :]
        return run

    def _watch(self) -> None:
        return None

    def _norm(self) -> ErrorNorm:
        """Return the norm of state and adjoint; the parameters' part does not count."""
        norm = super()._norm()
        if norm.compiled:
            return ErrorNorm(norm.rtol, norm.atol, leading=2 * self.size)
        ones, both = torch.ones_like(self.sums), (norm.rtol, norm.atol)
        rtol, atol = (
            torch.cat((x[: 2 * self.size], ones)) if isinstance(x, Tensor) else x for x in both
        )
        function, user_norm = norm.function, self.settings.norm
        if user_norm is not None and self.separate_norm:
            function = lambda r: user_norm(self._as_tuple(r))  # noqa: E731
        return ErrorNorm(rtol, atol, None, function)

    def _as_tuple(self, flat: Tensor) -> tuple[Tensor, ...]:
        """Return time, state, adjoint and parameters as a tuple of tensors."""
        packing = self.field.packing
        halves = [packing.unpack(half) for half in self._split(flat)]
        tensors = [x for half in halves for x in ((half,) if packing.single else half)]
        sums = flat[2 * self.size :].split(self.sizes)
        pairs = zip(sums, self.tensors, strict=True)
        return (flat.new_zeros(()), *tensors, *(_as_before(part, x) for part, x in pairs))

    def _join(self, y: Tensor, adjoint: Tensor) -> Tensor:
        return torch.cat((y.reshape(-1), adjoint.reshape(-1), self.sums))

    def _split(self, state: Tensor) -> tuple[Tensor, Tensor]:
        y, adjoint = state[: 2 * self.size].view(2, *self.shape).unbind()
        return y, adjoint

    def _slopes(self, t: Tensor, state: Tensor) -> Tensor:
        leaf, adjoint = self._split(state)
        with torch.enable_grad():
            first_node = next_node()
            y = leaf.detach().requires_grad_()
            slope = self.field(t, y)
            self.late.check((slope,), (y,), first_node)
        inputs = (y, *self.tensors)
        gradients: Sequence[Tensor | None] = (None,) * len(inputs)
        if slope.requires_grad:
            gradients = vector_jacobian_product(slope, inputs, -adjoint)
        parts, dtype = [slope.detach()], state.dtype
        for gradient, x in zip(gradients, inputs, strict=True):
            part = torch.zeros_like(x) if gradient is None else gradient
            parts.append(part if part.dtype is dtype else _as_reals(part).to(dtype))
        return flatten_tensors(parts)


class SampleAdjoint(AdjointSolve):
    """The adjoint solve with a step size for every sample, by an explicit method.

    State and adjoint of a sample go back in time together, from where that sample ended. Outputs
    that a failed sample did not reach are no stops: all its later times are its last.
    """

    def __init__(self, problem: Problem, values: Tensor) -> None:
        super().__init__(problem, values)
        self.settings, times = replace(self.settings, first_step=None), self.times
        self.column = (self.shape[0],) + (1,) * (len(self.shape) - 1)
        unreached = ~torch.isfinite(values)
        unreached = unreached.flatten(2).any(2) if values.dim() > 2 else unreached
        last = (unreached.logical_not().long().cumsum(0)).argmax(0)
        sample = torch.arange(self.shape[0], device=values.device)
        self.times = torch.where(unreached, times[last, sample], times)
        self.unreached = unreached.view(*unreached.shape, *self.column[1:])
        self.values = torch.where(self.unreached, values[last, sample], values)

    def solve(self, gradients: Tensor) -> Gradients:
        if not self.values[0].numel():
            return gradients.sum(0), self.totals
        return super().solve(gradients.masked_fill(self.unreached, 0.0))

    def _run(self, field: CountedField, start: Tensor, number: int, norm: ErrorNorm) -> Run:
        from undamped.ode.loop.sample import PerSampleIntegration

        times = torch.stack((self.times[number], self.times[number - 1]))
        options = RunOptions(watch=self._watch(), norm=norm)
        run = PerSampleIntegration(field, self.solver, start, times, self.settings, options)
        run.run()
        return run

    def _norm(self) -> ErrorNorm:
        """Return the norm of state and adjoint, with tolerances and parts of the state."""
        inner = ErrorNorm.of(self.settings, self.field.packing)
        parts, width = inner.parts, self.values[0].numel() // self.shape[0]
        if parts is not None and self.field.packing.single:
            parts = (Part(0, 2 * width, parts[0].reals),)
        elif parts is not None:
            parts += tuple(Part(part.low + width, part.high + width, part.reals) for part in parts)
        return ErrorNorm(*self._tolerances(inner), parts)

    def _join(self, y: Tensor, adjoint: Tensor) -> Tensor:
        batch = self.shape[0]
        return torch.cat((y.reshape(batch, -1), adjoint.reshape(batch, -1)), dim=1)

    def _slopes(self, t: Tensor, state: Tensor) -> Tensor:
        return super()._slopes(t.reshape(self.column), state)

    def _add_step(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, rows: Tensor, t: Tensor, h: Tensor, y: Tensor, y1: Tensor, stages: list[Tensor]
    ) -> None:
        """Add what an attempt contributes to the tensors; h is zero where it was rejected."""
        assert isinstance(self.solver, RungeKutta)
        tableau, points = self.solver.tableau, []
        for stage, weight in tableau.weight_terms:
            state = y
            if stage:
                state = combine_terms(y, h.view(-1, 1), tableau.row_terms[stage - 1], stages)
            time = (t + tableau.nodes[stage] * h).view(self.column).to(y.dtype)
            points.append((weight * h.view(self.column).to(y.dtype), time, state))
        self._add_points(points)


def _as_reals(value: Tensor) -> Tensor:
    return (torch.view_as_real(value.resolve_conj()) if value.is_complex() else value).reshape(-1)


def _as_before(part: Tensor, tensor: Tensor) -> Tensor:
    """Return reals in shape and type of a tensor."""
    if tensor.is_complex():
        part = torch.view_as_complex(part.reshape(-1, 2).contiguous())
    return part.view_as(tensor).to(tensor.dtype)
