"""Arrays passed to compiled code by address.

Numba compiles a function for every layout of an array argument, and does not know that a slice of a
strided array is contiguous. Addresses with sizes have neither problem.
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
"""The fields of `strided`."""
FIRST, WIDTH_PER_COLUMN = 2, 3
"""Fields of a row of `columns.sequence_table`, after ADDRESS and STRIDE."""
TABLE_FIELDS = 4


def _as_pointer(context: Any, address: Any, like: Any) -> Any:
    kind = types.CPointer(like.dtype)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.inttoptr(values[0], context.get_value_type(kind))

    return kind(address, like), generate


at: Any = intrinsic(_as_pointer)
"""An address as a pointer to numbers of the type of the array `like`; in compiled code only."""


def strided(tensor: Tensor) -> Any:
    """Describe (steps, rows, width), contiguous within a step, to compiled code."""
    steps, rows, width = tensor.shape
    stride = tensor.stride(0) * tensor.element_size()
    return np.array((tensor.data_ptr(), stride, steps, rows, width), np.int64)


def contiguous_rows(tensor: Tensor) -> Tensor:
    """Return (steps, rows, width) itself if it is contiguous within a step, else a copy."""
    return tensor if tensor[0].is_contiguous() else tensor.contiguous()


def _fields(context: Any, builder: Any, kind: Any, array: Any, indices: range) -> list[Any]:
    """Load some integers of an array."""
    data = make_array(kind)(context, builder, array).data
    constants = [ir.Constant(ir.IntType(64), index) for index in indices]
    return [builder.load(builder.gep(data, [constant])) for constant in constants]


def _array_at(context: Any, builder: Any, kind: Any, address: Any, shape: tuple[Any, ...]) -> Any:
    """Return a contiguous array at an address."""
    array = make_array(kind)(context, builder)
    size = context.get_constant(types.intp, context.get_abi_sizeof(array.data.type.pointee))
    strides = [size]
    for length in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], length))
    data = builder.inttoptr(address, array.data.type)
    populate_array(array, data, shape=shape, strides=tuple(strides), itemsize=size, meminfo=None)
    return array._getvalue()


def _rows(context: Any, strided: Any, t: Any, like: Any) -> Any:
    """Return the array (rows, width) of time t, of the dtype of `like`."""
    kind = types.Array(like.dtype, 2, "C")

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        fields = _fields(context, builder, strided, values[0], range(5))
        address = builder.add(fields[ADDRESS], builder.mul(values[1], fields[STRIDE]))
        return _array_at(context, builder, kind, address, (fields[ROWS], fields[WIDTH]))

    return kind(strided, t, like), generate


at_step: Any = intrinsic(_rows)
"""The rows (rows, width) of a time: `at_step(strided, t, like)`, in compiled code only."""


def _column_rows(
    context: Any, table: Any, count: Any, t: Any, column: Any, width: Any, like: Any
) -> Any:
    """Return the arrays of time t and of `width` columns from `column` on, one per sequence."""
    kind = types.Array(like.dtype, 1, "C")
    result = types.UniTuple(kind, count.literal_value)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        _, _, t, column, width, _ = values
        size = context.get_constant(types.intp, like.dtype.bitwidth // 8)
        is_first = builder.icmp_signed("==", t, ir.Constant(t.type, 0))
        rows = []
        for sequence in range(result.count):
            start = TABLE_FIELDS * sequence
            fields = _fields(
                context, builder, signature.args[0], values[0], range(start, start + TABLE_FIELDS)
            )
            later = builder.add(fields[ADDRESS], builder.mul(t, fields[STRIDE]))
            row = builder.select(is_first, fields[FIRST], later)
            numbers = fields[WIDTH_PER_COLUMN]
            offset = builder.mul(builder.mul(column, numbers), size)
            shape = (builder.mul(width, numbers),)
            rows.append(_array_at(context, builder, kind, builder.add(row, offset), shape))
        return context.make_tuple(builder, result, rows)

    return result(table, count, t, column, width, like), generate


column_rows: Any = intrinsic(prefer_literal=True)(_column_rows)
"""One array per sequence: `column_rows(table, count, t, column, width, like)`."""
