"""tanh and sigmoid inside the coupled kernels.

Both are compiled on their own and joined by LLVM: kernels with five gates would take long to
compile if Numba put the source of tanh into each of them.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from undamped.kernels.shared import tanh as tanh_numba


@njit(nogil=True, cache=True, forceinline=True, error_model="numpy")
def tanh(x: Any) -> Any:
    """The kernels' tanh."""
    return tanh_numba.tanh(x, tanh_numba.LIMIT)


@njit(nogil=True, cache=True, forceinline=True, error_model="numpy")
def sigmoid(x: Any) -> Any:
    """Return 1/(1 + e⁻ˣ) in the precision of x."""
    half = type(x)(0.5)
    return half + half * tanh_numba.tanh(half * x, tanh_numba.LIMIT)
