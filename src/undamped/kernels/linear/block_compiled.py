"""A block around linear oscillators for the CPU: everything between e and the output, in tiles.

A thread takes its sequences through time some steps at a time. What lies between two parts of the
block exists for these steps only, so that it stays in the thread's own cache, and no part waits for
another thread.

Kept for the backward pass are z, r and what the gate reads. Positions follow from velocities (x' =
x + s z', with the same bits), everything else from e and r; and what the drive u = B v would be
needed for, the gradient of its factors f, is Σ (g vᵀ) ⊙ B over the features.
"""

from __future__ import annotations

from typing import Any

from undamped.kernels.linear.block_arrays import (
    BackwardBuffers,
    Buffers,
    Ends,
    Gradients,
    Kept,
    Weights,
)
from undamped.kernels.linear.gate_compiled import (
    ROW,
    gated_row,
    gated_row_backward,
    gelu_row,
    gelu_row_backward,
)
from undamped.kernels.linear.norm_compiled import normalise_row, row_backward
from undamped.kernels.shared.gemm import add_transposed_product, multiply
from undamped.kernels.shared.jit import LOOP, njit


@njit(**ROW)
def _copy(row: Any, to: Any) -> None:
    for j in range(row.shape[0]):
        to[j] = row[j]


@njit(**ROW)
def _clear(row: Any) -> None:
    for j in range(row.shape[0]):
        row[j] = 0


@njit(**ROW)
def _add(row: Any, to: Any) -> None:
    for j in range(row.shape[0]):
        to[j] += row[j]


@njit(**ROW)
def _add_product(factor: Any, row: Any, to: Any) -> None:
    for j in range(row.shape[0]):
        to[j] += factor[j] * row[j]


@njit(**ROW)
def _swing(coefficients: Any, force: Any, x0: Any, z0: Any, x1: Any, z1: Any) -> None:
    """z' = a z − k x + f u, x' = x + s z' for one row."""
    a, k, f, s = coefficients[0], coefficients[1], coefficients[2], coefficients[3]
    for j in range(a.shape[0]):
        z1[j] = a[j] * z0[j] + (f[j] * force[j] - k[j] * x0[j])
    for j in range(a.shape[0]):
        x1[j] = x0[j] + s[j] * z1[j]


@njit(**ROW)
def _swing_back(
    coefficients: Any,
    flow: Any,  # the gradient of what is shown; in the end that of f u
    x0: Any,
    z0: Any,
    z1: Any,
    gx: Any,  # the gradient of the position after the step; before it in the end
    gz: Any,
    sums: Any,
) -> None:
    """The gradient of one row's step."""
    a, k, s = coefficients[0], coefficients[1], coefficients[3]
    of_a, of_k, of_s = sums[0], sums[1], sums[2]
    for j in range(a.shape[0]):
        flow[j] += gx[j]
    for j in range(a.shape[0]):
        gz[j] += s[j] * flow[j]
    for j in range(a.shape[0]):
        gx[j] = flow[j] - k[j] * gz[j]
    for j in range(a.shape[0]):
        of_s[j] += flow[j] * z1[j]
    for j in range(a.shape[0]):
        of_a[j] += gz[j] * z0[j]
    for j in range(a.shape[0]):
        of_k[j] -= gz[j] * x0[j]
    for j in range(a.shape[0]):
        flow[j] = gz[j]
    for j in range(a.shape[0]):
        gz[j] *= a[j]


