"""Attention, recurrent step and screening of one sample at one time, inside compiled loops.

Sums over features may be reordered, so that the compiler vectorises them; NaN and infinity are
handled as usual.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from undamped.kernels.memory.arrays import LSTM, MODRELU, RELU, TANH
from undamped.kernels.shared import jit
from undamped.kernels.shared.jit import njit
from undamped.kernels.shared.tanh import sigmoid, tanh

PART: dict[str, Any] = jit.PART | {"fastmath": {"reassoc", "contract", "nsz"}}
# For functions that are called for every attended row. Inlined, they check once per loop, not once
# per row, that arrays do not overlap: a tenth of the time of the backward pass of RelRNN.
INLINE: dict[str, Any] = PART | {"forceinline": True}


# Attention


@njit(**INLINE)
def dot(a: Any, b: Any) -> Any:
    """Return the sum of products."""
    total = a.dtype.type(0)
    for j in range(a.shape[0]):
        total += a[j] * b[j]
    return total


@njit(**INLINE)
def add_scaled(to: Any, scale: Any, row: Any) -> None:
    """Add scale · row."""
    for j in range(to.shape[0]):
        to[j] += scale * row[j]


@njit(**PART)
def fill(row: Any, value: Any) -> None:
    """Fill with a value; an assignment to a slice takes longer to compile."""
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
    """Replace scores by weights where the index is not negative; return their number."""
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
    """Add the gradient of one score to those of query and key."""
    scale = gradient / math.sqrt(query.dtype.type(query.shape[0]))
    add_scaled(query_gradient, scale, key)
    add_scaled(key_gradient, scale, query)


@njit(**INLINE)
def additive_backward(
    gradient: Any,
    query: Any,
    key: Any,
    vector: Any,
    query_gradient: Any,
    key_gradient: Any,
    vector_gradient: Any,
) -> None:
    """Add the gradient of one score to those of query, key and v."""
    unit = query.dtype.type(1)
    for j in range(query.shape[0]):
        value = tanh(query[j] + key[j])
        vector_gradient[j] += gradient * value
        slope = gradient * vector[j] * (unit - value * value)
        query_gradient[j] += slope
        key_gradient[j] += slope


# The recurrent step: φ of an RNN, gates of an LSTM or GRU


@njit(**PART)
def move(row: Any, to: Any) -> None:
    """Copy a row."""
    for j in range(to.shape[0]):
        to[j] = row[j]


@njit(**PART)
def elman(kind: int, total: Any, threshold: Any, new: Any) -> None:
    """Write h = φ(total)."""
    zero = total.dtype.type(0)
    for j in range(new.shape[0]):
        value = total[j]
        if kind == TANH:
            new[j] = tanh(value)
        elif kind == RELU:
            new[j] = zero if value <= zero else value
        elif kind == MODRELU:
            size = max(abs(value) + threshold[j], zero)
            new[j] = zero if value == zero else (size if value > zero else -size)
        else:
            new[j] = value


@njit(**PART)
def gates(total: Any, before: Any, after: Any, new: Any) -> None:
    """Write the cell and the hidden state of an LSTM; `total` holds i, f, g, o."""
    size = new.shape[0]
    for j in range(size):
        after[j] = sigmoid(total[size + j]) * before[j]
    for j in range(size):
        after[j] += sigmoid(total[j]) * tanh(total[2 * size + j])
    for j in range(size):
        new[j] = sigmoid(total[3 * size + j]) * tanh(after[j])


@njit(**PART)
def gru(total: Any, before: Any, new: Any) -> None:
    """Write h of a GRU; `total` holds r, z, and both parts of the candidate."""
    size, unit = new.shape[0], new.dtype.type(1)
    for j in range(size):
        r, z = sigmoid(total[j]), sigmoid(total[size + j])
        candidate = tanh(total[2 * size + j] + r * total[3 * size + j])
        new[j] = (unit - z) * candidate + z * before[j]


@njit(**PART)
def elman_backward(
    kind: int, new: Any, grad_new: Any, gradient: Any, threshold_gradient: Any
) -> None:
    """Write the gradient of `total` from that of h; add to that of the threshold."""
    unit, zero = new.dtype.type(1), new.dtype.type(0)
    for j in range(new.shape[0]):
        if kind == TANH:
            gradient[j] = grad_new[j] * (unit - new[j] * new[j])
        elif kind == RELU:
            gradient[j] = grad_new[j] if new[j] > zero else zero
        elif kind == MODRELU:
            gradient[j] = zero if new[j] == zero else grad_new[j]
            threshold_gradient[j] += gradient[j] if new[j] > zero else -gradient[j]
        else:
            gradient[j] = grad_new[j]


@njit(**PART)
def gates_backward(
    total: Any, before: Any, after: Any, grad_new: Any, grad_cell: Any, gradient: Any
) -> None:
    """Write the gradient of `total`; backpropagate `carried`, that of the cell."""
    size, unit = grad_new.shape[0], grad_new.dtype.type(1)
    for j in range(size):
        i, f = sigmoid(total[j]), sigmoid(total[size + j])
        g, o = tanh(total[2 * size + j]), sigmoid(total[3 * size + j])
        squashed = tanh(after[j])
        grad_cell[j] += grad_new[j] * o * (unit - squashed * squashed)
        gradient[3 * size + j] = grad_new[j] * squashed * o * (unit - o)
        gradient[j] = grad_cell[j] * g * i * (unit - i)
        gradient[size + j] = grad_cell[j] * before[j] * f * (unit - f)
        gradient[2 * size + j] = grad_cell[j] * i * (unit - g * g)
        grad_cell[j] *= f


@njit(**PART)
def gru_backward(total: Any, before: Any, grad_new: Any, gradient: Any, direct: Any) -> None:
    """Write the gradient of `total`, and to `direct` that of the old state in h."""
    size, unit = grad_new.shape[0], grad_new.dtype.type(1)
    for j in range(size):
        r, z = sigmoid(total[j]), sigmoid(total[size + j])
        candidate = tanh(total[2 * size + j] + r * total[3 * size + j])
        slope = grad_new[j] * (unit - z) * (unit - candidate * candidate)
        gradient[j] = slope * total[3 * size + j] * r * (unit - r)
        gradient[size + j] = grad_new[j] * (before[j] - candidate) * z * (unit - z)
        gradient[2 * size + j] = slope
        gradient[3 * size + j] = slope * r
        direct[j] = grad_new[j] * z


# Screening: which states stay in memory, by attention, surprise or a learned score


@njit(**PART)
def screen(memory: Any, b: int, row: int, first: Any) -> None:
    """Move the oldest recent state to the relevant ones if it is relevant; add the new one."""
    recent, scores = memory.recent[b], memory.recent_score[b]
    relevant, relevant_scores = memory.relevant[b], memory.relevant_score[b]
    if recent[0] >= 0 and relevant.shape[0]:
        weakest = 0
        least = np.inf
        for i in range(relevant.shape[0]):
            value = relevant_scores[i] if relevant[i] >= 0 else -np.inf
            if value < least:
                weakest = i
                least = value
        if scores[0] > least:
            relevant[weakest] = recent[0]
            relevant_scores[weakest] = scores[0]
    last = recent.shape[0] - 1
    for i in range(last):
        recent[i] = recent[i + 1]
        scores[i] = scores[i + 1]
    recent[last] = row
    scores[last] = first


@njit(**PART)
def surprise(chunk: Any, t: int, b: int, new: Any) -> Any:
    """Return the distance of the state from the state after the expected input.

    The expected input, a running mean of projected inputs, is then updated.
    """
    weights, expected, total = chunk.weights, chunk.memory.expected[b], chunk.buffers.total
    projected, product = chunk.projected[t - chunk.begin, b], chunk.product[b]
    size, distance = new.shape[0], new.dtype.type(0)
    silence, rate = weights.silence, new.dtype.type(chunk.choices.rate)
    for j in range(expected.shape[0]):
        total[j] = product[j] + silence[j] + expected[j]
        expected[j] += rate * (projected[j] - silence[j] - expected[j])
    predicted, cell = chunk.buffers.rows[0], chunk.buffers.rows[1]
    if chunk.choices.step == LSTM:
        gates(total, chunk.arrays.cells[t, b], cell, predicted)
    else:
        elman(chunk.choices.step, total, weights.threshold, predicted)
    for j in range(size):
        distance += (new[j] - predicted[j]) ** 2
    return distance


@njit(**PART)
def log_sigmoid(x: Any) -> Any:
    """Return log σ(x)."""
    zero = type(x)(0)
    return min(x, zero) - np.log1p(np.exp(-abs(x)))


@njit(**PART)
def relevance(weights: Any, state: Any) -> Any:
    """Return the learned score of a state."""
    size = state.shape[0]
    return dot(weights.relevance[:size], state) + weights.relevance[size]


@njit(**PART)
def relevance_backward(weights: Any, gradients: Any, at: int, b: int, state: Any) -> None:
    """Add the gradient of a learned score to those of its state and its weights."""
    size = state.shape[0]
    slope = gradients.scores[at, b] * sigmoid(-relevance(weights, state))
    add_scaled(gradients.states[at, b], slope, weights.relevance[:size])
    add_scaled(gradients.relevance[:size], slope, state)
    gradients.relevance[size] += slope
