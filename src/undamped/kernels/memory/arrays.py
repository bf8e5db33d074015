"""The arguments of the compiled loops: choices as integers, and named arrays.

Remembered states are rows of one array: first those a call began with, then the hidden state of
every step. What a step attends to is a row of indices into it (−1 where a slot is empty), so that
nothing is copied on the way and gradients are added where they belong.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from undamped.kernels.shared.jit import inlined

TANH, RELU, MODRELU, IDENTITY, LSTM, GRU = range(6)
ADDITIVE, DOT = range(2)
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
    rate: float
    """How much of an input the expectation of the next one takes in."""


class Weights(NamedTuple):
    """The trained numbers, each as the loop reads it; empty where there is none."""

    recurrent: Any
    """(hidden, product + query) in the forward pass, transposed in the backward pass."""
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
    """What the backward pass adds up, each like what it is the gradient of."""

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


class Buffers(NamedTuple):
    """Arrays to work in: one that a loop allocates takes longer to compile."""

    total: Any
    """(product,) in the forward pass, (hidden,) in the backward pass."""
    row: Any
    """(hidden,), the context of a sample; in the backward pass (slots + steps,), for slopes."""
    rows: Any
    """(2, hidden), the state that the expected input leads to; in the backward pass (samples,
    hidden), for products."""
    halves: Any
    """(samples, 2 · hidden), gradients of state and context, in the backward pass."""


class Memory(NamedTuple):
    """The state of the screening: indices and scores of recent and relevant states."""

    recent: Any
    recent_score: Any
    relevant: Any
    relevant_score: Any
    expected: Any
    """(samples, product), the input that is expected, projected, less the projection of zeros."""


class ForwardChunk(NamedTuple):
    """The arguments of the loop over a chunk of time in the forward pass."""

    blas: int
    begin: int
    """The first step."""
    choices: Choices
    weights: Weights
    arrays: Arrays
    memory: Memory
    projected: Any
    """(steps, samples, product)."""
    product: Any
    """(samples, product + query), to work in."""
    joined: Any
    """(samples, 2 · hidden), states and contexts that a learned mixture reads."""
    alive: Any
    """(samples,), how many steps each sequence has."""
    buffers: Buffers


class BackwardChunk(NamedTuple):
    """The same in the backward pass."""

    blas: int
    begin: int
    choices: Choices
    weights: Weights
    arrays: Arrays
    gradients: Gradients
    output_gradient: Any
    """(steps, samples, hidden)."""
    product: Any
    """(steps, samples, product + query), with the projected input added."""
    product_gradient: Any
    """To be filled, alike."""
    joined: Any
    """(steps, samples, 3 · hidden), to be filled where a mixture is learned: states, contexts and
    the gradients of what was mixed."""
    alive: Any
    buffers: Buffers


@inlined  # what makes no arrays cannot return any either
def attended(screens: bool, slots: int, arrays: Any, t: int, b: int) -> Any:
    """Return a sample's weights at a time, and the indices of the states they belong to."""
    batch = arrays.states.shape[1]
    if screens:
        count = arrays.index.shape[0] // (batch * (arrays.mixed.shape[0] - 1))
        begin = (t * batch + b) * count
        return arrays.weights[begin : begin + count], arrays.index[begin : begin + count]
    count = slots + t + 1
    begin = batch * (t * slots + t * (t + 1) // 2) + b * count
    start = b * arrays.states.shape[0]
    return arrays.weights[begin : begin + count], arrays.index[start : start + count]
