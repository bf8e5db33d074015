"""Sparse attentive backtracking over a chunk of time, forward and backward.

Every k-th sum of an LSTM's state and its context is stored. Stored states are rows of one array, as
for the other networks with memory, with a flag for every sample and row. A step attends to few
rows, whose indices and weights are saved, together with `limit`, the row of the largest score that
was left out (−1 if all are attended to by softmax), and `total`, the sum of the differences above
it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from undamped.kernels.memory.rows import (
    PART,
    add_scaled,
    additive_backward,
    additive_score,
    dot,
    fill,
    gates,
    gates_backward,
    move,
    softmax,
)
from undamped.kernels.shared.gemm import multiply
from undamped.kernels.shared.jit import LOOP, njit


class SparseWeights(NamedTuple):
    """The parameters, with matrices in the layout of a loop."""

    recurrent: Any
    query: Any
    key: Any
    vector: Any


class SparseArrays(NamedTuple):
    """The arrays of a pass."""

    hidden: Any
    """(steps + 1, samples, hidden), sums of state and context."""
    context: Any
    cells: Any
    rows: Any
    """(slots + columns, samples, hidden), stored states."""
    keys: Any
    flags: Any
    """(slots + columns, samples), whether a row is occupied."""
    column: Any
    """(steps,), the row in which a step's states are stored, or −1."""
    weights: Any
    """(steps, samples, attended)."""
    index: Any
    limit: Any
    total: Any


class SparseGradients(NamedTuple):
    """Sums of gradients, each of the shape of its variable."""

    hidden: Any
    """(samples, hidden), at the current time."""
    cells: Any
    rows: Any
    keys: Any
    vector: Any


class SparseChunk(NamedTuple):
    """The arrays of a chunk in the backward pass, (steps, samples, …); the last two are filled."""

    hidden_gradient: Any
    context_gradient: Any
    product: Any
    query: Any
    gates_gradient: Any
    query_gradient: Any


@njit(**PART)
def _choose(scores: Any, flags: Any, b: int, rows: int, best: Any) -> int:
    """Fill `best` with the rows of the largest scores, the largest first; return their number."""
    count, most = 0, best.shape[0]
    for i in range(rows):
        if not flags[i, b]:
            continue
        rank = count if count < most else most
        nan = scores[i] != scores[i]  # NaN ranks first, so that it is not lost
        while rank > 0 and (nan or scores[best[rank - 1]] < scores[i]):
            rank -= 1
        if rank == most:
            continue
        last = count if count < most else most - 1
        for k in range(last, rank, -1):
            best[k] = best[k - 1]
        best[rank] = i
        count = min(count + 1, most)
    return count


@njit(**PART)
def _weigh(arrays: Any, t: int, b: int, scores: Any, best: Any, count: int, rank: int) -> None:
    """Write the indices and weights of attended rows."""
    row, index = arrays.weights[t, b], arrays.index[t, b]
    fill(index, -1)
    fill(row, 0)
    arrays.limit[t, b] = -1
    if count < best.shape[0]:  # all of them, by softmax
        for i in range(count):
            index[i], row[i] = best[i], scores[best[i]]
        softmax(row, index)
        return
    least = best[rank - 1]
    arrays.limit[t, b] = least
    total = row.dtype.type(0)
    for i in range(rank - 1):
        above = scores[best[i]] - scores[least]
        if above > 0 or above != above:
            index[i], row[i] = best[i], above
            total += above
    arrays.total[t, b] = total
    for i in range(rank - 1):
        if index[i] >= 0:
            row[i] /= total


