"""Dense output: the solution as a function of time, over the complete solve."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from undamped._base.errors import OptionError, ShapeError
from undamped.ode.field import CountedField
from undamped.ode.gradients.refused import refuse_gradients
from undamped.ode.methods.explicit.runge_kutta import RungeKutta
from undamped.ode.methods.solver import Solver, SolverState, Stepper
from undamped.ode.methods.stages import combine
from undamped.ode.state.times import drift

_VALUES_ONLY = (
    "The gradient of a dense solution needs gradient='backprop' and one step size for the batch. "
    "Choose these, or request the value among the output times."
)
NODES = tuple(k / 4 for k in range(5))
"""Fractions of a step at which values are stored; they determine a polynomial of degree four."""


class Guarded:
    """Values without a graph, which raise an error when they are differentiated."""

    roots: Sequence[Tensor] = ()
    """The tensors on which they depend."""

    def _guard(self, values: Tensor, t: Any) -> Tensor:
        roots = [*self.roots, t] if isinstance(t, Tensor) else self.roots
        (guarded,) = refuse_gradients([values], roots, _VALUES_ONLY)
        assert guarded is not None
        return guarded


class DenseOutput(Guarded):
    """Call it with a time inside the solve to get the state there.

    Methods with a polynomial inside their steps evaluate it; for others a step is taken from the
    nearest earlier node, so that the value has the method's order. With gradient='backprop' values
    have gradients, also by their time; otherwise requesting one is an error.

    Args:
        solver: The method.
        field: The field.
        t0: Time of the start.
        y0: Start value.
        graph: Whether the graph of the solve is stored.
    """

    def __init__(
        self, solver: Solver, field: CountedField, t0: float, y0: Tensor, *, graph: bool = False
    ) -> None:
        self.solver, self.field, self.graph = solver, field, graph
        self.start, self.reached, self.y0 = t0, t0, y0 if graph else y0.detach()
        # Starts of the steps; of a solve back in time with the opposite sign, so that they rise.
        self._keys: list[float] = []
        self._steps: list[tuple[float, float, SolverState, Tensor | None]] = []

    def watch(self, stepper: Stepper, t: float, h: float, end: float) -> None:
        """Store a step that is about to be accepted."""
        state, nodes = stepper.state, None
        if self.solver.dense:
            inside = [stepper.inside(h, fraction) for fraction in NODES[1:]]
            nodes = torch.stack([state[0], *inside])
        if not self.graph:
            state = tuple(part.detach() for part in state)
            nodes = None if nodes is None else nodes.detach()
        self._keys.append(t if h > 0 else -t)
        self._steps.append((t, h, state, nodes))
        self.reached = end

    def __call__(self, t: float | Sequence[float] | Tensor) -> Any:
        """Return the state at time t, or the states at several, (times, …)."""
        times = torch.as_tensor(t, dtype=torch.float64).detach()
        if times.dim() > 1:
            raise ShapeError(
                f"times must be a number or a list of numbers, got shape {tuple(times.shape)}."
            )
        with torch.set_grad_enabled(self.graph and torch.is_grad_enabled()):
            values = [self._at(time) for time in times.reshape(-1).tolist()]
            if isinstance(t, Tensor) and t.requires_grad and torch.is_grad_enabled():
                # Values as functions of times that have a gradient.
                by = (t - t.detach()).reshape(-1).to(self.y0)
                steps = zip(times.reshape(-1).to(self.y0), values, by, strict=True)
                values = [drift(self.field, *step, exact=True) for step in steps]
            stacked = torch.stack(values) if values else self.y0.new_empty(0, *self.y0.shape)
        if not self.graph:
            stacked = self._guard(stacked, t)
        return self.field.packing.unpack(stacked if times.dim() else stacked[0])

    def _at(self, t: float) -> Tensor:
        low, high = sorted((self.start, self.reached))
        slack = 1e-12 * max(abs(low), abs(high))
        if not low - slack <= t <= high + slack:
            raise _outside("The equation", low, high, t)
        t = min(max(t, low), high)
        if t == self.start:
            return self.y0
        key = t if self.reached > self.start else -t
        begin, h, state, nodes = self._steps[max(0, bisect.bisect_right(self._keys, key) - 1)]
        if t == begin:
            return state[0]
        if nodes is None:
            return self.solver.step(self.field, begin, t - begin, state)[0][0]
        weights = quartic_weights(nodes.new_tensor((t - begin) / h, dtype=torch.float64))
        return torch.einsum("i,i...->...", torch.stack(weights).to(nodes.dtype), nodes)


def _outside(subject: str, low: float, high: float, t: float) -> OptionError:
    return OptionError(
        f"{subject} was solved from {low:.6g} to {high:.6g}, got the time {t:.6g}. Solve further "
        "to evaluate it there."
    )


def quartic_weights(fraction: Tensor) -> list[Tensor]:
    """Return the weights of the values at the `NODES` in the polynomial through them."""
    weights = []
    for i, node in enumerate(NODES):
        weight = torch.ones_like(fraction)
        for j, root in enumerate(NODES):
            if i != j:
                weight = weight * (fraction - root) / (node - root)
        weights.append(weight)
    return weights


class SampleDenseOutput(Guarded):
    """Call it with a time, or with one for every sample, to get the states there.

    It returns values only: to differentiate one, request it among the output times.

    Args:
        solver: The method.
        field: The field.
        y0: Start values, (batch, …).
        times: First and last time of every sample, (2, batch).
    """

    def __init__(self, solver: RungeKutta, field: CountedField, y0: Tensor, times: Tensor) -> None:
        self.solver, self.field, self.y0, self.times = solver, field, y0.detach(), times
        self.direction = torch.sign(times[1] - times[0])
        self.reached = times[0].clone()
        self._starts: list[Tensor] = []  # (batch,) each
        self._sizes: list[Tensor] = []  # (batch,), zero for samples that did not step
        self._values: list[Tensor] = []  # (5, batch, …) at the nodes of the step, or (1, …)

    def watch(
        self, rows: Tensor, t: Tensor, h: Tensor, y: Tensor, y1: Tensor, stages: list[Tensor]
    ) -> None:
        """Store a step of these rows, from t (rows,), by h (rows,), zero where it was rejected."""
        y, stages = y.detach(), [part.detach() for part in stages]
        nodes = [y]
        if self.solver.dense:
            column = h.view(len(rows), *(1,) * (y.dim() - 1))
            weights = [self.solver.tableau.inside_weights(fraction) for fraction in NODES[1:4]]
            nodes += [combine(y, column, row, stages) for row in weights] + [y1.detach()]
        full = self.y0.new_zeros(len(nodes), *self.y0.shape)
        full[:, rows] = torch.stack(nodes)
        starts, sizes = torch.zeros_like(self.reached), torch.zeros_like(self.reached)
        starts[rows], sizes[rows] = t, h
        self._starts.append(starts)
        self._sizes.append(sizes)
        self._values.append(full)
        self.reached = torch.where(sizes != 0, starts + sizes, self.reached)

    def __call__(self, t: float | Sequence[float] | Tensor) -> Any:
        """Return the states at time t, one for all samples or (batch,), or at (times, batch)."""
        times = torch.as_tensor(t, dtype=self.reached.dtype, device=self.reached.device).detach()
        batch = len(self.reached)
        if times.dim() > 2 or (times.dim() and times.shape[-1] not in (1, batch)):
            raise ShapeError(
                f"times must be one number, one for each of the {batch} samples, or rows of these, "
                f"got shape {tuple(times.shape)}. Give times that are the same for all samples as "
                "a column, t.unsqueeze(1)."
            )
        with torch.no_grad():
            rows = times.expand(-1, batch) if times.dim() == 2 else times.expand(1, batch)
            values = [self._at(row) for row in rows]
            stacked = torch.stack(values) if values else self.y0.new_empty(0, *self.y0.shape)
            stacked = stacked if times.dim() == 2 else stacked[0]
        return self.field.packing.unpack(self._guard(stacked, t))

    def _at(self, times: Tensor) -> Tensor:
        # Ends that were not reached exactly, for rounding, still count.
        slack = 1e-12 * (1 + self.reached.abs())
        before = (times - self.times[0]) * self.direction < -slack
        after = (self.reached - times) * self.direction < -slack
        elsewhere = (self.direction == 0) & ((times - self.times[0]).abs() > slack)
        outside = before | after | elsewhere
        if bool(outside.any()):
            sample = int(outside.nonzero()[0])
            low, high = sorted((float(self.times[0, sample]), float(self.reached[sample])))
            subject = f"The equation of sample {sample}"
            raise _outside(subject, low, high, float(times[sample]))
        result = self.y0.clone()
        if not self._starts:
            return result
        starts, sizes = torch.stack(self._starts), torch.stack(self._sizes)
        number = torch.arange(1, len(starts) + 1, device=starts.device).unsqueeze(1)
        reached = (sizes != 0) & ((times - starts) * self.direction >= 0)
        last = (reached * number).amax(0) - 1  # −1: no step begins before this time
        for step in last.unique().tolist():
            if step >= 0:
                rows = (last == step).nonzero().squeeze(1)
                distance = (times - starts[step])[rows]
                result[rows] = self._inside(step, rows, distance, sizes[step][rows])
        return result

    def _inside(self, step: int, rows: Tensor, distance: Tensor, size: Tensor) -> Tensor:
        values = self._values[step]
        column = (-1,) + (1,) * (values.dim() - 2)
        if len(values) > 1:
            parts = zip(quartic_weights(distance / size), values[:, rows], strict=True)
            terms = (w.to(v.dtype).view(column) * v for w, v in parts)
            return sum(terms, torch.zeros_like(values[0, rows]))
        # No polynomial: a step of the method, for all samples, so that the field sees its batch.
        h = torch.zeros_like(self.reached)
        h[rows] = distance
        start = self._starts[step].view(column)
        return self.solver.stages(self.field, start, h.view(column), values[0])[0][rows]
