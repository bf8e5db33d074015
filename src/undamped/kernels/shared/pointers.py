"""Arrays handed to compiled code by address.

Numba compiles a function anew for every layout of an array it is given, and loses the knowledge
that a slice of a strided array has no gaps. An address with sizes has neither trouble.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array
from torch import Tensor

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
    """Describe (steps, rows, width), whose times have no gaps inside, to compiled code."""
    steps, rows, width = tensor.shape
    stride = tensor.stride(0) * tensor.element_size()
    return np.array((tensor.data_ptr(), stride, steps, rows, width), np.int64)


def without_gaps(tensor: Tensor) -> Tensor:
    """Return (steps, rows, width) as it is if its times have no gaps inside, else a copy."""
    return tensor if tensor[0].is_contiguous() else tensor.contiguous()


def _rows(context: Any, strided: Any, t: Any, like: Any) -> Any:
    """Make the array (rows, width) of time t, of the numbers that `like` holds."""
    kind = types.Array(like.dtype, 2, "C")

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        fields = make_array(signature.args[0])(context, builder, values[0]).data
        fields_read = [
            builder.load(builder.gep(fields, [ir.Constant(ir.IntType(64), at)])) for at in range(5)
        ]
        rows, width = fields_read[ROWS], fields_read[WIDTH]
        array = make_array(kind)(context, builder)
        size = context.get_constant(types.intp, context.get_abi_sizeof(array.data.type.pointee))
        address = builder.add(fields_read[ADDRESS], builder.mul(values[1], fields_read[STRIDE]))
        populate_array(
            array,
            data=builder.inttoptr(address, array.data.type),
            shape=(rows, width),
            strides=(builder.mul(width, size), size),
            itemsize=size,
            meminfo=None,
        )
        return array._getvalue()

    return kind(strided, t, like), generate


at_step: Any = intrinsic(_rows)
"""The rows (rows, width) of a time: `at_step(strided, t, like)`, in compiled code only."""
