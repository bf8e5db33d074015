"""What torch operators are in ONNX: those that choose among remembered states.

Slots are a second dimension beside the batch, choices are masks: three dimensions, truth values and
whole numbers, which the other networks' steps do not have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from undamped.lab.export.operators import _Record


def of_type(record: _Record, argument: Any, dtype: torch.dtype) -> str:
    """Return a value as another type; numbers of Python become constants of it."""
    if not isinstance(argument, Tensor):
        return record.graph.constant(torch.tensor(argument, dtype=dtype))
    if argument.dtype == dtype:
        return record.real(argument)
    from undamped.lab.export.graph import element_kind

    return record.graph.node("Cast", record.real(argument), to=element_kind(dtype))


def _compared(kind: str, negated: bool = False) -> Callable[..., str]:
    def write(record: _Record, result: Tensor, a: Tensor, b: Any) -> str:
        dtype = torch.result_type(a, b)
        comparison = record.graph.node(kind, of_type(record, a, dtype), of_type(record, b, dtype))
        return record.graph.node("Not", comparison) if negated else comparison

    return write


def _both(record: _Record, result: Tensor, a: Tensor, b: Tensor) -> str:
    return record.graph.node("And", record.real(a), record.real(b))


def _not(record: _Record, result: Tensor, a: Tensor) -> str:
    return record.graph.node("Not", record.real(a))


def _where(record: _Record, result: Tensor, mask: Tensor, a: Any, b: Any) -> str:
    values = (of_type(record, part, result.dtype) for part in (a, b))
    return record.graph.node("Where", record.real(mask), *values)


def _masked_fill(record: _Record, result: Tensor, x: Tensor, mask: Tensor, value: Any) -> str:
    filling = of_type(record, value, result.dtype)
    return record.graph.node("Where", record.real(mask), filling, record.real(x))


def _least(
    record: _Record, result: Any, x: Tensor, dim: int, keepdim: bool = False
) -> tuple[str, str]:
    graph, value, keep = record.graph, record.real(x), int(keepdim)
    least = graph.node("ReduceMin", value, axes=[dim], keepdims=keep)
    return least, graph.node("ArgMin", value, axis=dim, keepdims=keep)


def _softmax(record: _Record, result: Tensor, x: Tensor, dim: int, *_: Any) -> str:
    return record.graph.node("Softmax", record.real(x), axis=dim)


def _log_sigmoid(record: _Record, result: Tensor, x: Tensor) -> str:
    graph = record.graph
    return graph.node("Neg", graph.node("Softplus", graph.node("Neg", record.real(x))))


def _square(record: _Record, result: Tensor, x: Tensor, exponent: float = 2) -> str:
    assert exponent == 2
    return record.graph.node("Mul", record.real(x), record.real(x))


def _reshaped(record: _Record, result: Tensor, x: Tensor, *_: Any) -> str:
    # The first dimension is the batch, and 0 says that it stays what it is.
    return record.graph.node("Reshape", record.real(x), record.graph.integers(0, *result.shape[1:]))


def _raised(record: _Record, result: Tensor, x: Tensor, dim: int) -> str:
    axis = dim if dim >= 0 else result.dim() + dim
    return record.graph.node("Unsqueeze", record.real(x), record.graph.integers(axis))


def _lowered(record: _Record, result: Tensor, x: Tensor, dim: int) -> str:
    axis = dim if dim >= 0 else x.dim() + dim
    return record.graph.node("Squeeze", record.real(x), record.graph.integers(axis))


def _selected(record: _Record, result: Tensor, x: Tensor, dim: int, index: int) -> str:
    position = record.graph.constant(np.array(index))
    return record.graph.node("Gather", record.real(x), position, axis=dim)


def _filled(value: float) -> Callable[..., str]:
    def write(record: _Record, result: Tensor, x: Tensor, **_: Any) -> str:
        sizes = record.graph.node("Shape", record.real(x))
        scalar = record.graph.constant(torch.full((1,), value, dtype=result.dtype))
        return record.graph.node("Expand", scalar, sizes)

    return write


SLOT_OPERATORS: dict[str, Callable[..., Any]] = {
    "__and__.Tensor": _both,
    "bitwise_not": _not,
    "eq.Scalar": _compared("Equal"),
    "eq.Tensor": _compared("Equal"),
    "flatten.using_ints": _reshaped,
    "ge.Scalar": _compared("GreaterOrEqual"),
    "gt.Tensor": _compared("Greater"),
    "log_sigmoid": _log_sigmoid,
    "masked_fill.Scalar": _masked_fill,
    "min.dim": _least,
    "ne.Scalar": _compared("Equal", negated=True),
    "ones_like": _filled(1),
    "pow.Tensor_Scalar": _square,
    "select.int": _selected,
    "softmax.int": _softmax,
    "square": _square,
    "squeeze.dim": _lowered,
    "unsqueeze": _raised,
    "view": _reshaped,
    "where.self": _where,
    "where.ScalarOther": _where,
    "where.ScalarSelf": _where,
    "zeros_like": _filled(0),
}
