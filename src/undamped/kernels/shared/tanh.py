"""tanh and sigmoid inside the kernels: one form that vectorises, one that is exact.

tanh in float32: x·P(x²)/Q(x²) with P of degree 3 and Q of degree 4, fitted to tanh on |x| ≤ 7.8 for
the smallest relative error (1.2e-7 before rounding, below 5e-7 when evaluated in float32). From 7.8
on the argument is cut off, and beyond `SATURATED` tanh is exactly 1: otherwise its slope 1 − tanh²
would stay at 4e-7 where it should be 0, and a gradient multiplies it by numbers of any size.

sigmoid in float32: e⁻ᵃ/(1 + e⁻ᵃ) or 1/(1 + e⁻ᵃ) with a = |x|, so that it is small where it should
be, and exactly 0 below −88. e⁻ᵃ = 2ⁿ·2ᶠ, with a polynomial for 2ᶠ on |f| ≤ ½ (error 2e-9).

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

LIMIT = np.float32(7.8)
SATURATED = np.float32(8.3)  # tanh is nearer to 1 than to the quotient at LIMIT
ONE = np.float32(1.0)
P0, P1, P2, P3 = (
    np.float32(coefficient)
    for coefficient in (
        0.999999882792306,
        0.12943115848576048,
        0.0029698889722261936,
        1.1635718739562427e-05,
    )
)
Q1, Q2, Q3, Q4 = (
    np.float32(coefficient)
    for coefficient in (
        0.46276352812582855,
        0.02389239740809083,
        0.00024135460264867507,
        2.526236327925058e-07,
    )
)
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
UNDERFLOW = np.float32(-127 * math.log(2))  # 2⁻¹²⁷ has the bits of 0
ROUND = np.float32(3 << 22)  # added to a number, its last bits are that number, rounded


# Written in LLVM's language where they are called. Kernels with several gates would take long to
# compile if Numba put the source into each of their lines, or compiled them on their own.


def _tanh(context: Any, x: Any) -> Any:
    """Return tanh(x) in the precision of x."""
    return _for_floats(x, _tanh_of)


def _limited_tanh(context: Any, x: Any, limit: Any) -> Any:
    """Return tanh(x) in the precision of x.

    `limit` is `LIMIT`, as a number that the compiler cannot see through if it should be fast: a
    comparison with a constant becomes a blend, one with a variable a single instruction.
    """
    return _for_floats(x, _tanh_of, limit)


def _sigmoid(context: Any, x: Any) -> Any:
    """Return 1/(1 + e⁻ˣ) in the precision of x."""
    return _for_floats(x, _sigmoid_of)


def _for_floats(x: Any, of: Callable[..., Any], *others: Any) -> Any:
    if x not in (types.float32, types.float64):
        return None  # Numba then says which call it is that has no such function

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return of(context, builder, *values)

    return x(x, *others), generate


def _constant(value: Any) -> Any:
    return ir.Constant(ir.FloatType(), float(value))


def _polynomial(builder: Any, u: Any, first: Any, *others: Any) -> Any:
    if not others:
        return _constant(first)
    return _multiply_add(builder, u, _polynomial(builder, u, *others), _constant(first))


def _multiply_add(builder: Any, a: Any, b: Any, c: Any) -> Any:
    return builder.fadd(c, builder.fmul(a, b, flags=("contract",)), flags=("contract",))


def _call(builder: Any, name: str, *values: Any) -> Any:
    real = values[0].type
    signature = ir.FunctionType(real, [real] * len(values))
    return builder.call(builder.module.declare_intrinsic(name, [real], signature), values)


def _tanh_of(context: Any, builder: Any, x: Any, limit: Any = None) -> Any:
    if x.type == ir.DoubleType():
        exact = context.get_function(math.tanh, types.float64(types.float64))
        return exact(builder, [x])
    size = _call(builder, "llvm.fabs", x)
    high = _constant(LIMIT) if limit is None else limit
    c = builder.select(builder.fcmp_ordered(">", size, high), high, size)
    u = builder.fmul(c, c)
    p = _polynomial(builder, u, P0, P1, P2, P3)
    q = _polynomial(builder, u, ONE, Q1, Q2, Q3, Q4)
    value = builder.fdiv(builder.fmul(c, p), q)
    saturated = builder.fcmp_ordered(">", size, _constant(SATURATED))
    return _call(builder, "llvm.copysign", builder.select(saturated, _constant(ONE), value), x)


def _sigmoid_of(context: Any, builder: Any, x: Any) -> Any:
    if x.type == ir.DoubleType():
        half = ir.Constant(x.type, 0.5)
        inner = _tanh_of(context, builder, builder.fmul(half, x))
        return builder.fadd(half, builder.fmul(half, inner))
    one = _constant(ONE)
    e = _exp_of(builder, builder.fneg(_call(builder, "llvm.fabs", x)))
    negative = builder.fcmp_ordered("<", x, _constant(0))
    return builder.fdiv(builder.select(negative, e, one), builder.fadd(one, e))


def _exp_of(builder: Any, x: Any) -> Any:
    """Return eˣ for x ≤ 0."""
    integer = ir.IntType(32)
    low = _constant(UNDERFLOW)
    x = builder.select(builder.fcmp_ordered("<", x, low), low, x)
    shifted = _multiply_add(builder, x, _constant(LOG2_E), _constant(ROUND))
    # Of integers: a kernel whose sums may be reordered would cancel `+ ROUND` against `- ROUND`.
    n = builder.sub(builder.bitcast(shifted, integer), ir.Constant(integer, int(ROUND.view("i4"))))
    rest = _multiply_add(builder, x, _constant(LOG2_E), builder.fneg(builder.sitofp(n, x.type)))
    exponent = builder.add(n, ir.Constant(integer, 127))
    power = builder.bitcast(builder.shl(exponent, ir.Constant(integer, 23)), x.type)
    return builder.fmul(power, _polynomial(builder, rest, *EXP2))


tanh: Any = intrinsic(_tanh)
limited_tanh: Any = intrinsic(_limited_tanh)
sigmoid: Any = intrinsic(_sigmoid)
