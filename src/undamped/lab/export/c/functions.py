"""Elementwise operations in C: expressions, helper functions, and a mathematical library.

The functions of the small library have relative errors of at most `ERRORS`, measured by the tests
over their ranges; sine and cosine have absolute errors, for arguments up to 8192.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

ERRORS = {
    "exp": 3e-7,
    "log": 3e-7,
    "log1p": 3e-7,
    "tanh": 6e-7,
    "sigmoid": 4e-7,
    "sqrt": 3e-7,
    "sin": 2e-7,
    "cos": 2e-7,
}
"""Bounds of the errors of the small library, each at most a few units in the last place."""

EXPRESSIONS: dict[str, str] = {
    "abs": "({0} < 0 ? -{0} : {0})",
    "add": "{0} + {1}",
    "and": "({0} & {1})",
    "bitwise_not": "!{0}",
    "div": "{0} / {1}",
    "eq": "({0} == {1})",
    "ge": "({0} >= {1})",
    "gt": "({0} > {1})",
    "identity": "{0}",
    "isnan": "({0} != {0})",
    "le": "({0} <= {1})",
    "logical_not": "!{0}",
    "lt": "({0} < {1})",
    # A value that is not a number is the result, as in PyTorch.
    "maximum": "({1} > {0} || {1} != {1} ? {1} : {0})",
    "minimum": "({1} < {0} || {1} != {1} ? {1} : {0})",
    "mul": "{0} * {1}",
    "ne": "({0} != {1})",
    "neg": "-{0}",
    "or": "({0} | {1})",
    "reciprocal": "1.0f / {0}",
    "relu": "({0} < 0 ? 0 : {0})",
    "sub": "{0} - {1}",
    "where": "({0} ? {1} : {2})",
}
"""Operations that are C expressions of their arguments."""

_COMPOSITE = {
    "sigmoid": "return 1.0f / (1.0f + @exp(-x));",
    "silu": "return x * @sigmoid(x);",
    "rsqrt": "return 1.0f / @sqrt(x);",
    "sign": "return (float)((x > 0.0f) - (x < 0.0f));",
    "softplus": "return x > 20.0f ? x : @log1p(@exp(x));",
    "log_sigmoid": "return (x < 0.0f ? x : 0.0f) - @log1p(@exp(x < 0.0f ? x : -x));",
    "gelu": "return 0.5f * x * (1.0f + @tanh(0.79788456f * (x + 0.044715f * x * x * x)));",
    "expm1": "const float t = @tanh(0.5f * x);\n    return 2.0f * t / (1.0f - t);",
}
_TWO = {"remainder": "return x - @floor(x / y) * y;"}
_LIBRARY = {
    "bits": """union { int32_t i; float f; } u;
    u.i = x;
    return u.f;""",
    "exp": """/* A value that is not a number has no integer, and is the result. */
    const float clamped = !(x > -87.3f) ? -87.3f : (x > 88.7f ? 88.7f : x);
    /* Adding and subtracting 1.5 * 2^23 rounds to an integer. */
    const float n = (clamped * 1.44269504f + 12582912.0f) - 12582912.0f;
    const float r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    /* Two factors, since 2^128 is not a number of this type. */
    const int32_t e = (int32_t)n, half = e / 2;
    const float value = (p * r * r + r + 1.0f) * @bits((half + 127) * 8388608) *
        @bits((e - half + 127) * 8388608);
    return x == x ? value : x;""",
    "tanh": """const float c = x < -9.0f ? -9.0f : (x > 9.0f ? 9.0f : x), s = c * c;
    float p = -2.76076847742355e-16f;
    p = p * s + 2.00018790482477e-13f;
    p = p * s - 8.60467152213735e-11f;
    p = p * s + 5.12229709037114e-08f;
    p = p * s + 1.48572235717979e-05f;
    p = p * s + 6.37261928875436e-04f;
    p = p * s + 4.89352455891786e-03f;
    float q = 1.19825839466702e-06f;
    q = q * s + 1.18534705686654e-04f;
    q = q * s + 2.26843463243900e-03f;
    q = q * s + 4.89352518554385e-03f;
    const float t = c * p / q;
    return t < -1.0f ? -1.0f : (t > 1.0f ? 1.0f : t);""",
    "log": """union { float f; int32_t i; } u;
    u.f = x;
    int32_t e = u.i / 8388608 - 126;
    u.i = u.i % 8388608 + 1056964608;
    float m = u.f;
    if (m < 0.707106781f) {
        m = m + m;
        e = e - 1;
    }
    m = m - 1.0f;
    const float z = m * m, n = (float)e;
    float p = 7.0376836292e-2f;
    p = p * m - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    const float value = m + (z * m * p - n * 2.12194440e-4f - 0.5f * z) + n * 0.693359375f;
    const float special = x > 0.0f ? x : (x == 0.0f ? @bits(-8388608) : @bits(2143289344));
    return x > 0.0f && x <= 3.40282347e38f ? value : special; /* minus infinity, or no number */""",
    "log1p": """const float u = 1.0f + x;
    return u == 1.0f ? x : @log(u) * (x / (u - 1.0f));""",
    "sqrt": """union { float f; int32_t i; } u;
    u.f = x;
    u.i = 1597463007 - u.i / 2;
    float y = u.f;
    y = y * (1.5f - 0.5f * x * y * y);
    y = y * (1.5f - 0.5f * x * y * y);
    y = y * (1.5f - 0.5f * x * y * y);
    const float special = x > 1.0f ? x : (x >= 0.0f ? 0.0f : @bits(2143289344));
    return x > 1.2e-38f && x <= 3.40282347e38f ? x * y : special;""",
    "floor": """if (!(x < 8388608.0f && x > -8388608.0f)) {
        return x;
    }
    const float t = (float)(int32_t)x;
    return t > x ? t - 1.0f : t;""",
    "round": """return x < 4194304.0f && x > -4194304.0f ? (x + 12582912.0f) - 12582912.0f : x;""",
    "sin": "return @wave(x, 0);",
    "cos": "return @wave(x, 1);",
    "wave": """const float c = !(x > -1e6f) ? -1e6f : (x > 1e6f ? 1e6f : x);
    const float n = (c * 0.636619772f + 12582912.0f) - 12582912.0f;
    const float r = ((c - n * 1.5703125f) - n * 4.837512969970703125e-4f) - n * 7.549790e-8f;
    const float z = r * r;
    const int32_t quadrant = ((int32_t)n + y) & 3;
    const float sine = r + r * z * ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z -
        1.6666654611e-1f);
    const float cosine = 1.0f - 0.5f * z + z * z * ((2.443315711809948e-5f * z -
        1.388731625493765e-3f) * z + 4.166664568298827e-2f);
    const float value = (quadrant & 1) ? cosine : sine;
    return x - x == 0.0f ? ((quadrant & 2) ? -value : value) : x - x;""",
}
_FIXED = {
    "saturated": (
        "int64_t x",
        """return x > INT32_MAX ? INT32_MAX : (x < -INT32_MAX ? -INT32_MAX : (int32_t)x);""",
    ),
    "fixed": (
        "float x",
        """if (x >= 2147483520.0f) {
        return INT32_MAX;
    }
    return x > -2147483520.0f ? (int32_t)x : -INT32_MAX;""",
    ),
    "fixed_right": ("int32_t x, int32_t s", "return (x >> s) + ((x >> (s - 1)) & 1);"),
    "fixed_left": ("int32_t x, int32_t s", "return @saturated((int64_t)x * ((int64_t)1 << s));"),
    "fixed_mul": (
        "int32_t x, int32_t y, int32_t s",
        "return @saturated(((int64_t)x * y + ((int64_t)1 << s >> 1)) >> s);",
    ),
    **{
        f"fixed_{name}": (
            "int32_t x, int32_t y, int32_t a, int32_t b, int32_t s",
            f"""const int64_t one = 1, sum = x * (one << a) {sign} y * (one << b);
    return @saturated((sum + (one << s >> 1)) >> s);""",
        )
        for name, sign in (("add", "+"), ("sub", "-"))
    },
    "fixed_div": (
        "int32_t x, int32_t y, int32_t s",
        """if (y == 0) {
        return x < 0 ? -INT32_MAX : INT32_MAX;
    }
    return @saturated((int64_t)x * ((int64_t)1 << s) / y);""",
    ),
    "fixed_curve": (
        "const int32_t *c, int32_t x, int32_t low, int32_t high, int32_t s",
        """/* A cubic polynomial for each of many intervals of equal length. */
    const uint32_t d = (uint32_t)(x < low ? low : (x > high ? high : x)) - (uint32_t)low;
    const int32_t u = (int32_t)((d & (((uint32_t)1 << s) - 1u)) << (30 - s));
    const int32_t *const p = c + 4 * (d >> s);
    int32_t y = (int32_t)((int64_t)p[3] * u >> 30) + p[2];
    y = (int32_t)((int64_t)y * u >> 30) + p[1];
    return (int32_t)((int64_t)y * u >> 30) + p[0];""",
    ),
}
"""Arithmetic of fixed-point numbers: parameters and body. The last parameters are shifts."""
_LIBM = {"round": "rint"}
_BASE = ("exp", "tanh", "log", "log1p", "sqrt", "floor", "round", "sin", "cos")


def helper_text(names: Iterable[str], prefix: str, *, libm: bool) -> str:
    """Return the definitions of helper functions, each after those that it calls.

    Args:
        names: The names that `call` was asked for.
        prefix: What all names in the file start with.
        libm: Whether to call the functions of math.h.
    """
    definitions: dict[str, str] = {}

    def define(name: str) -> None:
        body = _body(name, libm)
        for inner in re.findall(r"@(\w+)", body):
            if inner not in definitions:
                define(inner)
        body = re.sub(r"@(\w+)", rf"{prefix}_\1", body)
        kind, argument = (
            "float",
            {"bits": "int32_t x", "wave": "float x, int32_t y"}.get(name, "float x"),
        )
        argument += ", float y" if name in _TWO else ""
        if name in _FIXED:
            kind, argument = "int32_t", _FIXED[name][0]
        head = f"static inline {kind} {prefix}_{name}({argument})"
        definitions[name] = f"{head}\n{{\n    {body}\n}}\n"

    for name in sorted(names):
        if name not in definitions:
            define(name)
    return "\n".join(definitions.values())


def _body(name: str, libm: bool) -> str:
    if name in _FIXED:
        return _FIXED[name][1]
    if name in _COMPOSITE:
        return _COMPOSITE[name]
    if name in _TWO:
        return _TWO[name]
    if libm and name in _BASE:
        return f"return {_LIBM.get(name, name)}f(x);"
    return _LIBRARY[name]


HELPERS = frozenset({*_COMPOSITE, *_TWO, *_LIBRARY, *_FIXED})
"""Operations that are functions."""
