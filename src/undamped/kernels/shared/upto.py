"""`for j in upto(n)` inside compiled code: what `range(n)` does, for less.

Numba writes a hundred instructions for every loop over a range, since it could begin anywhere and
have any step, zero among them, which is an error to be raised. A kernel has dozens of loops, and
LLVM reads all of that several times. Here a loop counts from nought, in ten.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models, register_default
from numba.core.imputils import RefType, iternext_impl, lower_builtin
from numba.extending import intrinsic


class CountType(types.SimpleIterableType):
    """What `upto` returns: the number at which to stop."""

    def __init__(self) -> None:
        super().__init__("count", CountingType())


class CountingType(types.SimpleIteratorType):
    """A loop under way."""

    def __init__(self) -> None:
        super().__init__("counting", types.intp)


@register_default(CountType)
class CountModel(models.PrimitiveModel):
    """A whole number."""

    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, ir.IntType(types.intp.bitwidth))


@register_default(CountingType)
class CountingModel(models.StructModel):
    """Where the next number is, and at which to stop."""

    def __init__(self, manager: Any, kind: Any) -> None:
        members = [("next", types.EphemeralPointer(types.intp)), ("stop", types.intp)]
        super().__init__(manager, kind, members)


def _upto(context: Any, stop: Any) -> Any:
    """Return the numbers from 0 to before `stop`, for a loop."""
    if not isinstance(stop, types.Integer):
        return None  # Numba then says which call it is that has no such function

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return values[0]

    return CountType()(types.intp), generate


upto: Any = intrinsic(_upto)


@lower_builtin("getiter", CountType)
def _begin(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    counting = context.make_helper(builder, signature.return_type)
    counting.next = cgutils.alloca_once_value(builder, values[0].type(0))
    counting.stop = values[0]
    return counting._getvalue()


@lower_builtin("iternext", CountingType)
@iternext_impl(RefType.UNTRACKED)
def _go_on(context: Any, builder: Any, signature: Any, values: Any, result: Any) -> None:
    counting = context.make_helper(builder, signature.args[0], values[0])
    number = builder.load(counting.next)
    more = builder.icmp_signed("<", number, counting.stop)
    result.set_valid(more)
    with builder.if_then(more):
        result.yield_(number)
        builder.store(builder.add(number, number.type(1), flags=("nsw",)), counting.next)