@njit(**LOOP)
def forward(
    blas: int,
    begin: int,
    slots: int,
    rank: int,
    weights: Any,
    arrays: Any,
    projected: Any,
    due: Any,
    alive: Any,
    buffers: Any,
) -> None:
    """Run a chunk that begins at step `begin`; `due` is (steps, samples)."""
    batch, size = arrays.hidden.shape[1:]
    product, query, raw, scores, best = buffers
    count = slots
    for t in range(begin):
        count += arrays.column[t] >= 0
    for t in range(begin, begin + projected.shape[0]):
        multiply(blas, arrays.hidden[t], weights.recurrent, product, False)
        for b in range(batch):
            if t < alive[b]:
                for j in range(4 * size):
                    product[b, j] += projected[t - begin, b, j]
                gates(product[b], arrays.cells[t, b], arrays.cells[t + 1, b], raw[b])
        multiply(blas, raw, weights.query, query, False)
        for b in range(batch):
            if t >= alive[b]:
                fill(arrays.index[t, b], -1)
                move(arrays.hidden[t, b], arrays.hidden[t + 1, b])
                move(arrays.context[t, b], arrays.context[t + 1, b])
                move(arrays.cells[t, b], arrays.cells[t + 1, b])
                continue
            for i in range(count):
                if arrays.flags[i, b]:
                    scores[i] = additive_score(query[b], arrays.keys[i, b], weights.vector)
            best_count = _choose(scores, arrays.flags, b, count, best)
            _weigh(arrays, t, b, scores, best, best_count, rank)
            context = arrays.context[t + 1, b]
            fill(context, 0)
            for i in range(arrays.index.shape[2]):
                at = arrays.index[t, b, i]
                if at >= 0:
                    add_scaled(context, arrays.weights[t, b, i], arrays.rows[at, b])
            for j in range(size):
                arrays.hidden[t + 1, b, j] = raw[b, j] + context[j]
        at = arrays.column[t]
        if at >= 0:
            for b in range(batch):
                arrays.flags[at, b] = due[t, b]
                fill(arrays.rows[at, b], 0)
                if due[t, b]:
                    move(arrays.hidden[t + 1, b], arrays.rows[at, b])
            multiply(blas, arrays.rows[at], weights.key, arrays.keys[at], False)
            count += 1


@njit(**PART)
def _attend_backward(
    weights: Any,
    arrays: Any,
    gradients: Any,
    t: int,
    b: int,
    query: Any,
    context_gradient: Any,
    query_gradient: Any,
    slope: Any,
) -> None:
    """Add the gradient of the context to those of rows, keys, query and v."""
    row, index = arrays.weights[t, b], arrays.index[t, b]
    limit, mean = arrays.limit[t, b], query.dtype.type(0)
    for i in range(row.shape[0]):
        if index[i] >= 0:
            slope[i] = dot(context_gradient, arrays.rows[index[i], b])
            mean += row[i] * slope[i]
    rest = query.dtype.type(0)
    for i in range(row.shape[0] + 1):
        if i < row.shape[0]:
            at = index[i]
            if at < 0:
                continue
            add_scaled(gradients.rows[at, b], row[i], context_gradient)
            if limit < 0:
                grad_score = row[i] * (slope[i] - mean)
            else:
                grad_score = (slope[i] - mean) / arrays.total[t, b]
                rest -= grad_score
        else:  # the gradient of the score that was subtracted from all
            at, grad_score = limit, rest
            if limit < 0 or rest == 0:
                continue
        additive_backward(
            grad_score,
            query,
            arrays.keys[at, b],
            weights.vector,
            query_gradient,
            gradients.keys[at, b],
            gradients.vector,
        )


@njit(**LOOP)
def backward(
    blas: int,
    begin: int,
    weights: Any,
    arrays: Any,
    gradients: Any,
    chunk: Any,
    due: Any,
    cut: Any,
    alive: Any,
    buffers: Any,
) -> None:
    """Backpropagate through a chunk; the gradient ends where `cut` (steps, samples) is true."""
    steps, batch, size = chunk.hidden_gradient.shape
    gates_gradient, query_gradient = chunk.gates_gradient, chunk.query_gradient
    products, into, slope = buffers
    for step in range(steps - 1, -1, -1):
        t = begin + step
        at = arrays.column[t]
        if at >= 0:
            multiply(blas, gradients.keys[at], weights.key, products, False)
        for b in range(batch):
            fill(query_gradient[step, b], 0)
            if t >= alive[b]:
                fill(gates_gradient[step, b], 0)
                continue
            grad = gradients.hidden[b]
            for j in range(size):
                grad[j] += chunk.hidden_gradient[step, b, j]
            if at >= 0 and due[t, b]:
                for j in range(size):
                    grad[j] += gradients.rows[at, b, j] + products[b, j]
            for j in range(size):
                into[j] = grad[j] + chunk.context_gradient[step, b, j]
            _attend_backward(
                weights,
                arrays,
                gradients,
                t,
                b,
                chunk.query[step, b],
                into,
                query_gradient[step, b],
                slope,
            )
        multiply(blas, query_gradient[step], weights.query, products, False)
        for b in range(batch):
            if t < alive[b]:
                for j in range(size):
                    into[j] = gradients.hidden[b, j] + products[b, j]
                gates_backward(
                    chunk.product[step, b],
                    arrays.cells[t, b],
                    arrays.cells[t + 1, b],
                    into,
                    gradients.cells[b],
                    gates_gradient[step, b],
                )
        multiply(blas, gates_gradient[step], weights.recurrent, products, False)
        for b in range(batch):
            if t < alive[b]:
                move(products[b], gradients.hidden[b])
                if cut[t, b]:
                    fill(gradients.hidden[b], 0)
                    fill(gradients.cells[b], 0)
