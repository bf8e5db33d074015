"""What `coupled_scan` does to the input before the recurrence.

A name brings its module, and with it Numba, when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from undamped.kernels.coupled.projections.linear import Linear as Linear
    from undamped.kernels.coupled.projections.momentum import Filtered as Filtered

_HOMES = {
    "Filtered": "momentum",
    "Linear": "linear",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
