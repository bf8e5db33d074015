"""Arrays handed to compiled code by address.

Numba compiles a function anew for every layout of an array it is given, and loses the knowledge
that a slice of a strided array has no gaps. An address with sizes has neither trouble.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, types
from numba.extending import intrinsic
from torch import Tensor

from undamped.kernels.shared.jit import njit

ADDRESS, STRIDE, STEPS, ROWS, WIDTH = range(5)
"""What `strided` holds."""


def _as_pointer(context: Any, address: Any, like: Any) -> Any:
    kind = types.CPointer(like.dtype)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.inttoptr(values[0], context.get_value_type(kind))

    return kind(address, like), generate


at: Any = intrinsic(_as_pointer)
"""An address as a pointer to numbers of the type of the array `like`; in compiled code only."""


def strided(tensor: Tensor) -> Any:
    """Describe (steps, rows, width), whose strided have no gaps, to compiled code."""
    steps, rows, width = tensor.shape
    stride = tensor.stride(0) * tensor.element_size()
    return np.array((tensor.data_ptr(), stride, steps, rows, width), np.int64)


def without_gaps(tensor: Tensor) -> Tensor:
    """Return (steps, rows, width) as it is if its strided have no gaps, else a copy."""
    return tensor if tensor[0].is_contiguous() else tensor.contiguous()


@njit(nogil=True, cache=True, inline="always")
def at_step(strided: Any, t: int, like: Any) -> Any:
    """Return the at_step (rows, width) of time t; only compiled code calls this."""
    return carray(at(strided[ADDRESS] + t * strided[STRIDE], like), (strided[ROWS], strided[WIDTH]))