@njit(**LOOP)
def forward(
    blas: int,
    epsilon: float,
    keeping: bool,
    tile: int,  # steps
    e: Any,  # (steps, sequences, features), as `out`
    out: Any,
    weights: Weights,
    kept: Kept,
    buffers: Buffers,
    last: Ends,  # of all sequences: position and velocity are where the pass begins
    ends: Any,  # (sequences,) of this thread, how many steps each has
    low: int,  # the first of this thread's sequences
) -> None:
    """Take some sequences through a block."""
    steps, count = e.shape[0], ends.shape[0]
    firsts, seconds = weights.first_mask, weights.second_mask
    for i in range(count):
        _copy(last.position[low + i], buffers.positions[i])
        _copy(last.velocity[low + i], kept.velocities[i])
    for number in range((steps + tile - 1) // tile):
        start = number * tile
        rows = (min(start + tile, steps) - start) * count
        at = start * count if keeping else 0
        v, drive, g, positions = (
            buffers.v[:rows],
            buffers.drive[:rows],
            buffers.g[:rows],
            buffers.positions,
        )
        shown, pairs = kept.shown[at : at + rows], kept.pairs[at : at + rows]
        if keeping:
            for i in range(count):
                _copy(positions[i], kept.borders[number, i])
        for row in range(rows):
            normalise_row(epsilon, e[start + row // count, low + row % count], v[row])
        multiply(blas, v, weights.drive, drive, False)
        for row in range(rows):
            x0, x1 = positions[row], positions[row + count]
            z0, z1 = kept.velocities[at + row], kept.velocities[at + row + count]
            if start + row // count < ends[row % count]:
                _swing(weights.coefficients, drive[row], x0, z0, x1, z1)
            else:
                _copy(x0, x1)
                _copy(z0, z1)
        multiply(blas, positions[count : count + rows], weights.read, shown, False)
        for row in range(rows):
            if start + row // count < ends[row % count]:
                _add_product(weights.passing, v[row], shown[row])
            else:
                _clear(shown[row])
            gelu_row(shown[row], firsts[row % firsts.shape[0]], g[row])
        multiply(blas, g, weights.gate, pairs, False)
        for row in range(rows):
            t, i = start + row // count, row % count
            result, mask = out[t, low + i], seconds[row % seconds.shape[0]]
            gated_row(pairs[row], weights.bias, mask, e[t, low + i], result)
            if t >= ends[i]:
                _clear(result)
            elif t == ends[i] - 1:
                _copy(result, last.output[low + i])
                _copy(shown[row], last.shown[low + i])
        for i in range(count):
            _copy(positions[rows + i], positions[i])
            if not keeping:
                _copy(kept.velocities[rows + i], kept.velocities[i])
    after = steps * count if keeping else 0
    for i in range(count):
        _copy(buffers.positions[i], last.position[low + i])
        _copy(kept.velocities[after + i], last.velocity[low + i])


@njit(**LOOP)
def backward(
    blas: int,
    epsilon: float,
    tile: int,
    e: Any,
    gradient: Any,  # of the output; as e
    out: Any,  # the gradient of e
    weights: Weights,
    kept: Kept,
    buffers: Buffers,
    more: BackwardBuffers,
    gradients: Gradients,
    last: Ends,  # gradients; of position and velocity, in the end those of the first state
    ends: Any,
    low: int,
) -> None:
    """Find the gradients of some sequences, from the last tile to the first."""
    steps, count = e.shape[0], ends.shape[0]
    tiles = (steps + tile - 1) // tile
    firsts, seconds = weights.first_mask, weights.second_mask
    for back in range(tiles):
        number = tiles - 1 - back
        start = number * tile
        rows = (min(start + tile, steps) - start) * count
        at = start * count
        v, flow, g, positions = (
            buffers.v[:rows],
            buffers.drive[:rows],
            buffers.g[:rows],
            buffers.positions,
        )
        grads, of_pairs, of_shown = more.given[:rows], more.pairs[:rows], more.shown[:rows]
        for k in range(3):
            _clear(more.sums[k])
        _clear(more.of_bias)
        _clear(more.of_passing)
        for row in range(rows):
            t, i = start + row // count, row % count
            buffers.scales[row] = normalise_row(epsilon, e[t, low + i], v[row])
            if t < ends[i]:
                _copy(gradient[t, low + i], grads[row])
            else:
                _clear(grads[row])
            if t == ends[i] - 1:
                _add(last.output[low + i], grads[row])
            pair, mask = kept.pairs[at + row], seconds[row % seconds.shape[0]]
            gated_row_backward(pair, mask, grads[row], more.shares, of_pairs[row])
            _add(of_pairs[row], more.of_bias)
            gelu_row(kept.shown[at + row], firsts[row % firsts.shape[0]], g[row])
        add_transposed_product(blas, of_pairs, g, gradients.gate)
        multiply(blas, of_pairs, weights.gate, of_shown, False)
        for i in range(count):
            _copy(kept.borders[number, i], positions[i])
        for row in range(rows):
            t, i = start + row // count, row % count
            mask = firsts[row % firsts.shape[0]]
            gelu_row_backward(kept.shown[at + row], mask, of_shown[row])
            if t == ends[i] - 1:
                _add(last.shown[low + i], of_shown[row])
            _add_product(v[row], of_shown[row], more.of_passing)
            _copy(positions[row], positions[row + count])
            if t < ends[i]:
                moved = kept.velocities[at + row + count]
                _add_product(weights.coefficients[3], moved, positions[row + count])
        add_transposed_product(blas, of_shown, positions[count : count + rows], gradients.read)
        multiply(blas, of_shown, weights.read, flow, False)
        for turn in range(rows):
            row = rows - 1 - turn
            i = row % count
            if start + row // count >= ends[i]:
                _clear(flow[row])
                continue
            z0, z1 = kept.velocities[at + row], kept.velocities[at + row + count]
            gx, gz = last.position[low + i], last.velocity[low + i]
            _swing_back(weights.coefficients, flow[row], positions[row], z0, z1, gx, gz, more.sums)
        for k in range(3):
            _add(more.sums[k], gradients.coefficients[k])
        _add(more.of_bias, gradients.bias)
        _add(more.of_passing, gradients.passing)
        add_transposed_product(blas, flow, v, gradients.drive)
        of_v = g  # which nobody reads any more
        multiply(blas, flow, weights.drive, of_v, False)
        for row in range(rows):
            t, i = start + row // count, row % count
            _add_product(weights.passing, of_shown[row], of_v[row])
            row_backward(v[row], buffers.scales[row], of_v[row], grads[row], True, out[t, low + i])
