"""How models whose promise lies in their steps take them."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from undamped._base.options import Default, PositiveFloat
from undamped.ode.settings import Gradient

STEP = "Size of all steps; readings that lie further apart are reached in several."


class StepOptions(TypedDict, total=False):
    """How the steps of a symplectic model are taken: method, size, gradient."""

    method: Annotated[str, Default("leapfrog", "Solver: leapfrog, yoshida4, symplectic-euler, …")]
    step_size: Annotated[PositiveFloat, Default(0.1, STEP)]
    gradient: Annotated[
        Gradient,
        Default(
            "reversible",
            "How gradients are taken; 'reversible' undoes the steps, so that memory does not grow "
            "with their number.",
        ),
    ]


class FourthOrderOptions(StepOptions, total=False):
    """The same for models of few steps: of order four, and back-propagated."""

    method: Annotated[str, Default("yoshida4", "Solver: yoshida4, leapfrog, symplectic-euler, …")]
    gradient: Annotated[
        Gradient, Default("backprop", "How gradients are taken; 'reversible' for long windows.")
    ]


def step_arguments(chosen: StepOptions) -> dict[str, Any]:
    """Return method, step size and gradient as flows take them.

    Args:
        chosen: All options, as `checked` completes them.
    """
    said: dict[str, Any] = dict(chosen)
    return {name: said[name] for name in ("method", "step_size", "gradient")}
