"""odeint: the values of a solve, called the way torchdiffeq's is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from undamped.solvers.methods.solver import Solver
from undamped.solvers.settings import Gradient
from undamped.solvers.solve import Tolerance, solve


def odeint(
    func: Callable[[Any, Any], Any],
    y0: Any,
    t: Tensor,
    *,
    rtol: Tolerance = None,
    atol: Tolerance = None,
    method: str | Solver = "dopri5",
    options: dict[str, Any] | None = None,
    gradient: Gradient = "checkpoint",
) -> Any:
    """Return the solution of dy/dt = func(t, y) at the times t, (outputs, …) or a tuple of such.

    Args:
        func: The field.
        y0: A tensor of any shape, or a tuple of tensors.
        t: Output times, the start first; increasing or decreasing.
        rtol: Relative tolerance, 1e-7 if not given.
        atol: Absolute tolerance, 1e-9 if not given.
        method: A registry name or a solver.
        options: Further settings by name, as in `undamped.solvers.solve`.
        gradient: `checkpoint`, `backprop`, `adjoint` or `reversible`.

    Example:
        >>> undamped.odeint(lambda t, y: -y, torch.ones(3), torch.linspace(0, 1, 5))
    """
    return solve(
        func, y0, t, rtol=rtol, atol=atol, method=method, options=options, gradient=gradient
    ).values
