"""tanh and sigmoid inside the kernels: one form that vectorises, one that is exact.

float32: x·P(x²)/Q(x²) with P of degree 3 and Q of degree 4, fitted to tanh on |x| ≤ 7.8 for the
smallest relative error (1.2e-7 before rounding, below 5e-7 when evaluated in float32). Beyond
that tanh is 1 to 3e-7, and the argument is cut off there. The quotient never passes one (tested
for every float32), so nothing has to be cut off afterwards. No branch and no table: eight of them
run at once on AVX2. The comparisons are written so that a NaN passes through.

float64: the C library's tanh.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from undamped.kernels.shared.compilers import PART

LIMIT = np.float32(7.8)
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


def _rational(x: Any, limit: Any = LIMIT) -> Any:
    c = -limit if x < -limit else x
    c = limit if c > limit else c
    u = c * c
    p = P0 + u * (P1 + u * (P2 + u * P3))
    q = ONE + u * (Q1 + u * (Q2 + u * (Q3 + u * Q4)))
    return c * p / q


def _library(x: Any, limit: Any = LIMIT) -> Any:
    return math.tanh(x)


def limited_tanh(x: Any, limit: Any = LIMIT) -> Any:
    """Return tanh(x) in the precision of x; only compiled code calls this.

    `limit` is `LIMIT`, as a number that the compiler cannot see through if it should be fast: two
    comparisons with constants are merged into one and two blends, while two with a variable
    become a single instruction each.
    """
    return math.tanh(x)


@overload(limited_tanh, inline="always", jit_options=PART | {"fastmath": {"contract"}})
def _limited_tanh(x: Any, limit: Any = LIMIT) -> Any:
    return _rational if x == types.float32 else _library


# For kernels with several gates: compiled once, on its own, and joined by LLVM. They would take
# long to compile if Numba put the source into each of their lines.


def tanh(x: Any, limit: Any = LIMIT) -> Any:
    """Return tanh(x) in the precision of x; only compiled code calls this."""
    return math.tanh(x)


@overload(tanh, jit_options=PART | {"fastmath": {"contract"}, "forceinline": True})
def _tanh(x: Any, limit: Any = LIMIT) -> Any:
    return _rational if x == types.float32 else _library


def sigmoid(x: Any) -> Any:
    """Return 1/(1 + e⁻ˣ) in the precision of x; only compiled code calls this."""
    return 0.5 + 0.5 * math.tanh(0.5 * x)


@overload(sigmoid, jit_options=PART | {"forceinline": True})
def _sigmoid(x: Any) -> Any:
    def by_tanh(x: Any) -> Any:
        half = type(x)(0.5)
        return half + half * tanh(half * x)

    return by_tanh
