"""The compiled loop back through a chunk of time."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from undamped.kernels.memory.arrays import BY_SCORE, GRU, HALF, LSTM, attended
from undamped.kernels.memory.attend import (
    ADDITIVE,
    PART,
    add_scaled,
    additive_backward,
    dot,
    dot_backward,
    fill,
)
from undamped.kernels.memory.screening import relevance_backward
from undamped.kernels.memory.steps import elman_backward, gates_backward, gru_backward, move
from undamped.kernels.shared.compilers import LOOP
from undamped.kernels.shared.gemm import multiply
from undamped.kernels.shared.jit import njit
from undamped.kernels.shared.upto import upto


@njit(**PART)
def _attend_backward(
    score_backward: Any,
    by_score: bool,
    weights: Any,
    arrays: Any,
    gradients: Any,
    row: Any,
    index: Any,
    b: int,
    query: Any,
    context_gradient: Any,
    query_gradient: Any,
    vector_gradient: Any,
    given: Any,
) -> None:
    mean = query.dtype.type(0)
    for i in upto(row.shape[0]):
        if index[i] >= 0:
            given[i] = dot(context_gradient, arrays.states[index[i], b])
            mean += row[i] * given[i]
    for i in upto(row.shape[0]):
        at = index[i]
        if at < 0:
            continue
        add_scaled(gradients.states[at, b], row[i], context_gradient)
        score_gradient = row[i] * (given[i] - mean)
        score_backward(
            score_gradient,
            query,
            arrays.keys[at, b],
            weights.vector,
            query_gradient,
            gradients.keys[at, b],
            vector_gradient,
        )
        if by_score:
            gradients.scores[at, b] += score_gradient


@cache
def backward(kind: int, alignment: int, screening: int, learned: bool) -> Callable[..., None]:
    """Return the loop that goes back through a chunk; arguments as of `forward`.

    `product` is (steps, samples, product + query) with the projected input added, and
    `product_gradient`, alike, is filled; `gradients.mixed` is that of the state after the chunk,
    and then of the one before it.
    """
    is_lstm, is_gru = kind == LSTM, kind == GRU
    screens, by_score = screening >= 0, screening == BY_SCORE
    additive = alignment == ADDITIVE

    @njit(**LOOP)
    def memory_backward(
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
        room: Any,
    ) -> None:
        steps, batch, size = output_gradient.shape
        width = product.shape[2] - size
        slots, dtype = choices.slots, product.dtype
        half = dtype.type(0.5) if choices.mix == HALF else dtype.type(1)
        total, pulled, parts = room.total, room.alone, room.parts
        # Named here, not outside: a loop that is given a function is not kept in the cache.
        score_backward = additive_backward if additive else dot_backward
        for step in range(steps - 1, -1, -1):
            t, result = begin + step, product_gradient[step]
            states, flow = arrays.states[slots + t], gradients.mixed
            if learned:
                multiply(blas, flow, weights.mixing, parts, False)
            for b in upto(batch):
                fill(result[b], 0)
                if t >= alive[b]:
                    continue
                row, index = attended(screens, slots, arrays, t, b)
                if learned:
                    move(flow[b], joined[step, b, 2 * size :])
                    for j in upto(size):
                        joined[step, b, j] = states[b, j]
                        joined[step, b, size + j] = 0
                    for i in upto(row.shape[0]):
                        if index[i] >= 0:
                            add_scaled(
                                joined[step, b, size : 2 * size],
                                row[i],
                                arrays.states[index[i], b],
                            )
                else:
                    for j in upto(size):
                        parts[b, j] = half * flow[b, j]
                        parts[b, size + j] = half * flow[b, j]
                query, into = product[step, b, width:], parts[b, size:]
                fill(total, 0)
                _attend_backward(
                    score_backward,
                    by_score,
                    weights,
                    arrays,
                    gradients,
                    row,
                    index,
                    b,
                    query,
                    into,
                    result[b, width:],
                    total,
                    room.row,
                )
                # Summed for a step first: of all steps there may be millions of terms.
                add_scaled(gradients.vector, dtype.type(1), total)
            multiply(blas, gradients.keys[slots + t], weights.key, pulled, False)
            for b in upto(batch):
                if t >= alive[b]:
                    continue
                if by_score:
                    relevance_backward(weights, gradients, slots + t, b, states[b])
                for j in upto(size):
                    total[j] = (
                        output_gradient[step, b, j]
                        + parts[b, j]
                        + gradients.states[slots + t, b, j]
                        + pulled[b, j]
                    )
                if is_lstm:
                    gates_backward(
                        product[step, b],
                        arrays.cells[t, b],
                        arrays.cells[t + 1, b],
                        total,
                        gradients.cells[b],
                        result[b],
                    )
                elif is_gru:
                    gru_backward(
                        product[step, b], arrays.mixed[t, b], total, result[b], parts[b, :size]
                    )
                else:
                    elman_backward(kind, states[b], total, result[b], gradients.threshold)
            multiply(blas, result, weights.recurrent, pulled, False)
            for b in upto(batch):
                if t < alive[b]:
                    move(pulled[b], flow[b])
                    if is_gru:
                        add_scaled(flow[b], dtype.type(1), parts[b, :size])

    return memory_backward
