"""Which choices for a solve contradict each other: one table of conditions and messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from undamped._base.errors import OptionError, ShapeError
from undamped._base.options import convert
from undamped._base.registry import gradients
from undamped.ode.gradients.gradient import GradientMethod
from undamped.ode.loop.events import Event
from undamped.ode.methods.solver import Solver
from undamped.ode.settings import Gradient, Settings, Steps
from undamped.ode.state.packing import Packing

OnFailure = Literal["raise", "return"]


@dataclass(frozen=True)
class Choices:
    """What was chosen for a solve.

    Args:
        solver: The method.
        settings: Tolerances and limits.
        gradient: How it is differentiated.
        own_steps: Whether every sample has its own step size.
        compact: Whether the field sees only unfinished samples.
        event: What may end it.
        dense: Whether the solution is kept as a function of time.
    """

    solver: Solver
    settings: Settings
    gradient: GradientMethod
    own_steps: bool
    compact: bool
    event: Event | None
    dense: bool

    @property
    def implicit_samples(self) -> bool:
        """Whether every sample has its own step size and steps solve equations."""
        return self.own_steps and self.solver.implicit

    def refuse_conflicts(self) -> None:
        """Refuse the first choice that does not fit the others."""
        self.gradient.check(self.solver)
        for holds, message in CONFLICTS:
            if holds(self):
                raise OptionError(message(self))

    def check_shapes(self, packing: Packing, start: Tensor) -> None:
        """Refuse a start whose shapes the method, or its steps, cannot do with.

        Args:
            packing: Of the start.
            start: The start, packed.
        """
        shapes = f"shapes {[tuple(shape) for shape in packing.shapes]}"
        if self.solver.phase_space and not packing.single and len({*packing.shapes}) > 1:
            raise ShapeError(
                f"'{self.solver.name}' needs positions and momenta of equal shapes in y0, got "
                f"{shapes}. Give (q, p)."
            )
        if self.own_steps and not (start.dim() if packing.single else packing.batched):
            raise ShapeError(
                "With a step size per sample y0 must have the batch in its first dimension, the "
                f"same in every member, got {shapes}. Use steps='batch' for other states."
            )


def read_gradient(gradient: str, steps: str, on_failure: str) -> GradientMethod:
    """Return how a solve is differentiated, refusing unknown names."""
    convert(Gradient, gradient, "gradient")
    convert(Steps, steps, "steps")
    convert(OnFailure, on_failure, "on_failure")
    return gradients[gradient]()


def _method(c: Choices) -> str:
    return f"'{c.solver.name}'" + (" with a fixed step_size" if c.settings.step_size else "")


CONFLICTS: Sequence[tuple[Callable[[Choices], bool], Callable[[Choices], str]]] = (
    (
        lambda c: c.settings.checkpoint_steps != 1 and not c.gradient.keeps_states,
        lambda c: (
            "options.checkpoint_steps needs gradient='checkpoint', got "
            f"gradient='{c.gradient.name}'."
        ),
    ),
    (
        lambda c: c.own_steps and c.settings.norm is not None,
        lambda c: (
            "options.norm needs one step size for the batch, got one per sample. Leave out norm or "
            "steps='sample'; rtol and atol may be tensors."
        ),
    ),
    (
        lambda c: c.own_steps and bool(c.settings.stops or c.settings.min_step),
        lambda c: (
            "options.step_t, jump_t and min_step need one step size for the batch, got one per "
            "sample. Leave them out, or steps='sample'."
        ),
    ),
    (
        lambda c: c.compact and not c.own_steps,
        lambda c: (
            "compact needs steps='sample': all samples of a batch with one step size finish "
            "together."
        ),
    ),
    (
        lambda c: (
            c.own_steps
            and not (c.solver.per_sample and c.solver.adaptive and c.settings.step_size is None)
        ),
        lambda c: (
            "A step size per sample needs a method that chooses its steps for each sample, got "
            f"{_method(c)}. Use 'dopri5', 'tsit5', 'bosh3', 'heun', 'dopri8', or for stiff fields "
            "'radau5', 'sdirk4' or 'trbdf2'."
        ),
    ),
    (
        lambda c: c.implicit_samples and (c.compact or c.gradient.solves_back),
        lambda c: (
            f"'{c.solver.name}' with a step size per sample needs gradient='checkpoint' or "
            "'backprop' and compact=False, got "
            f"{'compact=True' if c.compact else repr(c.gradient.name)}. Leave that out, or use an "
            "explicit method."
        ),
    ),
    (
        lambda c: c.implicit_samples and (c.event is not None or c.dense),
        lambda c: (
            f"'{c.solver.name}' with a step size per sample takes no "
            f"{'dense=True' if c.event is None else 'event'}. Use steps='batch', or an explicit "
            "method."
        ),
    ),
    (
        lambda c: c.own_steps and c.event is not None and not c.event.terminal,
        lambda c: (
            "With a step size per sample an event ends its sample, got terminal=False. Use "
            "steps='batch', or dense=True and locate the events afterwards."
        ),
    ),
)
"""Conditions that are refused, with their messages; the first that holds is raised."""
