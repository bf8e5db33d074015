"""The gradient methods: checkpoints, back-propagation, reversible steps, adjoint equation.

`backprop` stores the graph of the forward pass; the others run it without one and evaluate the
field again in the backward pass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, TypeVar

from torch import Tensor

from undamped._base.errors import OptionError
from undamped._base.registry import gradients
from undamped.ode.gradients.adjoint import AdjointSolve, ExplicitAdjoint, SampleAdjoint
from undamped.ode.gradients.replay import Replay
from undamped.ode.methods.solver import Solver

if TYPE_CHECKING:
    from undamped.ode.problem import Problem

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
        """Return the state at the end."""
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
        """Refuse a method for positions and momenta, which the adjoint does not have."""
        if solver.phase_space:
            raise OptionError(
                "gradient='adjoint' needs a method for any state, since the adjoint has no "
                f"positions and momenta, got '{solver.name}'. Use gradient='checkpoint' or "
                "'reversible', which are exact."
            )
        if solver.rotates:
            raise OptionError(
                "gradient='adjoint' needs a method for any state, since adjoint and parameters do "
                f"not only rotate, got '{solver.name}'. Use gradient='checkpoint', which is exact."
            )
        if solver.switches:
            raise OptionError(
                f"gradient='adjoint' needs one method for all steps, got '{solver.name}'. Use "
                "gradient='checkpoint', or method='radau5'."
            )

    def saved(self, problem: Problem, values: Tensor) -> Sequence[Tensor]:
        """Return the outputs."""
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
