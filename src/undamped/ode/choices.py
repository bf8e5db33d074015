"""Whether what was chosen for a solve fits together: one table of what is refused, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from torch import Tensor

from undamped._base.errors import OptionError, ShapeError, explain
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
        own_steps: Whether every sample has a step size of its own.
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
        """Whether samples have steps of their own that solve equations."""
        return self.own_steps and self.solver.implicit

    def refuse_misfits(self) -> None:
        """Refuse the first choice that does not fit the others."""
        self.gradient.check(self.solver)
        for misfit in MISFITS:
            if misfit.holds(self):
                raise OptionError(
                    explain(
                        misfit.what.format(method=self.solver.name),
                        expected=misfit.expected,
                        got=misfit.got(self),
                        remedy=misfit.remedy,
                    )
                )

    def refuse_shapes(self, packing: Packing, start: Tensor) -> None:
        """Refuse a start whose shapes the method, or its steps, cannot do with.

        Args:
            packing: Of the start.
            start: The start, packed.
        """
        shapes = f"shapes {[tuple(shape) for shape in packing.shapes]}"
        if self.solver.phase_space and not packing.single and len({*packing.shapes}) > 1:
            raise ShapeError(
                explain(
                    f"the start y0 of '{self.solver.name}'",
                    expected="positions and momenta of equal shapes",
                    got=shapes,
                    remedy="Give (q, p), one momentum for every position.",
                )
            )
        if self.own_steps and not (start.dim() if packing.single else packing.batched):
            raise ShapeError(
                explain(
                    "the start y0",
                    expected="a batch in its first dimension, the same in every member",
                    got=shapes,
                    remedy="Steps of their own belong to samples; use steps='batch' for other "
                    "states.",
                )
            )


def gradient_method(gradient: str, steps: str, on_failure: str) -> GradientMethod:
    """Return how a solve is differentiated, refusing words that nobody knows."""
    convert(Gradient, gradient, "gradient")
    convert(Steps, steps, "steps")
    convert(OnFailure, on_failure, "on_failure")
    return gradients[gradient]()


class Misfit(NamedTuple):
    """Choices that do not go together.

    Args:
        holds: Whether they were made.
        what: Which, {method} standing for the name of the method.
        expected: What would go with the others.
        got: What was chosen.
        remedy: What to do.
    """

    holds: Callable[[Choices], bool]
    what: str
    expected: str
    got: Callable[[Choices], str]
    remedy: str


def _chosen_method(c: Choices) -> str:
    return f"'{c.solver.name}'" + (" with a fixed step_size" if c.settings.step_size else "")


MISFITS = (
    Misfit(
        lambda c: c.settings.piece != 1 and not c.gradient.keeps_states,
        "options.piece",
        "gradient='checkpoint', which recomputes pieces",
        lambda c: f"gradient='{c.gradient.name}'",
        "Leave piece out.",
    ),
    Misfit(
        lambda c: c.own_steps and c.settings.norm is not None,
        "options.norm",
        "one step size for the batch, whose error it measures",
        lambda c: "a step size for every sample",
        "Leave norm out, or steps='sample'; rtol and atol may be tensors.",
    ),
    Misfit(
        lambda c: c.own_steps and bool(c.settings.stops or c.settings.min_step),
        "options.step_t, jump_t and min_step",
        "one step size for the batch",
        lambda c: "a step size for every sample",
        "Leave them out, or steps='sample'.",
    ),
    Misfit(
        lambda c: c.compact and not c.own_steps,
        "compact",
        "steps='sample'",
        lambda c: "one step size for the batch",
        "All samples of a batch with one step size finish together.",
    ),
    Misfit(
        lambda c: (
            c.own_steps
            and not (c.solver.per_sample and c.solver.adaptive and c.settings.step_size is None)
        ),
        "a step size for every sample",
        "a method that chooses its steps, and can for each",
        _chosen_method,
        "Use 'dopri5', 'tsit5', 'bosh3', 'heun', 'dopri8', or for stiff fields 'radau5', 'sdirk4' "
        "or 'trbdf2'.",
    ),
    Misfit(
        lambda c: c.implicit_samples and (c.compact or c.gradient.solves_back),
        "a step size for every sample with '{method}'",
        "gradient='checkpoint' or 'backprop', and all samples shown to the field",
        lambda c: "compact=True" if c.compact else f"gradient='{c.gradient.name}'",
        "Leave that out, or use an explicit method.",
    ),
    Misfit(
        lambda c: c.implicit_samples and (c.event is not None or c.dense),
        "a step size for every sample with '{method}'",
        "output times alone",
        lambda c: "dense=True" if c.event is None else "an event",
        "Use steps='batch', or an explicit method.",
    ),
    Misfit(
        lambda c: c.own_steps and c.event is not None and not c.event.terminal,
        "event",
        "one that ends its sample, where samples have steps of their own",
        lambda c: "terminal=False",
        "Use steps='batch', or dense=True and look for the events afterwards.",
    ),
)
"""What is refused; the first that holds is told."""
