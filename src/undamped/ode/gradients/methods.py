"""The gradient methods: checkpoints, back-propagation, reversible steps, adjoint equation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from undamped._base.errors import OptionError
from undamped.ode.gradients.batch_adjoint import BatchAdjoint
from undamped.ode.gradients.gradient import GradientMethod, Gradients, register_gradient
from undamped.ode.gradients.implicit_adjoint import ImplicitAdjoint
from undamped.ode.gradients.replay import Replay
from undamped.ode.gradients.sample_adjoint import SampleAdjoint
from undamped.ode.methods.solver import Solver

if TYPE_CHECKING:
    from undamped.ode.problem import Problem


@register_gradient("checkpoint")
class Checkpoint(GradientMethod):
    """Repeat the recorded steps, a segment at a time, from stored states: exact."""

    keeps_states = True

    def saved(self, problem: Problem, values: Tensor) -> Sequence[Tensor]:
        """Return the states at the starts of the segments."""
        assert problem.run is not None
        return [part for state in problem.run.trace.checkpoints for part in state]

    def backward(self, problem: Problem, y0: Tensor, values: Tensor, incoming: Tensor) -> Gradients:
        """Repeat the segments, the last first."""
        return Replay.of(problem).from_checkpoints(y0, incoming)


@register_gradient("backprop")
class Backprop(GradientMethod):
    """The whole graph is kept, so that gradients of gradients work and nothing is repeated."""

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
        assert problem.run is not None
        return problem.run.trace.final

    def backward(self, problem: Problem, y0: Tensor, values: Tensor, incoming: Tensor) -> Gradients:
        """Undo the steps, the last first."""
        return Replay.of(problem).by_reversing(y0, incoming)


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
        if problem.per_sample:
            return SampleAdjoint.of(problem, values).solve(incoming)
        solver, settings = problem.backward or (problem.solver, problem.settings)
        if solver.implicit and problem.backward is not None and settings.norm is not None:
            raise OptionError(
                "norm in adjoint_options needs an explicit method, whose adjoint state holds the "
                f"parameters too, got '{solver.name}'. Leave norm out."
            )
        kind = ImplicitAdjoint if solver.implicit else BatchAdjoint
        return kind.of(problem, values).solve(incoming)
