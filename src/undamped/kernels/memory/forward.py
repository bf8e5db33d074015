"""The compiled loop over a chunk of time: step, remember, attend, mix."""

from __future__ import annotations

from typing import Any

import numpy as np

from undamped.kernels.memory.arrays import (
    BY_ATTENTION,
    BY_SCORE,
    BY_SHARE,
    BY_SURPRISE,
    GRU,
    HALF,
    LEARNED,
    LSTM,
    attended,
)
from undamped.kernels.memory.attend import LOOP, PART, add_scaled, score, softmax
from undamped.kernels.memory.screening import log_sigmoid, relevance, screen, surprise
from undamped.kernels.memory.steps import elman, gates, gru, move
from undamped.kernels.shared.gemm import multiply
from undamped.kernels.shared.jit import njit


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
                row[i] += log_sigmoid(relevance(weights, arrays.states[at, b]))
    seen = softmax(row, index)
    for j in range(context.shape[0]):
        context[j] = 0
    for i in range(index.shape[0]):
        if index[i] >= 0:
            add_scaled(context, row[i], arrays.states[index[i], b])
    return seen


@njit(**PART)
def _mix(blas: int, joined: Any, mixing: Any, after: Any, alive: Any, t: int, old: Any) -> None:
    multiply(blas, joined, mixing, after, False)
    for b in range(after.shape[0]):
        if t >= alive[b]:
            move(old[b], after[b])


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
                gates(total, arrays.cells[t, b], arrays.cells[t + 1, b], states[b])
            elif choices.step == GRU:
                gru(total, arrays.mixed[t, b], states[b])
            else:
                elman(choices.step, total, weights.threshold, states[b])
        multiply(blas, states, weights.key, arrays.keys[slots + t], False)
        for b in range(batch):
            if t >= alive[b]:
                move(arrays.mixed[t, b], after[b])
                if choices.step == LSTM:
                    move(arrays.cells[t, b], arrays.cells[t + 1, b])
                continue
            if choices.screening >= 0:
                first = product.dtype.type(0)
                if choices.screening == BY_SURPRISE:
                    first = surprise(
                        choices,
                        weights,
                        memory.expected[b],
                        projected[t - begin, b],
                        product[b],
                        total,
                        arrays.cells[t, b],
                        states[b],
                    )
                elif choices.screening == BY_SCORE:
                    first = relevance(weights, states[b])
                screen(memory, b, slots + t, first)
            row, index = attended(choices, arrays, t, b)
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
                move(states[b], joined[b, :size])
                move(context, joined[b, size:])
            else:
                for j in range(size):
                    after[b, j] = half * (states[b, j] + context[j])
        if choices.mix == LEARNED:
            _mix(blas, joined, weights.mixing, after, alive, t, arrays.mixed[t])
