"""Going back over recorded steps: exact gradients of the numbers the solve returned.

Step sizes are taken as given, so what is differentiated is exactly the chain of accepted steps. The
state before each segment of steps is either stored in the forward pass (checkpoints) or recomputed
by undoing the steps (a reversible method), in which case nothing grows with their number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from undamped.ode.dependencies import LateTensors, next_node
from undamped.ode.field import CountedField
from undamped.ode.gradients.batch_adjoint import add_gradients
from undamped.ode.gradients.gradient import Gradients
from undamped.ode.gradients.unchanged import ROUNDING, SegmentComparison, undone
from undamped.ode.loop.route import Jumps
from undamped.ode.methods.solver import Number, Solver, SolverState
from undamped.ode.record import Step, Trace

if TYPE_CHECKING:
    from undamped.ode.problem import Problem


class Replay:
    """The backward pass through a trace.

    Args:
        solver: The method.
        field: The field, counted.
        trace: The recorded steps.
        start: Time of the start.
        tensors: What the field depends on, besides the state.
        checkpoint_steps: Number of steps in a segment, with checkpoints.
        allowed: How far from its first end a repeated step may end, relative to the state.
        jumps: On which side of a jump steps evaluate their field.
    """

    def __init__(
        self,
        solver: Solver,
        field: CountedField,
        trace: Trace,
        start: Number,
        tensors: Sequence[Tensor],
        checkpoint_steps: int,
        allowed: float,
        jumps: Jumps,
    ) -> None:
        self.jumps = jumps
        self.solver, self.field, self.trace, self.start = solver, field, trace, start
        self.tensors, self.checkpoint_steps, self.allowed = list(tensors), checkpoint_steps, allowed
        self.totals: list[Tensor | None] = [None] * len(self.tensors)
        self.late = LateTensors(self.tensors)

    @classmethod
    def of(cls, problem: Problem) -> Replay:
        """Return the backward pass of a solve."""
        assert problem.run is not None and problem.context is not None
        start, settings, solver = problem.times[0], problem.settings, problem.solver
        final = problem.run.trace.final[0]
        allowed = ROUNDING * problem.context.rounding(final.dtype) * settings.checkpoint_steps
        if solver.implicit:
            # Equations are solved to a tolerance, from guesses that may differ.
            allowed += max(math.sqrt(torch.finfo(final.dtype).eps), 10 * settings.loosest_rtol)
        return cls(
            solver,
            problem.field,
            problem.run.trace,
            start.item() if start.dim() == 0 else start,
            problem.tensors,
            settings.checkpoint_steps,
            allowed,
            settings.jumps,
        )

    def from_checkpoints(self, y0: Tensor, gradients: Tensor) -> Gradients:
        """Return the gradients with respect to y0 and the tensors."""
        steps, cotangent = self.trace.steps, self._nothing(self.trace.final)
        comparison, end = SegmentComparison("checkpoint", self.allowed), self.trace.final
        begins = list(reversed(range(0, len(steps), self.checkpoint_steps)))
        for begin in begins:
            state = self.trace.checkpoints[begin // self.checkpoint_steps]
            segment = steps[begin : begin + self.checkpoint_steps]
            cotangent, reached = self._segment(state, segment, cotangent, gradients)
            comparison.add(state, reached, end)
            end = state
        comparison.refuse(lambda number: self._again(begins[number]))
        self.late.refuse()
        return self._begin(y0, cotangent, gradients), self.totals

    @torch.no_grad()
    def _again(self, begin: int) -> tuple[SolverState, SolverState, str]:
        """Repeat a segment as in the forward pass; return what it reaches now and reached then."""
        end, states = begin + self.checkpoint_steps, self.trace.checkpoints
        state = states[begin // self.checkpoint_steps]
        reached = (
            states[end // self.checkpoint_steps]
            if end < len(self.trace.steps)
            else self.trace.final
        )
        steps = self.trace.steps[begin:end]
        for step in steps:
            if step.landed is not None:
                continue
            with self._beside_jumps(step):
                if step.rows is None:
                    state = self.solver.repeat(self.field, step.t, step.h, state)
                else:
                    part = (state[0][step.rows],)
                    (new,) = self.solver.repeat(self.field, step.t, step.h, part)
                    state = (state[0].index_copy(0, step.rows, new),)
        times = [torch.as_tensor(step.t).double().mean() for step in steps if step.landed is None]
        return state, reached, f"near t = {float(times[0]):.6g}" if times else "in the solve"

    def by_reversing(self, y0: Tensor, gradients: Tensor) -> Gradients:
        """Return the same gradients, computing each step's start by undoing the step."""
        state, cotangent = self.trace.final, self._nothing(self.trace.final)
        for step in reversed(self.trace.steps):
            with torch.no_grad(), self._beside_jumps(step):
                state = self.solver.reverse(self.field, step.t, step.h, state)
            cotangent, _ = self._segment(state, [step], cotangent, gradients)
        undone(y0, state[0], self.trace.final[0])
        self.late.refuse()
        return self._begin(y0, cotangent, gradients), self.totals

    def _nothing(self, state: SolverState) -> list[Tensor]:
        return [torch.zeros_like(part) for part in state]

    def _segment(
        self, state: SolverState, steps: Sequence[Step], cotangent: list[Tensor], gradients: Tensor
    ) -> tuple[list[Tensor], SolverState]:
        """Repeat some steps with gradients; return the gradient before them, and their end."""
        with torch.enable_grad():
            begun = next_node()
            leaves = tuple(part.detach().requires_grad_() for part in state)
            reached, outputs, cotangents = leaves, [], []
            for step in steps:
                reached, outputs, cotangents = self._repeat(
                    step, reached, outputs, cotangents, gradients
                )
            self.late.look([*reached, *outputs], leaves, begun)
        grad_state = self._differentiate([*reached, *outputs], [*cotangent, *cotangents], leaves)
        # Without their graph, which must be freed before `late.refuse` checks for leaves.
        return grad_state, tuple(part.detach() for part in reached)

    def _repeat(
        self,
        step: Step,
        state: SolverState,
        outputs: list[Tensor],
        cotangents: list[Tensor],
        gradients: Tensor,
    ) -> tuple[SolverState, list[Tensor], list[Tensor]]:
        if step.landed is not None:
            ((index, _),) = step.outputs
            outputs.append(state[0][step.landed])
            cotangents.append(gradients[index][step.landed])
            return state, outputs, cotangents
        fractions = [fraction for _, fraction in step.outputs if fraction is not None]
        with self._beside_jumps(step):
            if step.rows is None:
                state, inside = self.solver.replay(self.field, step.t, step.h, state, fractions)
            else:
                part = (state[0][step.rows],)
                (new,), inside = self.solver.replay(self.field, step.t, step.h, part, fractions)
                state = (state[0].index_copy(0, step.rows, new),)
        values = iter(inside)
        for index, fraction in step.outputs:
            outputs.append(state[0] if fraction is None else next(values))
            cotangents.append(gradients[index])
        return state, outputs, cotangents

    def _beside_jumps(self, step: Step) -> AbstractContextManager[None]:
        return self.field.within(self.jumps.window(step.t, step.h))

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
            return [torch.zeros_like(leaf) for leaf in leaves]
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
