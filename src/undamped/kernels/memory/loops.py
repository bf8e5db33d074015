"""The compiled loops over a chunk of time: step, remember, attend, mix; and back.

Remembered states are rows of one array: first those a call began with, then the hidden state of
every step. What a step attends to is a row of indices into it (−1 where a slot is empty), so that
nothing is copied on the way and gradients are added where they belong.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from undamped.kernels.memory.attend import (
    PART,
    add_scaled,
    dot,
    score,
    score_backward,
    softmax,
)
from undamped.kernels.shared.gemm import multiply
from undamped.kernels.shared.jit import njit
from undamped.kernels.shared.tanh import sigmoid, tanh

LOOP: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy"}
TANH, RELU, MODRELU, IDENTITY, LSTM = range(5)
HALF, SUM, LEARNED = range(3)
BY_ATTENTION, BY_SHARE, BY_SURPRISE, BY_SCORE = range(4)


class Choices(NamedTuple):
    """What is the same for a whole pass, as whole numbers."""

    step: int
    alignment: int
    mix: int
    screening: int
    """How states are screened; −1 where all are remembered."""
    slots: int
    """How many remembered states the pass began with."""


class Weights(NamedTuple):
    """The trained numbers, each as the loop reads it; empty where there is none."""

    recurrent: Any
    """(hidden, product + query) on the way there, turned round on the way back."""
    key: Any
    vector: Any
    mixing: Any
    threshold: Any
    relevance: Any
    """(hidden + 1): the weights of the learned score, and its bias."""
    silence: Any
    """(product,), what the input of zeros is projected to."""


class Arrays(NamedTuple):
    """What a pass keeps."""

    states: Any
    """(slots + steps, samples, hidden)."""
    keys: Any
    """The same, times the matrix of keys."""
    mixed: Any
    """(steps + 1, samples, hidden), what the recurrence reads."""
    cells: Any
    """The same for the memory cell of an LSTM."""
    weights: Any
    """Flat: the weights of all samples at the first step, then at the second, …"""
    index: Any
    """Flat: what they belong to, step by step; sample by sample where all is remembered."""


class Gradients(NamedTuple):
    """What the way back adds up, each like what it is the gradient of."""

    states: Any
    keys: Any
    vector: Any
    mixing: Any
    threshold: Any
    relevance: Any
    scores: Any
    """(slots + steps, samples), of the logarithms that learned scores add."""
    mixed: Any
    """(samples, hidden), of what the recurrence reads, at the time that is reached."""
    cells: Any


class Memory(NamedTuple):
    """Where the screening stands: indices and scores of recent and kept states."""

    recent: Any
    recent_score: Any
    kept: Any
    kept_score: Any


@njit(**PART)
def _elman(kind: int, total: Any, threshold: Any, new: Any) -> None:
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
def _gates(total: Any, before: Any, after: Any, new: Any) -> None:
    size = new.shape[0]
    for j in range(size):
        after[j] = sigmoid(total[size + j]) * before[j]
    for j in range(size):
        after[j] += sigmoid(total[j]) * tanh(total[2 * size + j])
    for j in range(size):
        new[j] = sigmoid(total[3 * size + j]) * tanh(after[j])


@njit(**PART)
def _move(row: Any, to: Any) -> None:
    for j in range(to.shape[0]):
        to[j] = row[j]


@njit(**PART)
def _screen(memory: Any, b: int, where: int, first: Any) -> None:
    """Let the oldest recent state go, to the kept ones if it is relevant; take in the new one."""
    recent, scores = memory.recent[b], memory.recent_score[b]
    kept, kept_scores = memory.kept[b], memory.kept_score[b]
    if recent[0] >= 0 and kept.shape[0]:
        place, least = 0, np.inf
        for i in range(kept.shape[0]):
            value = kept_scores[i] if kept[i] >= 0 else -np.inf
            if value < least:
                place, least = i, value
        if scores[0] > least:
            kept[place], kept_scores[place] = recent[0], scores[0]
    last = recent.shape[0] - 1
    for i in range(last):
        recent[i], scores[i] = recent[i + 1], scores[i + 1]
    recent[last], scores[last] = where, first


@njit(**PART)
def _surprise(choices: Any, weights: Any, product: Any, total: Any, cell: Any, new: Any) -> Any:
    """Return how far the input moved the state from where it would have gone alone."""
    size, distance = new.shape[0], new.dtype.type(0)
    width = weights.silence.shape[0]
    for j in range(width):
        total[j] = product[j] + weights.silence[j]
    alone, after = np.empty(size, new.dtype), np.empty(size, new.dtype)
    if choices.step == LSTM:
        _gates(total, cell, after, alone)
    else:
        _elman(choices.step, total, weights.threshold, alone)
    for j in range(size):
        distance += (new[j] - alone[j]) ** 2
    return distance


@njit(**PART)
def _log_sigmoid(x: Any) -> Any:
    zero = type(x)(0)
    return min(x, zero) - np.log1p(np.exp(-abs(x)))


@njit(**PART)
def _relevance(weights: Any, state: Any) -> Any:
    size = state.shape[0]
    return dot(weights.relevance[:size], state) + weights.relevance[size]


@njit(**PART)
def _attend(
    choices: Any, weights: Any, arrays: Any, b: int, query: Any, row: Any, index: Any, context: Any
) -> int:
    """Write the weights of what `index` names to `row`, and their sum of states to `context`."""
    for i in range(index.shape[0]):
        at = index[i]
        if at >= 0:
            row[i] = score(choices.alignment, query, arrays.keys[at, b], weights.vector)
            if choices.screening == BY_SCORE:
                row[i] += _log_sigmoid(_relevance(weights, arrays.states[at, b]))
    seen = softmax(row, index)
    for j in range(context.shape[0]):
        context[j] = 0
    for i in range(index.shape[0]):
        if index[i] >= 0:
            add_scaled(context, row[i], arrays.states[index[i], b])
    return seen


@njit(**PART)
def _slots(choices: Any, arrays: Any, t: int, b: int) -> Any:
    """Return a sample's weights at a time, and the indices of the states they belong to."""
    batch = arrays.states.shape[1]
    if choices.screening >= 0:
        count = arrays.index.shape[0] // (batch * (arrays.mixed.shape[0] - 1))
        begin = (t * batch + b) * count
        return arrays.weights[begin : begin + count], arrays.index[begin : begin + count]
    count = choices.slots + t + 1
    begin = batch * (t * choices.slots + t * (t + 1) // 2) + b * count
    start = b * arrays.states.shape[0]
    return arrays.weights[begin : begin + count], arrays.index[start : start + count]


@njit(**LOOP)
def forward(
    blas: int,
    begin: int,
    choices: Any,
    weights: Any,
    arrays: Any,
    memory: Any,
    projected: Any,
    product: Any,
    joined: Any,
    alive: Any,
) -> None:
    """Run through a chunk that begins at step `begin`; `projected` is (steps, samples, product)."""
    batch, size = product.shape[0], arrays.states.shape[2]
    width, slots = projected.shape[2], choices.slots
    half = product.dtype.type(0.5) if choices.mix == HALF else product.dtype.type(1)
    total, context = np.empty(width, product.dtype), np.empty(size, product.dtype)
    for t in range(begin, begin + projected.shape[0]):
        states, after = arrays.states[slots + t], arrays.mixed[t + 1]
        multiply(blas, arrays.mixed[t], weights.recurrent, product, False)
        for b in range(batch):
            if t >= alive[b]:
                for j in range(size):
                    states[b, j] = 0
                continue
            for j in range(width):
                total[j] = product[b, j] + projected[t - begin, b, j]
            if choices.step == LSTM:
                _gates(total, arrays.cells[t, b], arrays.cells[t + 1, b], states[b])
            else:
                _elman(choices.step, total, weights.threshold, states[b])
        multiply(blas, states, weights.key, arrays.keys[slots + t], False)
        for b in range(batch):
            if t >= alive[b]:
                _move(arrays.mixed[t, b], after[b])
                if choices.step == LSTM:
                    _move(arrays.cells[t, b], arrays.cells[t + 1, b])
                continue
            if choices.screening >= 0:
                first = product.dtype.type(0)
                if choices.screening == BY_SURPRISE:
                    first = _surprise(
                        choices, weights, product[b], total, arrays.cells[t, b], states[b]
                    )
                elif choices.screening == BY_SCORE:
                    first = _relevance(weights, states[b])
                _screen(memory, b, slots + t, first)
            row, index = _slots(choices, arrays, t, b)
            if choices.screening >= 0:
                recent = memory.recent.shape[1]
                for i in range(recent):
                    index[i] = memory.recent[b, i]
                for i in range(memory.kept.shape[1]):
                    index[recent + i] = memory.kept[b, i]
            seen = _attend(choices, weights, arrays, b, product[b, width:], row, index, context)
            if choices.screening == BY_ATTENTION or choices.screening == BY_SHARE:
                scale = product.dtype.type(seen if choices.screening == BY_SHARE else 1)
                add_scaled(memory.recent_score[b], scale, row[: memory.recent.shape[1]])
            if choices.mix == LEARNED:
                _move(states[b], joined[b, :size])
                _move(context, joined[b, size:])
            else:
                for j in range(size):
                    after[b, j] = half * (states[b, j] + context[j])
        if choices.mix == LEARNED:
            _mix(blas, joined, weights.mixing, after, alive, t, arrays.mixed[t])


@njit(**PART)
def _mix(blas: int, joined: Any, mixing: Any, after: Any, alive: Any, t: int, old: Any) -> None:
    multiply(blas, joined, mixing, after, False)
    for b in range(after.shape[0]):
        if t >= alive[b]:
            _move(old[b], after[b])


@njit(**PART)
def _elman_backward(
    kind: int, new: Any, given: Any, gradient: Any, threshold_gradient: Any
) -> None:
    one, zero = new.dtype.type(1), new.dtype.type(0)
    for j in range(new.shape[0]):
        if kind == TANH:
            gradient[j] = given[j] * (one - new[j] * new[j])
        elif kind == RELU:
            gradient[j] = given[j] if new[j] > zero else zero
        elif kind == MODRELU:
            gradient[j] = zero if new[j] == zero else given[j]
            threshold_gradient[j] += gradient[j] if new[j] > zero else -gradient[j]
        else:
            gradient[j] = given[j]


@njit(**PART)
def _gates_backward(
    total: Any, before: Any, after: Any, given: Any, carried: Any, gradient: Any
) -> None:
    size, one = given.shape[0], given.dtype.type(1)
    for j in range(size):
        i, f = sigmoid(total[j]), sigmoid(total[size + j])
        g, o = tanh(total[2 * size + j]), sigmoid(total[3 * size + j])
        shown = tanh(after[j])
        carried[j] += given[j] * o * (one - shown * shown)
        gradient[3 * size + j] = given[j] * shown * o * (one - o)
        gradient[j] = carried[j] * g * i * (one - i)
        gradient[size + j] = carried[j] * before[j] * f * (one - f)
        gradient[2 * size + j] = carried[j] * i * (one - g * g)
        carried[j] *= f


@njit(**PART)
def _attend_backward(
    choices: Any,
    weights: Any,
    arrays: Any,
    gradients: Any,
    t: int,
    b: int,
    query: Any,
    context_gradient: Any,
    query_gradient: Any,
) -> None:
    row, index = _slots(choices, arrays, t, b)
    mean = query.dtype.type(0)
    given = np.empty(row.shape[0], query.dtype)
    for i in range(row.shape[0]):
        if index[i] >= 0:
            given[i] = dot(context_gradient, arrays.states[index[i], b])
            mean += row[i] * given[i]
    for i in range(row.shape[0]):
        at = index[i]
        if at < 0:
            continue
        add_scaled(gradients.states[at, b], row[i], context_gradient)
        score_gradient = row[i] * (given[i] - mean)
        score_backward(
            choices.alignment,
            score_gradient,
            query,
            arrays.keys[at, b],
            weights.vector,
            query_gradient,
            gradients.keys[at, b],
            gradients.vector,
        )
        if choices.screening == BY_SCORE:
            gradients.scores[at, b] += score_gradient


@njit(**PART)
def _relevance_backward(weights: Any, gradients: Any, at: int, b: int, state: Any) -> None:
    """Bring the gradient of a learned score to its state and its weights."""
    size = state.shape[0]
    slope = gradients.scores[at, b] * sigmoid(-_relevance(weights, state))
    add_scaled(gradients.states[at, b], slope, weights.relevance[:size])
    add_scaled(gradients.relevance[:size], slope, state)
    gradients.relevance[size] += slope


@njit(**LOOP)
def backward(
    blas: int,
    begin: int,
    choices: Any,
    weights: Any,
    arrays: Any,
    gradients: Any,
    output_gradient: Any,
    product: Any,
    product_gradient: Any,
    joined: Any,
    alive: Any,
) -> None:
    """Go back through a chunk.

    `product` is (steps, samples, product + query) with the projected input added, and
    `product_gradient`, alike, is filled; `gradients.mixed` is that of the state after the chunk,
    and then of the one before it.
    """
    steps, batch, size = output_gradient.shape
    width = product.shape[2] - size
    slots, dtype = choices.slots, product.dtype
    half = dtype.type(0.5) if choices.mix == HALF else dtype.type(1)
    pulled = np.empty((batch, size), dtype)
    parts = np.empty((batch, 2 * size), dtype)
    total = np.empty(size, dtype)
    for step in range(steps - 1, -1, -1):
        t, result = begin + step, product_gradient[step]
        states, flow = arrays.states[slots + t], gradients.mixed
        if choices.mix == LEARNED:
            multiply(blas, flow, weights.mixing, parts, False)
        for b in range(batch):
            for j in range(width + size):
                result[b, j] = 0
            if t >= alive[b]:
                continue
            if choices.mix == LEARNED:
                _move(flow[b], joined[step, b, 2 * size :])
                for j in range(size):
                    joined[step, b, j] = states[b, j]
                    joined[step, b, size + j] = 0
                row, index = _slots(choices, arrays, t, b)
                for i in range(row.shape[0]):
                    if index[i] >= 0:
                        add_scaled(
                            joined[step, b, size : 2 * size],
                            row[i],
                            arrays.states[index[i], b],
                        )
            else:
                for j in range(size):
                    parts[b, j] = half * flow[b, j]
                    parts[b, size + j] = half * flow[b, j]
            _attend_backward(
                choices,
                weights,
                arrays,
                gradients,
                t,
                b,
                product[step, b, width:],
                parts[b, size:],
                result[b, width:],
            )
        multiply(blas, gradients.keys[slots + t], weights.key, pulled, False)
        for b in range(batch):
            if t >= alive[b]:
                continue
            if choices.screening == BY_SCORE:
                _relevance_backward(weights, gradients, slots + t, b, states[b])
            for j in range(size):
                total[j] = (
                    output_gradient[step, b, j]
                    + parts[b, j]
                    + gradients.states[slots + t, b, j]
                    + pulled[b, j]
                )
            if choices.step == LSTM:
                _gates_backward(
                    product[step, b],
                    arrays.cells[t, b],
                    arrays.cells[t + 1, b],
                    total,
                    gradients.cells[b],
                    result[b],
                )
            else:
                _elman_backward(choices.step, states[b], total, result[b], gradients.threshold)
        multiply(blas, result, weights.recurrent, pulled, False)
        for b in range(batch):
            if t < alive[b]:
                _move(pulled[b], flow[b])
