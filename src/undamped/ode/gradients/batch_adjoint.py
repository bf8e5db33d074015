"""The adjoint method: solve for state, adjoint and parameter gradients back in time.

Equation:
    ȧ = −aᵀ ∂f/∂y,  ġ = −aᵀ ∂f/∂θ,  from the last output to the first, a jumping by the
    gradient of each output it passes

The gradient of the true solution rather than of the numbers returned: its error is that of two
solves. The parameters' part is left out of the error norm (the seminorm), since nothing feeds
back from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from undamped._base.errors import SolveError
from undamped._base.torch_internals import flatten_tensors, vector_jacobian_product
from undamped.ode.callbacks import pass_on
from undamped.ode.dependencies import LateTensors, next_node
from undamped.ode.field import CountedField
from undamped.ode.gradients.gradient import Gradients
from undamped.ode.loop.norm import ErrorNorm, largest
from undamped.ode.methods.explicit.runge_kutta import RungeKutta
from undamped.ode.methods.solver import Solver
from undamped.ode.settings import Settings
from undamped.ode.state.packing import Packing

if TYPE_CHECKING:
    from undamped.ode.problem import Problem
    from undamped.ode.record import Run

TOLERANCES = 100.0
"""How many tolerances a state recovered on the way back may be off."""
LEAST = 3e-3
"""How far off it may be in any case, relative to the state."""


def refuse_drift(recovered: Tensor, stored: Tensor, end: Tensor, settings: Settings) -> None:
    """Raise an error where the state solved back in time is not the one of the forward pass.

    A flow that contracts expands on the way back: errors grow, and the adjoint is that of another
    solution.

    Args:
        recovered: The state that the adjoint solve arrived at.
        stored: The state there in the forward pass.
        end: The state that the adjoint solve started from.
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


def refuse_failure(run: Run) -> None:
    """Raise an error if an adjoint solve failed."""
    if run.failure is not None:
        raise SolveError(
            f"adjoint of the solve: {run.failure.message} With gradient='checkpoint' nothing has "
            "to be solved on the way back."
        )


def add_gradients(totals: list[Tensor | None], gradients: Sequence[Tensor | None]) -> None:
    """Add gradients of some tensors to their totals; None stands for zero."""
    for index, gradient in enumerate(gradients):
        total = totals[index]
        if gradient is not None:
            totals[index] = gradient if total is None else total + gradient


