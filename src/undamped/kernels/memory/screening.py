"""Which states are kept: relevance by attention, surprise or a learned score."""

from __future__ import annotations

from typing import Any

import numpy as np

from undamped.kernels.memory.arrays import LSTM
from undamped.kernels.memory.attend import PART, add_scaled, dot
from undamped.kernels.memory.steps import elman, gates
from undamped.kernels.shared.jit import njit
from undamped.kernels.shared.tanh import sigmoid


@njit(**PART)
def screen(memory: Any, b: int, where: int, first: Any) -> None:
    """Let the oldest recent state go, to the kept ones if it is relevant; take in the new one."""
    recent, scores = memory.recent[b], memory.recent_score[b]
    kept, kept_scores = memory.kept[b], memory.kept_score[b]
    if recent[0] >= 0 and kept.shape[0]:
        weakest = 0
        least = np.inf
        for i in range(kept.shape[0]):
            value = kept_scores[i] if kept[i] >= 0 else -np.inf
            if value < least:
                weakest = i
                least = value
        if scores[0] > least:
            kept[weakest] = recent[0]
            kept_scores[weakest] = scores[0]
    last = recent.shape[0] - 1
    for i in range(last):
        recent[i] = recent[i + 1]
        scores[i] = scores[i + 1]
    recent[last] = where
    scores[last] = first


@njit(**PART)
def surprise(chunk: Any, t: int, b: int, new: Any) -> Any:
    """Return how far the state is from where the expected input would have led.

    The expectation, a running mean of inputs as they are projected, then takes in the present one.
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
    """Bring the gradient of a learned score to its state and its weights."""
    size = state.shape[0]
    slope = gradients.scores[at, b] * sigmoid(-relevance(weights, state))
    add_scaled(gradients.states[at, b], slope, weights.relevance[:size])
    add_scaled(gradients.relevance[:size], slope, state)
    gradients.relevance[size] += slope
