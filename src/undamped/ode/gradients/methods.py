"""The gradient methods: checkpoints, back-propagation, reversible steps, adjoint equation.

`backprop` stores the graph of the forward pass; the others run it without one and evaluate the
field again in the backward pass. Going back over recorded steps gives exact gradients of the
numbers the solve returned: step sizes count as constants, so that exactly the chain of accepted
steps is differentiated. The state before each segment of steps is either stored in the forward pass
(checkpoints) or recomputed by undoing the steps (a reversible method), in which case nothing grows
with their number.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, TypeVar

import torch
from torch import Tensor

from undamped._base.errors import OptionError
from undamped._base.registry import gradients
from undamped.ode.dependencies import LateTensors, next_node
from undamped.ode.gradients.adjoint import (
    AdjointSolve,
    ExplicitAdjoint,
    SampleAdjoint,
    add_gradients,
)
from undamped.ode.gradients.repetition import ROUNDING, SegmentComparison, refuse_wrong_start
from undamped.ode.methods.solver import Solver, SolverState
from undamped.ode.record import Step

if TYPE_CHECKING:
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


Gradients = tuple[Tensor, list[Tensor | None]]
"""Gradients with respect to the start and to every tensor the field depends on."""
MethodClass = TypeVar("MethodClass", bound="type[GradientMethod]")


class GradientMethod(ABC):
    """One way of differentiating a solve."""

    name: ClassVar[str] = ""
    keeps_graph: ClassVar[bool] = False
    """Autograd records the forward pass; no other backward pass is needed."""
    keeps_states: ClassVar[bool] = False
    """The states at the start of every segment are stored."""
    records_steps: ClassVar[bool] = False
    """Times and sizes of the steps are recorded."""
    solves_back: ClassVar[bool] = False
    """The backward pass solves another equation."""
    samples_field: ClassVar[bool] = False
    """Some evaluations of the forward pass are stored, and compared in the backward pass."""

    def check(self, solver: Solver) -> None:
        """Refuse a solver this method cannot differentiate."""
        return

    def saved(self, problem: Problem, values: Tensor) -> Sequence[Tensor]:
        """Return what is stored for the backward pass."""
        return ()

    @abstractmethod
    def backward(self, problem: Problem, y0: Tensor, values: Tensor, incoming: Tensor) -> Gradients:
        """Return the gradients with respect to y0 and the tensors of the problem.

        Args:
            problem: The solve, with its run.
            y0: The start value.
            values: The outputs, (outputs, …).
            incoming: The gradients of the outputs.
        """


def register_gradient(name: str) -> Callable[[MethodClass], MethodClass]:
    """Return a decorator that names a gradient method and enters it in the registry."""

    def enter(method: MethodClass) -> MethodClass:
        method.name = name
        return gradients.register(name)(method)

    return enter


@register_gradient("checkpoint")
class Checkpoint(GradientMethod):
    """Repeat the recorded steps, a segment at a time, from stored states: exact."""

    keeps_states = True

    def saved(self, problem: Problem, values: Tensor) -> Sequence[Tensor]:
        """Return the states at the starts of the segments."""
        return [part for state in problem.run.trace.checkpoints for part in state]

    def backward(self, problem: Problem, y0: Tensor, values: Tensor, incoming: Tensor) -> Gradients:
        """Repeat the segments, the last first."""
        return Replay(problem).from_checkpoints(y0, incoming)


@register_gradient("backprop")
class Backprop(GradientMethod):
    """The complete graph is stored: gradients of gradients work, and nothing is repeated."""

    keeps_graph = True

    def backward(self, problem: Problem, y0: Tensor, values: Tensor, incoming: Tensor) -> Gradients:
        """Never called: autograd does it."""
        raise NotImplementedError


@register_gradient("reversible")
class Reversible(GradientMethod):
    """Exact to rounding; memory independent of the number of steps."""

    records_steps = True
    samples_field = True

    def check(self, solver: Solver) -> None:
        """Refuse a method whose steps cannot be undone."""
        if not solver.reversible:
            raise OptionError(
                f"gradient='reversible' needs a reversible method, got '{solver.name}'. Use "
                "method='reversible-heun' or 'alf', or McCallumFoster(base='rk4')."
            )

    def saved(self, problem: Problem, values: Tensor) -> Sequence[Tensor]:
        return problem.run.trace.final

    def backward(self, problem: Problem, y0: Tensor, values: Tensor, incoming: Tensor) -> Gradients:
        """Undo the steps, the last first."""
        return Replay(problem).by_reversing(y0, incoming)


@register_gradient("adjoint")
class Adjoint(GradientMethod):
    """The gradient of the true solution rather than of the numbers returned."""

    solves_back = True
    samples_field = True

    def check(self, solver: Solver) -> None:
        """Refuse a method for particular states, which the adjoint is not one of."""
        if solver.phase_space or solver.rotates:
            lacks = "do not only rotate" if solver.rotates else "have no positions and momenta"
            raise OptionError(
                "gradient='adjoint' needs a method for any state, since adjoint and parameters "
                f"{lacks}, got '{solver.name}'. Use gradient='checkpoint', which is exact."
            )
        if solver.switches:
            raise OptionError(
                f"gradient='adjoint' needs one method for all steps, got '{solver.name}'. Use "
                "gradient='checkpoint', or method='radau5'."
            )

    def saved(self, problem: Problem, values: Tensor) -> Sequence[Tensor]:
        return [values]

    def backward(self, problem: Problem, y0: Tensor, values: Tensor, incoming: Tensor) -> Gradients:
        """Solve back from the last output to the first."""
        solver, settings = problem.backward or (problem.solver, problem.settings)
        if solver.implicit and problem.backward is not None and settings.norm is not None:
            raise OptionError(
                "norm in adjoint_options needs an explicit method, whose adjoint state holds the "
                f"parameters too, got '{solver.name}'. Leave norm out."
            )
        kind = AdjointSolve if solver.implicit else ExplicitAdjoint
        return (SampleAdjoint if problem.per_sample else kind)(problem, values).solve(incoming)
