"""Explicit Runge–Kutta: the plain step, and a stepper with little cost beyond the field.

Times and step sizes are plain numbers, so nothing waits for a device except one norm per step;
all stage times of a step are made by one operation; without a graph through the sums a stage value
is summed in place; and the last evaluation of a step is the first of the next. Tried and slower:
all stages in one matrix with a product for each stage value, for its copies and views; and sums
transposed by hand with a graph for each evaluation alone, for entering autograd at every stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar

import torch
from torch import Tensor

from undamped.solvers.explicit.tableau import Row, Tableau, Terms, terms_of
from undamped.solvers.solver import Field, Number, Solver, SolverState, Stepper


class RungeKutta(Solver):
    """Explicit Runge–Kutta with a tableau."""

    tableau: ClassVar[Tableau]
    per_sample = True

    def stages(
        self,
        field: Field,
        t: Number,
        h: Number,
        y: Tensor,
        *,
        first: Tensor | None = None,
        last: bool = False,
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the new value and the stages, differentiably.

        Args:
            field: The field.
            t: Time at the start; a column (batch, 1, …) where steps differ between samples.
            h: Step size, of the same kind as t.
            y: Value at the start.
            first: f(t, y), where it is known.
            last: Whether f at the end is wanted too.
        """
        tableau = self.tableau
        nodes = (*tableau.nodes, 1.0) if last and tableau.reuses_last else tableau.nodes
        times = stage_times(t, h, nodes, y)
        taken = [field(times[0], y) if first is None else first]
        for terms, time in zip(tableau.row_terms, times[1:], strict=False):
            taken.append(field(time, combine_terms(y, h, terms, taken)))
        y1 = combine_terms(y, h, tableau.weight_terms, taken)
        if last and tableau.reuses_last:
            taken.append(field(times[-1], y1))
        return y1, taken

    def step(
        self, field: Field, t: Number, h: Number, state: SolverState
    ) -> tuple[SolverState, Tensor | None]:
        """Step, with an error estimate where the tableau has one."""
        y1, taken = self.stages(field, t, h, state[0], last=True)
        return (y1,), self.estimate(h, taken)

    def increment(self, field: Field, t: Number, h: Number, y: Tensor) -> Tensor:
        """Return y' − y without adding it up: what a reversible wrapper needs."""
        _, taken = self.stages(field, t, h, y)
        return combine(None, h, self.tableau.weights, taken)

    def estimate(self, h: Number, taken: Sequence[Tensor]) -> Tensor | None:
        """Return the error estimate of a step from its stages."""
        terms = self.tableau.error_terms
        return combine_terms(None, h, terms, taken) if terms else None

    def replay(
        self, field: Field, t: Number, h: Number, state: SolverState, inside: Sequence[float] = ()
    ) -> tuple[SolverState, list[Tensor]]:
        """Repeat a step, without the evaluation that only the estimate needed."""
        y = state[0]
        y1, taken = self.stages(field, t, h, y, last=bool(inside))
        weights = [self.tableau.inside_weights(fraction) for fraction in inside]
        return (y1,), [combine(y, h, row, taken) for row in weights]

    def stepper(self, field: Field, t: Number, y: Tensor, first: Tensor | None) -> Stepper:
        """Return the stepper that reuses evaluations."""
        return RungeKuttaStepper(self, field, y, first)


def stage_times(t: Number, h: Number, nodes: Row, y: Tensor) -> Sequence[Tensor]:
    """Return t + c h for every node, as the tensors a field expects."""
    if isinstance(t, Tensor):
        return [(t + h * node).to(y.dtype) for node in nodes]
    return torch.add(t, _node_tensor(nodes, y.dtype, y.device), alpha=h).unbind()  # type: ignore[arg-type]


@lru_cache(maxsize=64)
def _node_tensor(nodes: Row, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return nodes as a tensor: making one anew costs as much as five small operations."""
    return torch.tensor(nodes, dtype=dtype, device=device)


def combine(y: Tensor | None, h: Number, row: Sequence[float], taken: Sequence[Tensor]) -> Tensor:
    """Return y + h Σ a_j k_j, differentiable any number of times where gradients are on."""
    return combine_terms(y, h, terms_of(tuple(row)), taken)


def combine_terms(y: Tensor | None, h: Number, terms: Terms, taken: Sequence[Tensor]) -> Tensor:
    """Return y + h Σ a_j k_j over the terms of a row that are not zero."""
    (j, a), *rest = terms
    if isinstance(h, Tensor):
        total = torch.mul(taken[j], a)
        for j, a in rest:
            total = torch.add(total, taken[j], alpha=a)
        total = h.to(total.dtype) * total
        return total if y is None else y + total
    total = torch.mul(taken[j], a * h) if y is None else torch.add(y, taken[j], alpha=a * h)
    if torch.is_grad_enabled():
        for j, a in rest:
            total = torch.add(total, taken[j], alpha=a * h)
    else:
        for j, a in rest:
            total.add_(taken[j], alpha=a * h)
    return total


class RungeKuttaStepper(Stepper):
    """Runge–Kutta during one solve: the last evaluation of a step is the first of the next."""

    solver: RungeKutta

    def __init__(self, solver: RungeKutta, field: Field, y: Tensor, first: Tensor | None) -> None:
        self.solver, self.field, self.state = solver, field, (y,)
        self._first = first
        self._taken: list[Tensor] = []
        self._proposed = (y,)
        self._reuses = solver.tableau.reuses_last

    def attempt(self, t: Number, h: Number) -> tuple[Tensor, Tensor | None]:
        """Attempt a step."""
        y1, taken = self.solver.stages(
            self.field, t, h, self.state[0], first=self._first, last=True
        )
        # A step that is refused and tried again starts from the same first evaluation.
        self._first, self._taken, self._proposed = taken[0], taken, (y1,)
        if torch.is_grad_enabled():
            # Errors steer step sizes, and step sizes are taken as given.
            with torch.no_grad():
                return y1, self.solver.estimate(h, taken)
        return y1, self.solver.estimate(h, taken)

    def accept(self) -> None:
        """Keep the attempt."""
        self.state = self._proposed
        self._first = self._taken[-1] if self._reuses else None

    def inside(self, h: float, fraction: float) -> Tensor:
        """Return the value at a fraction of the step."""
        row = self.solver.tableau.inside_weights(fraction)
        return combine(self.state[0], h, row, self._taken)

    def stage_pair(self, h: float) -> tuple[Tensor, Tensor] | None:
        """Compare the last stage with f at the end of the step; both belong to the same time."""
        tableau = self.solver.tableau
        if not self._reuses or tableau.nodes[-1] != 1.0:
            return None
        with torch.no_grad():
            last = combine(self.state[0], h, tableau.rows[-1], self._taken)
            return self._taken[-1] - self._taken[-2], self._proposed[0] - last
