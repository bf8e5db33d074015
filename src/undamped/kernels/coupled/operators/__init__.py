"""The linear parts of `coupled_scan`.

A name brings its module, and with it Numba, when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from undamped.kernels.coupled.operators.dense import Dense as Dense
    from undamped.kernels.coupled.operators.fourier import Fourier as Fourier
    from undamped.kernels.coupled.operators.givens_layers import Layers as Layers
    from undamped.kernels.coupled.operators.low_rank import LowRank as LowRank
    from undamped.kernels.coupled.operators.none import Nothing as Nothing

_HOMES = {
    "Dense": "dense",
    "Fourier": "fourier",
    "Layers": "givens_layers",
    "LowRank": "low_rank",
    "Nothing": "none",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
