"""ONNX translations of the torch operators that select stored states.

Slots are a second dimension besides the batch, and selections are masks: these operators have three
dimensions, booleans and integers, which the steps of other networks do not have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from undamped.lab.export.graph import element_kind

if TYPE_CHECKING:
    from undamped.lab.export.operators import _Record


def of_type(record: _Record, argument: Any, dtype: torch.dtype) -> str:
    """Return a value cast to a type; numbers of Python become constants of it."""
    if not isinstance(argument, Tensor):
        return record.graph.constant(torch.tensor(argument, dtype=dtype))
    if argument.dtype == dtype:
        return record.real(argument)
    return record.graph.node("Cast", record.real(argument), to=element_kind(dtype))


def plain(kind: str) -> Callable[..., str]:
    """Return the translation of an operator that ONNX has with the same arguments."""
    return lambda record, result, *inputs: record.node(kind, *inputs)


def _comparison(kind: str, negated: bool = False) -> Callable[..., str]:
    def write(record: _Record, result: Tensor, a: Tensor, b: Any) -> str:
        dtype = torch.result_type(a, b)
        comparison = record.graph.node(kind, of_type(record, a, dtype), of_type(record, b, dtype))
        return record.graph.node("Not", comparison) if negated else comparison

    return write


def _select(record: _Record, result: Tensor, mask: Tensor, a: Any, b: Any) -> str:
    values = (of_type(record, part, result.dtype) for part in (a, b))
    return record.graph.node("Where", record.real(mask), *values)


def _minimum(
    record: _Record, result: Any, x: Tensor, dim: int, keepdim: bool = False
) -> tuple[str, str]:
    minimum = record.node("ReduceMin", x, axes=[dim], keepdims=int(keepdim))
    return minimum, record.node("ArgMin", x, axis=dim, keepdims=int(keepdim))


def _log_sigmoid(record: _Record, result: Tensor, x: Tensor) -> str:
    graph = record.graph
    return graph.node("Neg", graph.node("Softplus", graph.node("Neg", record.real(x))))


def _square(record: _Record, result: Tensor, x: Tensor, exponent: float = 2) -> str:
    assert exponent == 2
    return record.node("Mul", x, x)


def _reshape(record: _Record, result: Tensor, x: Tensor, *_: Any) -> str:
    # The first dimension is the batch, and 0 leaves it unchanged.
    return record.graph.node("Reshape", record.real(x), record.graph.integers(0, *result.shape[1:]))


def _axis(kind: str) -> Callable[..., str]:
    def write(record: _Record, result: Tensor, x: Tensor, dim: int) -> str:
        axis = dim if dim >= 0 else max(x.dim(), result.dim()) + dim
        return record.graph.node(kind, record.real(x), record.graph.integers(axis))

    return write


def _index(record: _Record, result: Tensor, x: Tensor, dim: int, index: int) -> str:
    position = record.graph.constant(np.array(index))
    return record.graph.node("Gather", record.real(x), position, axis=dim)


def _full_like(value: float) -> Callable[..., str]:
    def write(record: _Record, result: Tensor, x: Tensor, **_: Any) -> str:
        sizes = record.graph.node("Shape", record.real(x))
        scalar = record.graph.constant(torch.full((1,), value, dtype=result.dtype))
        return record.graph.node("Expand", scalar, sizes)

    return write


SLOT_OPERATORS: dict[str, Callable[..., Any]] = {
    "__and__.Tensor": plain("And"),
    "bitwise_not": plain("Not"),
    "eq.Scalar": _comparison("Equal"),
    "eq.Tensor": _comparison("Equal"),
    "flatten.using_ints": _reshape,
    "ge.Scalar": _comparison("GreaterOrEqual"),
    "gt.Tensor": _comparison("Greater"),
    "log_sigmoid": _log_sigmoid,
    "masked_fill.Scalar": lambda record, result, x, mask, value: _select(
        record, result, mask, value, x
    ),
    "min.dim": _minimum,
    "ne.Scalar": _comparison("Equal", negated=True),
    "ones_like": _full_like(1),
    "pow.Tensor_Scalar": _square,
    "select.int": _index,
    "softmax.int": lambda record, result, x, dim, *_: record.node("Softmax", x, axis=dim),
    "square": _square,
    "squeeze.dim": _axis("Squeeze"),
    "unsqueeze": _axis("Unsqueeze"),
    "view": _reshape,
    "where.self": _select,
    "where.ScalarOther": _select,
    "where.ScalarSelf": _select,
    "zeros_like": _full_like(0),
}
