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
    PART,
    add_scaled,
    additive_score,
    dot_score,
    fill,
    softmax,
)
from undamped.kernels.memory.screening import log_sigmoid, relevance, screen, surprise
from undamped.kernels.memory.steps import elman, gates, gru, move
from undamped.kernels.shared.compilers import LOOP
from undamped.kernels.shared.gemm import multiply
from undamped.kernels.shared.jit import njit
from undamped.kernels.shared.upto import upto


@njit(**PART)
def _score(score: Any, weights: Any, arrays: Any, b: int, query: Any, row: Any, index: Any) -> None:
    """Write the scores of what `index` names to `row`."""
    for i in upto(index.shape[0]):
        if index[i] >= 0:
            row[i] = score(query, arrays.keys[index[i], b], weights.vector)


@njit(**PART)
def _add_relevance(weights: Any, arrays: Any, b: int, row: Any, index: Any) -> None:
    """Add the logarithms of learned scores."""
    for i in upto(index.shape[0]):
        if index[i] >= 0:
            row[i] += log_sigmoid(relevance(weights, arrays.states[index[i], b]))


@njit(**PART)
def _attend(arrays: Any, b: int, row: Any, index: Any, context: Any) -> int:
    """Turn scores into weights, write their sum of states to `context`; return how many."""
    seen = softmax(row, index)
    fill(context, 0)
    for i in upto(index.shape[0]):
        if index[i] >= 0:
            add_scaled(context, row[i], arrays.states[index[i], b])
    return seen


@njit(**PART)
def _mix(blas: int, joined: Any, mixing: Any, after: Any, alive: Any, t: int, old: Any) -> None:
    multiply(blas, joined, mixing, after, False)
    for b in upto(after.shape[0]):
        if t >= alive[b]:
            move(old[b], after[b])


@cache
def forward(kind: int, alignment: int, screening: int, learned: bool) -> Callable[..., None]:
    """Return the loop that runs through a chunk; what a network does not do is not compiled.

    It begins at step `begin`; `projected` is (steps, samples, product).

    Args:
        kind: The step, as in `Choices`.
        alignment: As there.
        screening: As there.
        learned: Whether h and c are mixed by a matrix.
    """
    is_lstm, is_gru = kind == LSTM, kind == GRU
    attentive = screening in (BY_ATTENTION, BY_SHARE)
    screens, shares, learns = screening >= 0, screening == BY_SHARE, screening == BY_SCORE
    surprised, additive = screening == BY_SURPRISE, alignment == ADDITIVE

    @njit(**LOOP)
    def memory_forward(
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
        room: Any,
    ) -> None:
        batch, size = product.shape[0], arrays.states.shape[2]
        width, slots = projected.shape[2], choices.slots
        half = product.dtype.type(0.5) if choices.mix == HALF else product.dtype.type(1)
        total, context = room.total, room.row
        # Named here, not outside: a loop that is given a function is not kept in the cache.
        score = additive_score if additive else dot_score
        for t in range(begin, begin + projected.shape[0]):
            states, after = arrays.states[slots + t], arrays.mixed[t + 1]
            multiply(blas, arrays.mixed[t], weights.recurrent, product, False)
            for b in upto(batch):
                if t >= alive[b]:
                    fill(states[b], 0)
                    continue
                for j in upto(width):
                    total[j] = product[b, j] + projected[t - begin, b, j]
                if is_lstm:
                    gates(total, arrays.cells[t, b], arrays.cells[t + 1, b], states[b])
                elif is_gru:
                    gru(total, arrays.mixed[t, b], states[b])
                else:
                    elman(kind, total, weights.threshold, states[b])
            multiply(blas, states, weights.key, arrays.keys[slots + t], False)
            for b in upto(batch):
                if t >= alive[b]:
                    move(arrays.mixed[t, b], after[b])
                    if is_lstm:
                        move(arrays.cells[t, b], arrays.cells[t + 1, b])
                    continue
                if screens:
                    first = product.dtype.type(0)
                    if surprised:
                        first = surprise(
                            choices,
                            weights,
                            memory.expected[b],
                            projected[t - begin, b],
                            product[b],
                            total,
                            arrays.cells[t, b],
                            states[b],
                            room,
                        )
                    elif learns:
                        first = relevance(weights, states[b])
                    screen(memory, b, slots + t, first)
                row, index = attended(screens, slots, arrays, t, b)
                if screens:
                    recent = memory.recent.shape[1]
                    for i in upto(recent):
                        index[i] = memory.recent[b, i]
                    for i in upto(memory.kept.shape[1]):
                        index[recent + i] = memory.kept[b, i]
                _score(score, weights, arrays, b, product[b, width:], row, index)
                if learns:
                    _add_relevance(weights, arrays, b, row, index)
                seen = _attend(arrays, b, row, index, context)
                if attentive:
                    scale = product.dtype.type(seen if shares else 1)
                    add_scaled(memory.recent_score[b], scale, row)  # which begins with the recent
                if learned:
                    move(states[b], joined[b, :size])
                    move(context, joined[b, size:])
                else:
                    for j in upto(size):
                        after[b, j] = half * (states[b, j] + context[j])
            if learned:
                _mix(blas, joined, weights.mixing, after, alive, t, arrays.mixed[t])

    return memory_forward
