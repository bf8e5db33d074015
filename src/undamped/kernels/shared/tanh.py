"""tanh and sigmoid inside the kernels: one form that vectorises, one that is exact.

float32, with a = |x|: tanh is (1 − e⁻²ᵃ)/(1 + e⁻²ᵃ) with the sign of x, from e⁻²ᵃ − 1, which keeps
its digits where x is small; sigmoid is 1/(1 + e⁻ᵃ), or e⁻ᵃ/(1 + e⁻ᵃ) where x is negative. Both are
exactly 1 where they round to it, and the sigmoid of large negative x is small: a gradient
multiplies the slope 1 − tanh² by numbers of any size, so it must vanish. Relative errors are below
3e-7, for very small values of sigmoid below 5e-6. e⁻ᵃ is 2ⁿ·2ᶠ, with a polynomial for 2ᶠ on |f| ≤ ½
(error 2e-9).

No branch and no table: eight of them run at once on AVX2. The comparisons are written so that a NaN
passes through.

float64: the C library's tanh.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

EXP2 = tuple(
    np.float32(coefficient)
    for coefficient in (
        1.0,
        0.6931472057,
        0.2402264691,
        0.0555032878,
        0.00961848896,
        0.00133999312,
        0.00015345812,
    )
)
LOG2_E = np.float32(math.log2(math.e))
ROUND = np.float32(3 << 22)  # the last bits of a number plus this are the rounded number


# Emitted as LLVM code at each call: kernels with several gates would take long to compile if Numba
# inlined the source at each call or compiled separate functions.


def _tanh(context: Any, x: Any) -> Any:
    """Return tanh(x) in the precision of x."""
    return _for_floats(x, _tanh_of)


def _sigmoid(context: Any, x: Any) -> Any:
    """Return 1/(1 + e⁻ˣ) in the precision of x."""
    return _for_floats(x, _sigmoid_of)


def _for_floats(x: Any, of: Callable[..., Any]) -> Any:
    if x not in (types.float32, types.float64):
        return None  # Numba then reports the unsupported call

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return of(context, builder, *values)

    return x(x), generate


def _constant(value: Any) -> Any:
    return ir.Constant(ir.FloatType(), float(np.float32(value)))


def _polynomial(builder: Any, u: Any, first: Any, *rest: Any) -> Any:
    if not rest:
        return _constant(first)
    return _multiply_add(builder, u, _polynomial(builder, u, *rest), _constant(first))


def _multiply_add(builder: Any, a: Any, b: Any, c: Any) -> Any:
    return builder.fadd(c, builder.fmul(a, b, flags=("contract",)), flags=("contract",))


def _call(builder: Any, name: str, *values: Any) -> Any:
    real = values[0].type
    signature = ir.FunctionType(real, [real] * len(values))
    return builder.call(builder.module.declare_intrinsic(name, [real], signature), values)


def _tanh_of(context: Any, builder: Any, x: Any) -> Any:
    if x.type == ir.DoubleType():
        exact = context.get_function(math.tanh, types.float64(types.float64))
        return exact(builder, [x])
    power, rest = _power_and_rest(builder, x, 2 * LOG2_E)
    # e⁻²ᵃ − 1 = 2ⁿ (2ᶠ − 1) + (2ⁿ − 1), where 2ᶠ − 1 has f as a factor.
    above = builder.fmul(rest, _polynomial(builder, rest, *EXP2[1:]))
    e = _multiply_add(builder, power, above, builder.fsub(power, _constant(1)))
    return _call(builder, "llvm.copysign", builder.fdiv(e, builder.fadd(_constant(2), e)), x)


def _sigmoid_of(context: Any, builder: Any, x: Any) -> Any:
    if x.type == ir.DoubleType():
        half = ir.Constant(x.type, 0.5)
        inner = _tanh_of(context, builder, builder.fmul(half, x))
        return builder.fadd(half, builder.fmul(half, inner))
    power, rest = _power_and_rest(builder, x, LOG2_E)
    e, unit = builder.fmul(power, _polynomial(builder, rest, *EXP2)), _constant(1)
    negative = builder.fcmp_ordered("<", x, _constant(0))
    return builder.fdiv(builder.select(negative, e, unit), builder.fadd(unit, e))


def _power_and_rest(builder: Any, x: Any, scale: Any) -> tuple[Any, Any]:
    """Return 2ⁿ and f, where n + f = −|x|·scale and |f| ≤ ½; 2ⁿ is 0 from n = −127 on."""
    integer, factor, low = ir.IntType(32), _constant(scale), _constant(-127 / scale)
    x = builder.fneg(_call(builder, "llvm.fabs", x))
    x = builder.select(builder.fcmp_ordered("<", x, low), low, x)
    shifted = _multiply_add(builder, x, factor, _constant(ROUND))
    # In integers: a kernel with reordered sums would cancel `+ ROUND` against `- ROUND`.
    n = builder.sub(builder.bitcast(shifted, integer), ir.Constant(integer, int(ROUND.view("i4"))))
    rest = _multiply_add(builder, x, factor, builder.fneg(builder.sitofp(n, x.type)))
    exponent = builder.add(n, ir.Constant(integer, 127))
    return builder.bitcast(builder.shl(exponent, ir.Constant(integer, 23)), x.type), rest


tanh: Any = intrinsic(_tanh)
sigmoid: Any = intrinsic(_sigmoid)
