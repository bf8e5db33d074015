"""SciPy's solvers with the same interface, for comparisons; gradients are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undamped._base.errors import SolveError
from undamped.ode.field import CALLBACKS, Callbacks, CountedField
from undamped.ode.gradients.refused import refuse_gradients
from undamped.ode.state.packing import Packing
from undamped.ode.state.times import read_times

_NO_GRADIENT = (
    "SciPy has no gradients: 'scipy_solver' returns values only. Choose 'dopri5' or 'radau5'."
)


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
        options: `solver` names SciPy's method (LSODA by default); the rest is SciPy's.
    """
    from scipy.integrate import solve_ivp

    packing = Packing.of(y0)
    start = packing.pack(y0, "the start")
    times = read_times(t, start)
    field, settings = CountedField(func, packing), dict(options or {})
    method = settings.pop("solver", "LSODA")
    Callbacks(func, packing).warn_unused(CALLBACKS, "'scipy_solver', which reports no steps,")

    @torch.no_grad()
    def slope(time: float, flat: np.ndarray) -> np.ndarray:
        y = torch.from_numpy(flat).to(start).view(start.shape)
        value = field(torch.full((), time, dtype=y.dtype, device=y.device), y)
        return value.double().cpu().numpy().reshape(-1)

    result = solve_ivp(
        slope,
        (float(times[0]), float(times[-1])),
        start.detach().double().cpu().numpy().reshape(-1),
        method=method,
        t_eval=times.cpu().numpy(),
        rtol=1e-7 if rtol is None else rtol,
        atol=1e-9 if atol is None else atol,
        **settings,
    )
    if not result.success:
        raise SolveError(
            f"SciPy's {method} did not reach t = {float(times[-1]):.6g}: {result.message} Check "
            "the field there, or loosen rtol and atol."
        )
    values = torch.from_numpy(result.y.T.copy()).to(start).view(-1, *start.shape)
    (guarded,) = refuse_gradients([values], [start], _NO_GRADIENT)
    assert guarded is not None
    return packing.unpack(guarded)
