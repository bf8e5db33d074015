"""Dense output: the solution as a function of time, over the whole solve."""

from __future__ import annotations

import bisect
from typing import Any

import torch
from torch import Tensor

from undamped.errors import OptionError, explain
from undamped.solvers.evaluation import CountedField
from undamped.solvers.solver import Solver, SolverState, Stepper


class DenseOutput:
    """Call it with a time inside the solve to get the state there.

    Methods with a polynomial inside their steps answer from it; for the others a step is taken
    from the nearest earlier node, so that the answer has the method's own order. Values only: to
    differentiate a value, ask for it among the output times.

    Args:
        solver: The method.
        field: The field.
    """

    def __init__(self, solver: Solver, field: CountedField) -> None:
        self.solver, self.field = solver, field
        self._starts: list[float] = []
        self._steps: list[tuple[float, float, SolverState, Tensor | None]] = []

    def watch(self, stepper: Stepper, t: float, h: float) -> None:
        """Remember a step that is about to be accepted."""
        stages = None
        if self.solver.dense:
            # The value at five fractions determines a polynomial of degree four exactly.
            nodes = [stepper.inside(h, k / 4).detach() for k in range(1, 5)]
            stages = torch.stack([stepper.state[0].detach(), *nodes])
        self._starts.append(t)
        self._steps.append((t, h, tuple(part.detach() for part in stepper.state), stages))

    @torch.no_grad()
    def __call__(self, t: float) -> Any:
        """Return the state at time t."""
        t = float(t)
        first, (last, size, _, _) = self._starts[0], self._steps[-1]
        low, high = sorted((first, last + size))
        if not low <= t <= high:
            raise OptionError(
                explain(
                    "time",
                    expected=f"from {low:.6g} to {high:.6g}, where the equation was solved",
                    got=f"{t:.6g}",
                    remedy="Solve further to look further.",
                )
            )
        forward = size > 0
        keys = self._starts if forward else [-start for start in self._starts]
        index = max(0, bisect.bisect_right(keys, t if forward else -t) - 1)
        begin, h, state, stages = self._steps[index]
        if t == begin:
            return self.field.packing.unpack(state[0])
        if stages is None:
            return self.field.packing.unpack(
                self.solver.step(self.field, begin, t - begin, state)[0][0]
            )
        return self.field.packing.unpack(_quartic(stages, (t - begin) / h))


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
