"""The compiled loop back through a chunk of time."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from undamped.kernels.memory.arrays import BY_SCORE, GRU, HALF, LSTM, attended
from undamped.kernels.memory.attend import (
    ADDITIVE,
    INLINED,
    PART,
    add_scaled,
    additive_backward,
    dot,
    dot_backward,
    fill,
)
from undamped.kernels.memory.screening import relevance_backward
from undamped.kernels.memory.steps import elman_backward, gates_backward, gru_backward, move
from undamped.kernels.shared.gemm import multiply
from undamped.kernels.shared.jit import LOOP, njit


@njit(**PART)
def _slopes(grad_context: Any, states: Any, b: int, row: Any, index: Any, slopes: Any) -> Any:
    """Write the gradients of attention weights to `slopes`; return their weighted mean."""
    mean = row.dtype.type(0)
    for i in range(row.shape[0]):
        if index[i] >= 0:
            slopes[i] = dot(grad_context, states[index[i], b])
            mean += row[i] * slopes[i]
    return mean


@njit(**INLINED)
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
    # Summed for a step first: of all steps there may be millions of terms.
    add_scaled(gradients.vector, query.dtype.type(1), vector_gradient)


@njit(**INLINED)
def _mix_backward(
    learned: bool, half: Any, chunk: Any, step: int, b: int, row: Any, index: Any
) -> None:
    """Write the gradients of a state and its context; with a learned mixture, what it read."""
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


@njit(**INLINED)
def _step_backward(kind: int, chunk: Any, step: int, b: int, grad_state: Any) -> None:
    """Write the gradient of the product that a step read, from that of its hidden state."""
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
    """Return the loop that runs backwards through a `BackwardChunk`; arguments as of `forward`.

    `gradients.mixed` is that of the state after the chunk, and then of the one before it.
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
