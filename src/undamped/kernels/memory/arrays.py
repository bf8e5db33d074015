"""The arguments of the compiled loops: choices as integers, and named arrays.

Stored states are rows of one array: first those of the initial memory, then the hidden state of
every step. Each step attends to rows whose indices it has (−1 for an empty slot), so that nothing
is copied and gradients are added in place.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from undamped.kernels.shared.jit import inlined

TANH, RELU, MODRELU, IDENTITY, LSTM, GRU = range(6)
ADDITIVE, DOT = range(2)
HALF, SUM, LEARNED = range(3)
BY_ATTENTION, BY_SHARE, BY_SURPRISE, BY_SCORE = range(4)


class Choices(NamedTuple):
    """The integer settings of a pass."""

    step: int
    alignment: int
    mix: int
    screening: int
    """How states are screened; −1 if all are stored."""
    slots: int
    """The number of slots of the initial memory."""
    rate: float
    """The weight of an input in the running mean that predicts the next one."""


class Weights(NamedTuple):
    """The parameters in the layout of the loop; empty if there is none."""

    recurrent: Any
    """(hidden, product + query) in the forward pass, transposed in the backward pass."""
    key: Any
    vector: Any
    mixing: Any
    threshold: Any
    relevance: Any
    """(hidden + 1): the weights of the learned score, and its bias."""
    silence: Any
    """(product,), the projection of an input of zeros."""


class Arrays(NamedTuple):
    """The arrays of a pass."""

    states: Any
    """(slots + steps, samples, hidden)."""
    keys: Any
    """The same, times the matrix of keys."""
    mixed: Any
    """(steps + 1, samples, hidden), the state that the recurrence reads."""
    cells: Any
    """The same for the memory cell of an LSTM."""
    weights: Any
    """Flat: the weights of all samples at the first step, then at the second, …"""
    index: Any
    """Flat: the indices of their states, by steps; by samples if all states are stored."""


class Gradients(NamedTuple):
    """Sums of gradients, each of the shape of its variable."""

    states: Any
    keys: Any
    vector: Any
    mixing: Any
    threshold: Any
    relevance: Any
    scores: Any
    """(slots + steps, samples), of the logarithms that learned scores add."""
    mixed: Any
    """(samples, hidden), of the state that the recurrence reads, at the current time."""
    cells: Any


class Buffers(NamedTuple):
    """Buffers: an array that a loop allocates takes longer to compile."""

    total: Any
    """(product,) in the forward pass, (hidden,) in the backward pass."""
    row: Any
    """(hidden,), the context of a sample; in the backward pass (slots + steps,), for slopes."""
    rows: Any
    """(2, hidden), the state after the expected input; backward (samples, hidden), for products."""
    halves: Any
    """(samples, 2 · hidden), gradients of state and context, in the backward pass."""


class Memory(NamedTuple):
    """The state of the screening: indices and scores of recent and relevant states."""

    recent: Any
    recent_score: Any
    relevant: Any
    relevant_score: Any
    expected: Any
    """(samples, product), the expected input, projected, minus the projection of zeros."""


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
    """(samples, product + query), a buffer."""
    joined: Any
    """(samples, 2 · hidden), states and contexts for the learned mixture."""
    alive: Any
    """(samples,), the lengths of sequences."""
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
    """To be filled, likewise."""
    joined: Any
    """(steps, samples, 3 · hidden), to be filled for a learned mixture.

    States, contexts and the gradients of their mixture.
    """
    alive: Any
    buffers: Buffers


@inlined  # functions compiled without reference counts (`_nrt`) cannot return arrays
def attended(screens: bool, slots: int, arrays: Any, t: int, b: int) -> Any:
    """Return a sample's weights at a time, and the indices of their states."""
    batch = arrays.states.shape[1]
    if screens:
        count = arrays.index.shape[0] // (batch * (arrays.mixed.shape[0] - 1))
        begin = (t * batch + b) * count
        return arrays.weights[begin : begin + count], arrays.index[begin : begin + count]
    count = slots + t + 1
    begin = batch * (t * slots + t * (t + 1) // 2) + b * count
    start = b * arrays.states.shape[0]
    return arrays.weights[begin : begin + count], arrays.index[start : start + count]
