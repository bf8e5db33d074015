"""The compiled loops over a chunk of time: step, store, attend, mix; and their gradients.

Functions that take a whole chunk are inlined as source (`inlined`): rellstm compiles in 2.1 s
instead of 3.5 s. Sums in arbitrary order stay in functions of one row (`rows`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from undamped.kernels.memory.arrays import (
    ADDITIVE,
    BY_ATTENTION,
    BY_SCORE,
    BY_SHARE,
    BY_SURPRISE,
    GRU,
    HALF,
    LSTM,
    attended,
)
from undamped.kernels.memory.rows import (
    PART,
    add_scaled,
    additive_backward,
    additive_score,
    dot,
    dot_backward,
    dot_score,
    elman,
    elman_backward,
    fill,
    gates,
    gates_backward,
    gru,
    gru_backward,
    log_sigmoid,
    move,
    relevance,
    relevance_backward,
    screen,
    softmax,
    surprise,
)
from undamped.kernels.shared.gemm import multiply
from undamped.kernels.shared.jit import LOOP, inlined, njit


@inlined
def _step(kind: int, chunk: Any, t: int) -> None:
    """Write the hidden states of a time; zeros where a sequence has ended."""
    arrays, total, product = chunk.arrays, chunk.buffers.total, chunk.product
    states = arrays.states[chunk.choices.slots + t]
    for b in range(product.shape[0]):
        if t >= chunk.alive[b]:
            fill(states[b], 0)
            continue
        for j in range(chunk.projected.shape[2]):
            total[j] = product[b, j] + chunk.projected[t - chunk.begin, b, j]
        if kind == LSTM:
            gates(total, arrays.cells[t, b], arrays.cells[t + 1, b], states[b])
        elif kind == GRU:
            gru(total, arrays.mixed[t, b], states[b])
        else:
            elman(kind, total, chunk.weights.threshold, states[b])


@inlined
def _screen(screening: int, chunk: Any, t: int, b: int, index: Any) -> None:
    """Add the new state of a sample to its memory; write the indices of the memory."""
    row, memory = chunk.choices.slots + t, chunk.memory
    state = chunk.arrays.states[row, b]
    score = state.dtype.type(0)
    if screening == BY_SURPRISE:
        score = surprise(chunk, t, b, state)
    elif screening == BY_SCORE:
        score = relevance(chunk.weights, state)
    screen(memory, b, row, score)
    recent = memory.recent.shape[1]
    for i in range(recent):
        index[i] = memory.recent[b, i]
    for i in range(memory.relevant.shape[1]):
        index[recent + i] = memory.relevant[b, i]


@inlined
def _attend(additive: bool, learns: bool, chunk: Any, b: int, row: Any, index: Any) -> int:
    """Write attention weights to `row` and the context to its buffer; return their number."""
    arrays, weights, context = chunk.arrays, chunk.weights, chunk.buffers.row
    query = chunk.product[b, chunk.projected.shape[2] :]
    for i in range(index.shape[0]):
        if index[i] >= 0:
            key = arrays.keys[index[i], b]
            if additive:
                row[i] = additive_score(query, key, weights.vector)
            else:
                row[i] = dot_score(query, key, weights.vector)
    if learns:
        for i in range(index.shape[0]):
            if index[i] >= 0:
                row[i] += log_sigmoid(relevance(weights, arrays.states[index[i], b]))
    count = softmax(row, index)
    fill(context, 0)
    for i in range(index.shape[0]):
        if index[i] >= 0:
            add_scaled(context, row[i], arrays.states[index[i], b])
    return count


@inlined
def _mix(chunk: Any, t: int) -> None:
    """Mix states and contexts by the learned matrix."""
    after, old = chunk.arrays.mixed[t + 1], chunk.arrays.mixed[t]
    multiply(chunk.blas, chunk.joined, chunk.weights.mixing, after, False)
    for b in range(after.shape[0]):
        if t >= chunk.alive[b]:
            move(old[b], after[b])


@inlined
def _freeze(kind: int, arrays: Any, t: int, b: int) -> None:
    """Copy the state of a sequence that has ended."""
    move(arrays.mixed[t, b], arrays.mixed[t + 1, b])
    if kind == LSTM:
        move(arrays.cells[t, b], arrays.cells[t + 1, b])


@cache
def forward(kind: int, alignment: int, screening: int, learned: bool) -> Callable[..., None]:
    """Return the forward loop over a `ForwardChunk`, compiled for one kind of network.

    Args:
        kind: The step, as in `Choices`.
        alignment: As there.
        screening: As there.
        learned: Whether h and c are mixed by a matrix.
    """
    screens, by_share, learns = screening >= 0, screening == BY_SHARE, screening == BY_SCORE
    attentive = screening in (BY_ATTENTION, BY_SHARE)
    additive = alignment == ADDITIVE

    @njit(**LOOP)
    def memory_forward(chunk: Any) -> None:
        arrays, product, slots = chunk.arrays, chunk.product, chunk.choices.slots
        size, context, blas = arrays.states.shape[2], chunk.buffers.row, chunk.blas
        half = product.dtype.type(0.5) if chunk.choices.mix == HALF else product.dtype.type(1)
        for t in range(chunk.begin, chunk.begin + chunk.projected.shape[0]):
            states, after = arrays.states[slots + t], arrays.mixed[t + 1]
            multiply(blas, arrays.mixed[t], chunk.weights.recurrent, product, False)
            _step(kind, chunk, t)
            multiply(blas, states, chunk.weights.key, arrays.keys[slots + t], False)
            for b in range(product.shape[0]):
                if t >= chunk.alive[b]:
                    _freeze(kind, arrays, t, b)
                    continue
                row, index = attended(screens, slots, arrays, t, b)
                if screens:
                    _screen(screening, chunk, t, b, index)
                count = _attend(additive, learns, chunk, b, row, index)
                if attentive:
                    scale = product.dtype.type(count if by_share else 1)
                    # Scores of recent states, the first ones of the row.
                    add_scaled(chunk.memory.recent_score[b], scale, row)
                if learned:
                    move(states[b], chunk.joined[b, :size])
                    move(context, chunk.joined[b, size:])
                else:
                    for j in range(size):
                        after[b, j] = half * (states[b, j] + context[j])
            if learned:
                _mix(chunk, t)

    return memory_forward


@njit(**PART)
def _slopes(grad_context: Any, states: Any, b: int, row: Any, index: Any, slopes: Any) -> Any:
    """Write the gradients of attention weights to `slopes`; return their weighted mean."""
    mean = row.dtype.type(0)
    for i in range(row.shape[0]):
        if index[i] >= 0:
            slopes[i] = dot(grad_context, states[index[i], b])
            mean += row[i] * slopes[i]
    return mean


@inlined
def _attend_backward(
    additive: bool, by_score: bool, chunk: Any, step: int, b: int, row: Any, index: Any
) -> None:
    """Add the gradient of a context to those of states, keys, query and v."""
    arrays, gradients, slopes = chunk.arrays, chunk.gradients, chunk.buffers.row
    size, vector_gradient = arrays.states.shape[2], chunk.buffers.total
    width = chunk.product.shape[2] - size
    query, query_gradient = chunk.product[step, b, width:], chunk.product_gradient[step, b, width:]
    context_gradient = chunk.buffers.halves[b, size:]
    fill(vector_gradient, 0)
    mean = _slopes(context_gradient, arrays.states, b, row, index, slopes)
    for i in range(row.shape[0]):
        at = index[i]
        if at < 0:
            continue
        add_scaled(gradients.states[at, b], row[i], context_gradient)
        score_gradient = row[i] * (slopes[i] - mean)
        key, key_gradient = arrays.keys[at, b], gradients.keys[at, b]
        if additive:
            additive_backward(
                score_gradient,
                query,
                key,
                chunk.weights.vector,
                query_gradient,
                key_gradient,
                vector_gradient,
            )
        else:
            dot_backward(score_gradient, query, key, query_gradient, key_gradient)
        if by_score:
            gradients.scores[at, b] += score_gradient
    # Summed per step first: over all steps there may be millions of terms.
    add_scaled(gradients.vector, query.dtype.type(1), vector_gradient)


@inlined
def _mix_backward(
    learned: bool, half: Any, chunk: Any, step: int, b: int, row: Any, index: Any
) -> None:
    """Write the gradients of a state and its context; for a learned mixture, also its arguments."""
    arrays, joined = chunk.arrays, chunk.joined
    size, grad_mixed = arrays.states.shape[2], chunk.gradients.mixed[b]
    state = arrays.states[chunk.choices.slots + chunk.begin + step, b]
    if learned:
        move(grad_mixed, joined[step, b, 2 * size :])
        for j in range(size):
            joined[step, b, j] = state[j]
            joined[step, b, size + j] = 0
        for i in range(row.shape[0]):
            if index[i] >= 0:
                context = joined[step, b, size : 2 * size]
                add_scaled(context, row[i], arrays.states[index[i], b])
    else:
        halves = chunk.buffers.halves[b]
        for j in range(size):
            halves[j] = half * grad_mixed[j]
            halves[size + j] = half * grad_mixed[j]


@inlined
def _step_backward(kind: int, chunk: Any, step: int, b: int, grad_state: Any) -> None:
    """Write the gradient of the product of a step from that of its hidden state."""
    t, arrays, result = chunk.begin + step, chunk.arrays, chunk.product_gradient[step, b]
    product, size = chunk.product[step, b], arrays.states.shape[2]
    if kind == LSTM:
        old, new = arrays.cells[t, b], arrays.cells[t + 1, b]
        gates_backward(product, old, new, grad_state, chunk.gradients.cells[b], result)
    elif kind == GRU:
        direct = chunk.buffers.halves[b, :size]
        gru_backward(product, arrays.mixed[t, b], grad_state, result, direct)
    else:
        state = arrays.states[chunk.choices.slots + t, b]
        elman_backward(kind, state, grad_state, result, chunk.gradients.threshold)


@cache
def backward(kind: int, alignment: int, screening: int, learned: bool) -> Callable[..., None]:
    """Return the backward loop over a `BackwardChunk`; arguments as of `forward`.

    `gradients.mixed` is that of the state after the chunk, replaced by that before it.
    """
    is_gru, additive = kind == GRU, alignment == ADDITIVE
    screens, by_score = screening >= 0, screening == BY_SCORE

    @njit(**LOOP)
    def memory_backward(chunk: Any) -> None:
        arrays, gradients, weights = chunk.arrays, chunk.gradients, chunk.weights
        (steps, batch, size), slots = chunk.output_gradient.shape, chunk.choices.slots
        dtype, blas, grad_mixed = chunk.product.dtype, chunk.blas, chunk.gradients.mixed
        half = dtype.type(0.5) if chunk.choices.mix == HALF else dtype.type(1)
        grad_state, halves = chunk.buffers.total, chunk.buffers.halves
        products = chunk.buffers.rows
        for step in range(steps - 1, -1, -1):
            t, result = chunk.begin + step, chunk.product_gradient[step]
            if learned:
                multiply(blas, grad_mixed, weights.mixing, halves, False)
            for b in range(batch):
                fill(result[b], 0)
                if t < chunk.alive[b]:
                    row, index = attended(screens, slots, arrays, t, b)
                    _mix_backward(learned, half, chunk, step, b, row, index)
                    _attend_backward(additive, by_score, chunk, step, b, row, index)
            multiply(blas, gradients.keys[slots + t], weights.key, products, False)
            for b in range(batch):
                if t >= chunk.alive[b]:
                    continue
                if by_score:
                    state = arrays.states[slots + t, b]
                    relevance_backward(weights, gradients, slots + t, b, state)
                for j in range(size):
                    grad_state[j] = (
                        chunk.output_gradient[step, b, j]
                        + halves[b, j]
                        + gradients.states[slots + t, b, j]
                        + products[b, j]
                    )
                _step_backward(kind, chunk, step, b, grad_state)
            multiply(blas, result, weights.recurrent, products, False)
            for b in range(batch):
                if t < chunk.alive[b]:
                    move(products[b], grad_mixed[b])
                    if is_gru:
                        add_scaled(grad_mixed[b], dtype.type(1), halves[b, :size])

    return memory_backward
