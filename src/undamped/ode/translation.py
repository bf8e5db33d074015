"""Options under the names torchdiffeq knows them by, as settings of our own."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import Tensor

from undamped._base.errors import OptionError, explain
from undamped.ode.loop.control import StepControl
from undamped.ode.methods.solver import Solver
from undamped.ode.settings import ADAPTIVE_ONLY, FIXED_ONLY, choose_solver

RENAMED = {"max_num_steps": "max_steps", "grid_points": "jump_t", "jump_locations": "jump_t"}
CONTROL = {"safety": "safety", "ifactor": "grow", "dfactor": "shrink"}
WITHOUT_EFFECT = ("dtype", "interp", "eps")
"""Times are double precision always, steps end at the output times, and jumps are left by the
smallest distance there is: nothing remains to be chosen."""
OF_METHODS = {"max_order": "order", "max_iters": "corrections"}


def translate(
    method: str | Solver | None,
    options: dict[str, Any] | None,
    func: Callable[..., Any],
    y0: Any,
    t: Tensor,
) -> tuple[Solver, dict[str, Any]]:
    """Return the method, and its options under our names.

    Args:
        method: A name, a solver, or None for the usual one.
        options: As a user gave them.
        func: The field, for a function that makes a grid.
        y0: The start, likewise.
        t: The output times, likewise.
    """
    solver = choose_solver("dopri5" if method is None else method)
    if options is None:
        return solver, {}
    if not isinstance(options, dict):
        raise OptionError(
            explain(
                "options",
                expected="settings by name",
                got=f"a {type(options).__name__}",
                remedy="Write them as {'step_size': 0.1}.",
            )
        )
    found: dict[str, Any] = {}
    control: dict[str, float] = {}
    for name, value in options.items():
        if name in OF_METHODS and hasattr(solver, OF_METHODS[name]):
            solver = type(solver)(**{OF_METHODS[name]: int(value)})
        elif name in CONTROL:
            control[CONTROL[name]] = float(value)
        elif name == "grid_constructor":
            if value is not None:
                found["grid"] = value(func, y0, t)
        elif name == "max_step" and value == math.inf:
            continue
        elif name not in WITHOUT_EFFECT and value is not None:
            found[RENAMED.get(name, name)] = value
    if control:
        found["control"] = replace(found.get("control", StepControl()), **control)
    fixed = not solver.adaptive or found.get("step_size") is not None
    # What is for the other kind of steps is passed over, as there.
    for name in ADAPTIVE_ONLY if fixed else FIXED_ONLY:
        found.pop(name, None)
    return solver, found


def tolerances(solver: Solver, options: dict[str, Any], rtol: Any, atol: Any) -> tuple[Any, Any]:
    """Return tolerances, or none where the steps are fixed and they mean nothing."""
    fixed = not solver.adaptive or options.get("step_size") is not None
    return (None, None) if fixed else (rtol, atol)
