"""The compiled loop over a chunk of time: step, remember, attend, mix."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from undamped.kernels.memory.arrays import (
    BY_ATTENTION,
    BY_SCORE,
    BY_SHARE,
    BY_SURPRISE,
    GRU,
    HALF,
    LSTM,
    attended,
)
from undamped.kernels.memory.attend import (
    ADDITIVE,
    INLINED,
    add_scaled,
    additive_score,
    dot_score,
    fill,
    softmax,
)
from undamped.kernels.memory.screening import log_sigmoid, relevance, screen, surprise
from undamped.kernels.memory.steps import elman, gates, gru, move
from undamped.kernels.shared.gemm import multiply
from undamped.kernels.shared.jit import LOOP, njit


@njit(**INLINED)
def _step(kind: int, chunk: Any, t: int) -> None:
    """Write the hidden states of a time; zeros where a sequence is over."""
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


@njit(**INLINED)
def _screen(screening: int, chunk: Any, t: int, b: int, index: Any) -> None:
    """Take the new state of a sample into its memory; write what the memory then holds."""
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
    for i in range(memory.kept.shape[1]):
        index[recent + i] = memory.kept[b, i]


@njit(**INLINED)
def _attend(additive: bool, learns: bool, chunk: Any, b: int, row: Any, index: Any) -> int:
    """Write attention weights to `row` and the context to its buffer; return how many there are."""
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


@njit(**INLINED)
def _mix(chunk: Any, t: int) -> None:
    """Mix states and contexts by the learned matrix."""
    after, old = chunk.arrays.mixed[t + 1], chunk.arrays.mixed[t]
    multiply(chunk.blas, chunk.joined, chunk.weights.mixing, after, False)
    for b in range(after.shape[0]):
        if t >= chunk.alive[b]:
            move(old[b], after[b])


@njit(**INLINED)
def _freeze(kind: int, arrays: Any, t: int, b: int) -> None:
    """Carry over the state of a sequence that is over."""
    move(arrays.mixed[t, b], arrays.mixed[t + 1, b])
    if kind == LSTM:
        move(arrays.cells[t, b], arrays.cells[t + 1, b])


@cache
def forward(kind: int, alignment: int, screening: int, learned: bool) -> Callable[..., None]:
    """Return the loop that runs through a `ForwardChunk`.

    Only what a network does is compiled.

    Args:
        kind: The step, as in `Choices`.
        alignment: As there.
        screening: As there.
        learned: Whether h and c are mixed by a matrix.
    """
    screens, shares, learns = screening >= 0, screening == BY_SHARE, screening == BY_SCORE
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
                    scale = product.dtype.type(count if shares else 1)
                    # The scores are those of recent states, with which the row begins.
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
