"""How the field of a model is solved: the options of all continuous-depth models."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from undamped._base.errors import OptionError
from undamped._base.options import Default, PositiveFloat, PositiveInt, options_in
from undamped.ode import Solver
from undamped.ode.settings import Gradient

TOLERANCE = "Relative and absolute tolerance."


class SolveOptions(TypedDict, total=False):
    """How the field of a model is solved: method, tolerance or step size, gradient."""

    method: Annotated[str, Default("dopri5", "Solver.")]
    tolerance: Annotated[PositiveFloat, Default(1e-3, TOLERANCE)]
    step_size: Annotated[
        PositiveFloat | None,
        Default(
            None,
            "Size of all steps, instead of a tolerance; methods without step control, such as "
            "rk4, need it.",
        ),
    ]
    gradient: Annotated[Gradient, Default("checkpoint", "How gradients are taken.")]


class FlowOptions(TypedDict, total=False):
    """How a flow solves its field: method, tolerances or step size, most steps, gradient."""

    method: Annotated[str | Solver, Default("dopri5", "A solver or its registry name.")]
    rtol: Annotated[
        PositiveFloat | None,
        Default(None, "Relative tolerance, where the method chooses its steps."),
    ]
    atol: Annotated[PositiveFloat | None, Default(None, "Absolute tolerance, likewise.")]
    step_size: Annotated[
        PositiveFloat | None,
        Default(None, "Fixed step size, for methods that do not, or to keep the cost fixed."),
    ]
    max_steps: Annotated[PositiveInt, Default(100_000, "Steps after which to give up.")]
    gradient: Annotated[Gradient, Default("checkpoint", "How gradients are taken.")]


def solver_arguments(options: SolveOptions, group: type = SolveOptions) -> dict[str, Any]:
    """Return method, gradient and either tolerances or a step size, as flows take them.

    Args:
        options: All options, as `checked` completes them.
        group: The group of these options; its default tolerance counts as unset, since a
            tolerance has no effect on fixed steps.
    """
    arguments = {"method": options["method"], "gradient": options["gradient"]}  # type: ignore[typeddict-item]
    tolerance, step_size = options["tolerance"], options["step_size"]  # type: ignore[typeddict-item]
    if step_size is None:
        return {**arguments, "rtol": tolerance, "atol": tolerance}
    if tolerance != options_in(group)["tolerance"].default:
        raise OptionError(
            f"tolerance={tolerance:g} has no effect with step_size, which fixes the steps. Leave "
            "out one of the two."
        )
    return {**arguments, "step_size": step_size}