class BatchAdjoint:
    """The adjoint solve.

    Args:
        solver: The method.
        field: The field, counted.
        times: Output times of the solve.
        values: Its outputs, (outputs, …).
        tensors: What the field depends on, besides the state.
        settings: Tolerances and limits of the backward solve.
        first_step: Step size to begin with; None chooses it.
    """

    def __init__(
        self,
        solver: Solver,
        field: CountedField,
        times: Sequence[float],
        values: Tensor,
        tensors: Sequence[Tensor],
        settings: Settings,
        first_step: float | None = None,
    ) -> None:
        self.solver, self.field, self.times, self.values = solver, field, times, values
        self.tensors, self.settings = list(tensors), settings
        self.first_step = first_step
        self.own_norm = False
        """Whether a norm among the settings is one of the whole adjoint state."""
        self.late = LateTensors(self.tensors)

    @classmethod
    def of(cls, problem: Problem, values: Tensor) -> BatchAdjoint:
        """Return the adjoint of a solve that was run."""
        run = problem.run
        solver, settings = problem.backward or (problem.solver, problem.settings)
        assert run is not None
        times = list(run.value_times)
        # What the forward pass ended with suits the field where the backward pass begins.
        first = run.next_step if settings.first_step is None else settings.first_step
        if settings.step_size is not None or not solver.adaptive:
            first = None
        adjoint = cls(solver, problem.field, times, values, problem.tensors, settings, first)
        adjoint.own_norm = problem.backward is not None
        return adjoint

    def solve(self, gradients: Tensor) -> Gradients:
        """Return the gradients with respect to y0 and the tensors."""
        from undamped.ode.loop.batch import Integration

        shape, size = self.values[0].shape, self.values[0].numel()
        sizes = [tensor.numel() * (1 + tensor.is_complex()) for tensor in self.tensors]
        adjoint = gradients[-1].reshape(-1)
        sums = self.values.new_zeros(sum(sizes))
        settings = replace(self.settings, first_step=self.first_step)
        norm = self._norm(size, sum(sizes))
        for number in range(len(self.times) - 1, 0, -1):
            start = torch.cat((self.values[number].reshape(-1), adjoint, sums))
            packing = Packing.of(start)

            def augmented(t: Tensor, state: Tensor) -> Tensor:
                return self._slopes(t, state, shape, size)

            pass_on(self.field.function, augmented)
            field = CountedField(augmented, packing)
            times = self.times[number], self.times[number - 1]
            first = None
            if isinstance(self.solver, RungeKutta):  # which takes it for its first stage
                first = self._first(field, times, start)
            run = Integration(field, self.solver, start, times, settings, first=first, norm=norm)
            run.run()
            if run.next_step is not None:
                # The adjoint jumps at an output, yet its speed is that of the field.
                settings = replace(settings, first_step=run.next_step)
            refuse_failure(run)
            state, adjoint, sums = run.y.split([size, size, sum(sizes)])
            self._refuse_drift(number, state.view(shape))
            adjoint = adjoint + gradients[number - 1].reshape(-1)
        self.late.refuse()
        parts = sums.split(sizes) if sizes else ()
        totals: list[Tensor | None] = [
            _as_before(part, tensor) for part, tensor in zip(parts, self.tensors, strict=True)
        ]
        return adjoint.view(shape), totals

    def _refuse_drift(self, number: int, recovered: Tensor) -> None:
        """Raise an error where the output before `number` was not recovered."""
        if self.settings.step_size is None and self.solver.adaptive:
            refuse_drift(recovered, self.values[number - 1], self.values[number], self.settings)

    def _first(self, field: CountedField, times: tuple[float, float], start: Tensor) -> Tensor:
        """Return the slope at the start of an interval, on the side of a jump that it is on."""
        with field.within(self.settings.jumps.window(times[0], times[1] - times[0])):
            return field(start.new_tensor(times[0]), start)

    def _norm(self, size: int, parameters: int) -> ErrorNorm:
        """Return the norm of state and adjoint; the parameters' part does not count."""
        inner = ErrorNorm.of(self.settings, self.field.packing)
        if inner.compiled:
            return ErrorNorm(inner.rtol, inner.atol, leading=2 * size)
        shape = self.values[0].shape

        def both(tolerance: float | Tensor) -> float | Tensor:
            if not isinstance(tolerance, Tensor):
                return tolerance
            flat = tolerance.reshape(-1)
            return torch.cat((flat, flat, flat.new_ones(parameters)))

        norm = self.settings.norm
        if norm is not None and self.own_norm:
            return ErrorNorm(
                both(inner.rtol), both(inner.atol), None, lambda r: norm(self._members(r, size))
            )

        def function(ratio: Tensor) -> float:
            halves = ratio[:size].view(shape), ratio[size : 2 * size].view(shape)
            return largest(inner.reduce(half) for half in halves)

        return ErrorNorm(both(inner.rtol), both(inner.atol), None, function)

    def _members(self, flat: Tensor, size: int) -> tuple[Tensor, ...]:
        """Return time, state, adjoint and parameters as members of a tuple."""
        shape, packing = self.values[0].shape, self.field.packing
        halves = [packing.unpack(flat[k * size : (k + 1) * size].view(shape)) for k in (0, 1)]
        members = [m for half in halves for m in ((half,) if packing.single else half)]
        sums = flat[2 * size :].split([_as_reals(x).numel() for x in self.tensors])
        pairs = zip(sums, self.tensors, strict=True)
        return (flat.new_zeros(()), *members, *(_as_before(part, x) for part, x in pairs))

    def _slopes(self, t: Tensor, state: Tensor, shape: torch.Size, size: int) -> Tensor:
        leaf, adjoint = state[: 2 * size].view(2, *shape).unbind()
        with torch.enable_grad():
            begun = next_node()
            y = leaf.detach().requires_grad_()
            slope = self.field(t, y)
            self.late.look((slope,), (y,), begun)
        inputs = (y, *self.tensors)
        gradients: Sequence[Tensor | None] = (None,) * len(inputs)
        if slope.requires_grad:
            gradients = vector_jacobian_product(slope, inputs, -adjoint)
        parts, dtype = [slope.detach()], state.dtype
        for gradient, x in zip(gradients, inputs, strict=True):
            part = torch.zeros_like(x) if gradient is None else gradient
            parts.append(part if part.dtype is dtype else _as_reals(part).to(dtype))
        return flatten_tensors(parts)


def _as_reals(value: Tensor) -> Tensor:
    return (torch.view_as_real(value.resolve_conj()) if value.is_complex() else value).reshape(-1)


def _as_before(part: Tensor, tensor: Tensor) -> Tensor:
    """Return reals in shape and type of a tensor."""
    if tensor.is_complex():
        part = torch.view_as_complex(part.reshape(-1, 2).contiguous())
    return part.view_as(tensor).to(tensor.dtype)
