"""How a model's solver takes its steps: within a tolerance, or all of one size."""

from __future__ import annotations

from typing import Any

from undamped.errors import OptionError, explain
from undamped.options import options_of


def chosen_steps(model: type[Any], tolerance: float, step_size: float | None) -> dict[str, Any]:
    """Return rtol, atol and step_size for a solver; a tolerance has no use beside fixed steps.

    Args:
        model: The class whose option `tolerance` is; its default counts as not said.
        tolerance: Relative and absolute tolerance.
        step_size: Size of all steps, or None.
    """
    if step_size is None:
        return {"rtol": tolerance, "atol": tolerance}
    if tolerance != options_of(model)["tolerance"].default:
        raise OptionError(
            explain(
                "tolerance",
                expected="to be left out with step_size, which fixes the steps",
                got=tolerance,
                remedy="Leave out one of the two.",
            )
        )
    return {"step_size": step_size}
