"""Going back over recorded steps: exact gradients of the numbers the solve returned.

Step sizes count as constants, so that exactly the chain of accepted steps is differentiated. The
state before each segment of steps is either stored in the forward pass (checkpoints) or recomputed
by undoing the steps (a reversible method), in which case nothing grows with their number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from undamped.ode.dependencies import LateTensors, next_node
from undamped.ode.gradients.adjoint import add_gradients
from undamped.ode.gradients.unchanged import ROUNDING, SegmentComparison, refuse_wrong_start
from undamped.ode.methods.solver import SolverState
from undamped.ode.record import Step

if TYPE_CHECKING:
    from undamped.ode.gradients.methods import Gradients
    from undamped.ode.problem import Problem


class Replay:
    """The backward pass through the recorded steps of a solve.

    Args:
        problem: The solve, with its run.
    """

    def __init__(self, problem: Problem) -> None:
        assert problem.context is not None
        settings, self.solver, self.field = problem.settings, problem.solver, problem.field
        self.trace, self.tensors, self.jumps = problem.run.trace, problem.tensors, settings.jumps
        self.start = problem.times[0].item() if problem.times.dim() == 1 else problem.times[0]
        self.checkpoint_steps = settings.checkpoint_steps
        final = self.trace.final[0]
        self.allowed = ROUNDING * problem.context.rounding(final.dtype) * self.checkpoint_steps
        """Distance that is allowed between the ends of a step, relative to the state."""
        if self.solver.implicit:
            # Equations are solved to a tolerance, from predictions that may differ.
            rtol = float(torch.as_tensor(settings.rtol).max())
            self.allowed += max(math.sqrt(torch.finfo(final.dtype).eps), 10 * rtol)
        self.totals: list[Tensor | None] = [None] * len(self.tensors)
        self.late = LateTensors(self.tensors)

    def from_checkpoints(self, y0: Tensor, gradients: Tensor) -> Gradients:
        """Return the gradients with respect to y0 and the tensors."""
        end, cotangent = self.trace.final, self._zeros(self.trace.final)
        comparison = SegmentComparison("checkpoint", self.allowed)
        begins = list(reversed(range(0, len(self.trace), self.checkpoint_steps)))
        for begin in begins:
            state = self.trace.checkpoints[begin // self.checkpoint_steps]
            cotangent, reached = self._segment(state, self._steps(begin), cotangent, gradients)
            comparison.add(state, reached, end)
            end = state
        comparison.refuse(lambda number: self._repeat_exactly(begins[number]))
        self.late.refuse()
        return self._begin(y0, cotangent, gradients), self.totals

    def _steps(self, begin: int) -> list[Step]:
        """Return the steps of a segment."""
        end = min(begin + self.checkpoint_steps, len(self.trace))
        return [self.trace[number] for number in range(begin, end)]

    @torch.no_grad()
    def _repeat_exactly(self, begin: int) -> tuple[SolverState, SolverState, str]:
        """Repeat a segment as in the forward pass; return its end now and in the forward pass."""
        states = [*self.trace.checkpoints, self.trace.final]
        segment = begin // self.checkpoint_steps
        state, steps = states[segment], [s for s in self._steps(begin) if s.landed is None]
        for step in steps:
            state, _ = self._repeat(step, state, None)
        times = [torch.as_tensor(step.t).double().mean() for step in steps]
        position = f"near t = {float(times[0]):.6g}" if times else "in the solve"
        return state, states[segment + 1], position

    def by_reversing(self, y0: Tensor, gradients: Tensor) -> Gradients:
        """Return the same gradients, computing each step's start by undoing the step."""
        state, cotangent = self.trace.final, self._zeros(self.trace.final)
        for step in reversed(self.trace):
            with torch.no_grad(), self.field.within(self.jumps.window(step.t, step.h)):
                state = self.solver.reverse(self.field, step.t, step.h, state)
            cotangent, _ = self._segment(state, [step], cotangent, gradients)
        refuse_wrong_start(y0, state[0], self.trace.final[0])
        self.late.refuse()
        return self._begin(y0, cotangent, gradients), self.totals

    def _zeros(self, state: SolverState) -> list[Tensor]:
        return [torch.zeros_like(part) for part in state]

    def _segment(
        self, state: SolverState, steps: Sequence[Step], cotangent: list[Tensor], gradients: Tensor
    ) -> tuple[list[Tensor], SolverState]:
        """Repeat some steps with gradients; return the gradient before them, and their end."""
        outputs: list[Tensor] = []
        cotangents: list[Tensor] = []
        with torch.enable_grad():
            first_node = next_node()
            leaves = reached = tuple(part.detach().requires_grad_() for part in state)
            for step in steps:
                if step.landed is not None:
                    outputs.append(reached[0][step.landed])
                    cotangents.append(gradients[step.outputs[0][0]][step.landed])
                    continue
                fractions = [fraction for _, fraction in step.outputs if fraction is not None]
                reached, inside = self._repeat(step, reached, fractions)
                values = iter(inside)
                for index, fraction in step.outputs:
                    outputs.append(reached[0] if fraction is None else next(values))
                    cotangents.append(gradients[index])
            self.late.check([*reached, *outputs], leaves, first_node)
        grad_state = self._differentiate([*reached, *outputs], [*cotangent, *cotangents], leaves)
        # Without their graph, which must be freed before `late.refuse` checks for leaves.
        return grad_state, tuple(part.detach() for part in reached)

    def _repeat(
        self, step: Step, state: SolverState, fractions: Sequence[float] | None
    ) -> tuple[SolverState, list[Tensor]]:
        """Return the end of a step, and the values at fractions of it.

        Without fractions the step is repeated bit for bit as in the forward pass, else
        differentiably.
        """
        part = state if step.rows is None else (state[0][step.rows],)
        with self.field.within(self.jumps.window(step.t, step.h)):
            if fractions is None:
                new, inside = self.solver.repeat(self.field, step.t, step.h, part), []
            else:
                new, inside = self.solver.replay(self.field, step.t, step.h, part, fractions)
        if step.rows is not None:
            new = (state[0].index_copy(0, step.rows, new[0]),)
        return new, inside

    def _begin(self, y0: Tensor, cotangent: list[Tensor], gradients: Tensor) -> Tensor:
        with torch.enable_grad():
            leaf = y0.detach().requires_grad_()
            state = self.solver.start(self.field, self.start, leaf)
        (grad_start,) = self._differentiate(state, cotangent, (leaf,))
        return grad_start + gradients[0]

    def _differentiate(
        self, outputs: Sequence[Tensor], cotangents: Sequence[Tensor], leaves: SolverState
    ) -> list[Tensor]:
        pairs = [(o, p) for o, p in zip(outputs, cotangents, strict=True) if o.requires_grad]
        if not pairs:
            return self._zeros(leaves)
        gradients = torch.autograd.grad(
            [output for output, _ in pairs],
            [*leaves, *self.tensors],
            [cotangent for _, cotangent in pairs],
            allow_unused=True,
        )
        add_gradients(self.totals, gradients[len(leaves) :])
        return [
            torch.zeros_like(leaf) if part is None else part
            for part, leaf in zip(gradients, leaves, strict=False)
        ]
