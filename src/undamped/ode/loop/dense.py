"""Dense output: the solution as a function of time, over the whole solve."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from undamped._base.errors import OptionError, ShapeError, explain
from undamped.ode.field import CountedField
from undamped.ode.gradients.refused import refuse_gradients
from undamped.ode.methods.solver import Solver, SolverState, Stepper
from undamped.ode.state.time_gradients import drift

_VALUES_ONLY = explain(
    "the gradient of a dense solution",
    expected="gradient='backprop' and one step size for the batch",
    got="values that were kept without a graph",
    remedy="Choose these, or ask for the value among the output times.",
)


class Guarded:
    """Values without a graph, which raise an error when they are differentiated."""

    roots: Sequence[Tensor] = ()
    """What they depend on."""

    def _guard(self, values: Tensor, t: Any) -> Tensor:
        roots = [*self.roots, t] if isinstance(t, Tensor) else self.roots
        (guarded,) = refuse_gradients([values], roots, _VALUES_ONLY)
        assert guarded is not None
        return guarded


class DenseOutput(Guarded):
    """Call it with a time inside the solve to get the state there.

    Methods with a polynomial inside their steps answer from it; for the others a step is taken
    from the nearest earlier node, so that the answer has the method's own order. With
    gradient='backprop' values have gradients, also by their time; otherwise asking for one is an
    error.

    Args:
        solver: The method.
        field: The field.
        t0: Time of the start.
        y0: Start value.
        graph: Whether the graph of the solve is kept.
    """

    def __init__(
        self, solver: Solver, field: CountedField, t0: float, y0: Tensor, *, graph: bool = False
    ) -> None:
        self.solver, self.field, self.graph = solver, field, graph
        self.start, self.reached, self.y0 = t0, t0, y0 if graph else y0.detach()
        # Starts of the steps, backward in time with their signs turned, so that they rise.
        self._keys: list[float] = []
        self._steps: list[tuple[float, float, SolverState, Tensor | None]] = []

    def watch(self, stepper: Stepper, t: float, h: float, end: float) -> None:
        """Remember a step that is about to be accepted."""
        stages = None
        if self.solver.dense:
            # The value at five fractions determines a polynomial of degree four exactly.
            nodes = [stepper.inside(h, k / 4) for k in range(1, 5)]
            stages = self._kept(torch.stack([stepper.state[0], *nodes]))
        self._keys.append(t if h > 0 else -t)
        self._steps.append((t, h, tuple(self._kept(part) for part in stepper.state), stages))
        self.reached = end

    def _kept(self, value: Tensor) -> Tensor:
        return value if self.graph else value.detach()

    def __call__(self, t: float | Sequence[float] | Tensor) -> Any:
        """Return the state at time t, or the states at several, (times, …)."""
        times = torch.as_tensor(t, dtype=torch.float64).detach()
        if times.dim() > 1:
            raise ShapeError(
                explain(
                    "times",
                    expected="one, or a list of them",
                    got=f"shape {tuple(times.shape)}",
                    remedy="Flatten them.",
                )
            )
        with torch.set_grad_enabled(self.graph and torch.is_grad_enabled()):
            values = [self._at(time) for time in times.reshape(-1).tolist()]
            values = self._moving(t, times, values)
            stacked = torch.stack(values) if values else self.y0.new_empty(0, *self.y0.shape)
        if not self.graph:
            stacked = self._guard(stacked, t)
        return self.field.packing.unpack(stacked if times.dim() else stacked[0])

    def _moving(self, t: Any, times: Tensor, values: list[Tensor]) -> list[Tensor]:
        """Return values as functions of times that have a gradient."""
        if not (isinstance(t, Tensor) and t.requires_grad and torch.is_grad_enabled()):
            return values
        by = (t - t.detach()).reshape(-1).to(self.y0)
        place = times.reshape(-1).to(self.y0)
        return [
            drift(self.field, time, value, ahead, exact=True)
            for time, value, ahead in zip(place, values, by, strict=True)
        ]

    def _at(self, t: float) -> Tensor:
        low, high = sorted((self.start, self.reached))
        slack = 1e-12 * max(abs(low), abs(high))
        if not low - slack <= t <= high + slack:
            raise OptionError(
                explain(
                    "time",
                    expected=f"from {low:.6g} to {high:.6g}, where the equation was solved",
                    got=f"{t:.6g}",
                    remedy="Solve further to look further.",
                )
            )
        t = min(max(t, low), high)
        if t == self.start:
            return self.y0
        key = t if self.reached > self.start else -t
        begin, h, state, stages = self._steps[max(0, bisect.bisect_right(self._keys, key) - 1)]
        if t == begin:
            return state[0]
        if stages is None:
            return self.solver.step(self.field, begin, t - begin, state)[0][0]
        return _quartic(stages, (t - begin) / h)


def _quartic(values: Tensor, fraction: float) -> Tensor:
    """Evaluate the polynomial through values at 0, ¼, ½, ¾, 1."""
    weights = quartic_weights(values.new_tensor(fraction, dtype=torch.float64))
    return torch.einsum("i,i...->...", torch.stack(weights).to(values.dtype), values)


def quartic_weights(fraction: Tensor) -> list[Tensor]:
    """Return the weights of values at 0, ¼, ½, ¾, 1 in the polynomial through them."""
    nodes, weights = [k / 4 for k in range(5)], []
    for i, node in enumerate(nodes):
        weight = torch.ones_like(fraction)
        for j, other in enumerate(nodes):
            if i != j:
                weight = weight * (fraction - other) / (node - other)
        weights.append(weight)
    return weights
