"""SciPy's solvers behind the same call: values without gradients, to compare with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undamped.errors import OptionError, SolveError, explain
from undamped.solvers.field import CountedField
from undamped.solvers.state.packing import Packing
from undamped.solvers.state.times import read_times


def scipy_values(
    func: Callable[[Any, Any], Any],
    y0: Any,
    t: Tensor,
    *,
    rtol: Any,
    atol: Any,
    options: dict[str, Any] | None,
) -> Any:
    """Return the values at the times t by `scipy.integrate.solve_ivp`.

    Args:
        func: The field.
        y0: A tensor, or a tuple of tensors.
        t: Output times.
        rtol: Relative tolerance.
        atol: Absolute tolerance.
        options: `solver` names SciPy's method (LSODA if not given); the rest is SciPy's.
    """
    from scipy.integrate import solve_ivp

    packing = Packing.of(y0)
    start = packing.pack(y0, "the start")
    if start.requires_grad and torch.is_grad_enabled():
        raise OptionError(
            explain(
                "y0 of 'scipy_solver'",
                expected="no gradient, which SciPy does not have",
                got="a start that requires one",
                remedy="Call it under torch.no_grad(), or choose 'dopri5' or 'radau5'.",
            )
        )
    times = read_times(t, start)
    field, settings = CountedField(func, packing), dict(options or {})
    method = settings.pop("solver", "LSODA")

    @torch.no_grad()
    def slope(time: float, flat: np.ndarray) -> np.ndarray:
        y = torch.from_numpy(flat).to(start).view(start.shape)
        value = field(torch.full((), time, dtype=y.dtype, device=y.device), y)
        return value.double().cpu().numpy().reshape(-1)

    found = solve_ivp(
        slope,
        (float(times[0]), float(times[-1])),
        start.detach().double().cpu().numpy().reshape(-1),
        method=method,
        t_eval=times.cpu().numpy(),
        rtol=1e-7 if rtol is None else rtol,
        atol=1e-9 if atol is None else atol,
        **settings,
    )
    if not found.success:
        raise SolveError(
            explain(
                f"solve with SciPy's {method}",
                expected=f"to reach t = {float(times[-1]):.6g}",
                got=found.message,
                remedy="Look at the field there, or loosen rtol and atol.",
            )
        )
    values = torch.from_numpy(found.y.T.copy()).to(start).view(-1, *start.shape)
    return packing.unpack(values)
