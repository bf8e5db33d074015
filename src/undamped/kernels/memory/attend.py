"""Attention of one sample at one time, forward and backward, inside compiled loops.

Sums over features may be taken in any order, which lets the compiler vectorise them; NaN and
infinity keep their meaning.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from undamped.kernels.shared import jit
from undamped.kernels.shared.jit import njit
from undamped.kernels.shared.tanh import tanh

PART: dict[str, Any] = jit.PART | {"fastmath": {"reassoc", "contract", "nsz"}}
INLINED: dict[str, Any] = jit.PART | {"inline": "always"}
"""For parts that take a whole chunk: handing over a tuple of forty arrays takes longer to compile
than the part itself, so these are put in as source (rellstm, cold: 2.1 s instead of 3.5 s). What is
summed in any order stays in parts of its own."""
ADDITIVE, DOT = 0, 1


@njit(**PART)
def dot(a: Any, b: Any) -> Any:
    """Return the sum of products."""
    total = a.dtype.type(0)
    for j in range(a.shape[0]):
        total += a[j] * b[j]
    return total


@njit(**PART)
def add_scaled(to: Any, scale: Any, row: Any) -> None:
    """Add scale · row."""
    for j in range(to.shape[0]):
        to[j] += scale * row[j]


@njit(**PART)
def fill(row: Any, value: Any) -> None:
    """Write a value everywhere; a slice would say the same and take longer to compile."""
    for j in range(row.shape[0]):
        row[j] = value


@njit(**PART)
def dot_score(query: Any, key: Any, vector: Any) -> Any:
    """Return e for one key, a scaled product."""
    return dot(query, key) / math.sqrt(query.dtype.type(query.shape[0]))


@njit(**PART)
def additive_score(query: Any, key: Any, vector: Any) -> Any:
    """Return e for one key, vᵀ tanh(query + key)."""
    total = query.dtype.type(0)
    for j in range(query.shape[0]):
        total += vector[j] * tanh(query[j] + key[j])
    return total


@njit(**PART)
def softmax(scores: Any, index: Any) -> int:
    """Turn scores into weights where index is not negative; return how many those are."""
    largest, count = scores.dtype.type(-np.inf), 0
    for i in range(scores.shape[0]):
        if index[i] >= 0:
            count += 1
            if scores[i] > largest or scores[i] != scores[i]:
                largest = scores[i]
    total = scores.dtype.type(0)
    for i in range(scores.shape[0]):
        if index[i] >= 0:
            scores[i] = math.exp(scores[i] - largest)
            total += scores[i]
    for i in range(scores.shape[0]):
        scores[i] = scores[i] / total if index[i] >= 0 else scores.dtype.type(0)
    return count


@njit(**PART)
def dot_backward(
    gradient: Any, query: Any, key: Any, query_gradient: Any, key_gradient: Any
) -> None:
    """Add what one score's gradient means for query and key."""
    scale = gradient / math.sqrt(query.dtype.type(query.shape[0]))
    add_scaled(query_gradient, scale, key)
    add_scaled(key_gradient, scale, query)


@njit(**PART)
def additive_backward(
    gradient: Any,
    query: Any,
    key: Any,
    vector: Any,
    query_gradient: Any,
    key_gradient: Any,
    vector_gradient: Any,
) -> None:
    """Add what one score's gradient means for query, key and v."""
    unit = query.dtype.type(1)
    for j in range(query.shape[0]):
        value = tanh(query[j] + key[j])
        vector_gradient[j] += gradient * value
        slope = gradient * vector[j] * (unit - value * value)
        query_gradient[j] += slope
        key_gradient[j] += slope
