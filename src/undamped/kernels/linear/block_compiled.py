"""A block around linear oscillators for the CPU: everything between e and the output, in tiles.

A thread runs its sequences a tile of steps at a time. Intermediate results exist for these steps
only, so that they stay in the thread's own cache, and no part waits for another thread.

The backward pass needs z, r and the argument of the gate, which are saved. Positions follow from
velocities (x' = x + s z', with the same bits), everything else from e and r. The gradient of the
factors f, which would need u = B v, is Σ (g vᵀ) ⊙ B over the features.
"""

from __future__ import annotations

from typing import Any

from undamped.kernels.linear.block_arrays import BackwardBuffers, BlockPass, Gradients
from undamped.kernels.linear.rows_compiled import (
    gated_row,
    gated_row_backward,
    gelu_row,
    gelu_row_backward,
    normalise_row,
    normalise_row_backward,
    row_function,
)
from undamped.kernels.shared.gemm import add_transposed_product, multiply
from undamped.kernels.shared.jit import LOOP, inlined, njit


@row_function
def _copy(row: Any, to: Any) -> None:
    for j in range(row.shape[0]):
        to[j] = row[j]


@row_function
def _clear(row: Any) -> None:
    for j in range(row.shape[0]):
        row[j] = 0


@row_function
def _add(row: Any, to: Any) -> None:
    for j in range(row.shape[0]):
        to[j] += row[j]


@row_function
def _add_product(factor: Any, row: Any, to: Any) -> None:
    for j in range(row.shape[0]):
        to[j] += factor[j] * row[j]


@row_function
def _oscillate(coefficients: Any, force: Any, x0: Any, z0: Any, x1: Any, z1: Any) -> None:
    """z' = a z − k x + f u, x' = x + s z' for one row."""
    a, k, f, s = coefficients[0], coefficients[1], coefficients[2], coefficients[3]
    for j in range(a.shape[0]):
        z1[j] = a[j] * z0[j] + (f[j] * force[j] - k[j] * x0[j])
    for j in range(a.shape[0]):
        x1[j] = x0[j] + s[j] * z1[j]


@row_function
def _oscillate_backward(
    coefficients: Any,
    grad: Any,  # of the position as an output; replaced by that of f u
    x0: Any,
    z0: Any,
    z1: Any,
    gx: Any,  # of the position after the step; replaced by that before it
    gz: Any,
    sums: Any,
) -> None:
    """The gradient of one row's step."""
    a, k, s = coefficients[0], coefficients[1], coefficients[3]
    grad_a, grad_k, grad_s = sums[0], sums[1], sums[2]
    for j in range(a.shape[0]):
        grad[j] += gx[j]
    for j in range(a.shape[0]):
        gz[j] += s[j] * grad[j]
    for j in range(a.shape[0]):
        gx[j] = grad[j] - k[j] * gz[j]
    for j in range(a.shape[0]):
        grad_s[j] += grad[j] * z1[j]
    for j in range(a.shape[0]):
        grad_a[j] += gz[j] * z0[j]
    for j in range(a.shape[0]):
        grad_k[j] -= gz[j] * x0[j]
    for j in range(a.shape[0]):
        grad[j] = gz[j]
    for j in range(a.shape[0]):
        gz[j] *= a[j]


@inlined
def _read_out(p: BlockPass, start: int, rows: int, at: int) -> None:
    """Write r = C x + d ⊙ v and g = gelu(r); r is zero where a sequence has ended."""
    count, masks = p.ends.shape[0], p.weights.first_mask
    readout, v = p.stored.readout[at : at + rows], p.buffers.v
    multiply(p.blas, p.buffers.positions[count : count + rows], p.weights.read, readout, False)
    for row in range(rows):
        if start + row // count < p.ends[row % count]:
            _add_product(p.weights.passing, v[row], readout[row])
        else:
            _clear(readout[row])
        gelu_row(readout[row], masks[row % masks.shape[0]], p.buffers.g[row])


@inlined
def _gate(p: BlockPass, start: int, rows: int, at: int) -> None:
    """Write the output, and that of the last step of every sequence."""
    count, low, masks = p.ends.shape[0], p.low, p.weights.second_mask
    pairs = p.stored.pairs[at : at + rows]
    multiply(p.blas, p.buffers.g[:rows], p.weights.gate, pairs, False)
    for row in range(rows):
        t, i = start + row // count, row % count
        result, mask = p.out[t, low + i], masks[row % masks.shape[0]]
        gated_row(pairs[row], p.weights.bias, mask, p.e[t, low + i], result)
        if t >= p.ends[i]:
            _clear(result)
        elif t == p.ends[i] - 1:
            _copy(result, p.last.output[low + i])
            _copy(p.stored.readout[at + row], p.last.readout[low + i])


@njit(**LOOP)
def forward(p: BlockPass, storing: bool) -> None:
    """Run a block for some sequences."""
    steps, count, low = p.e.shape[0], p.ends.shape[0], p.low
    positions, velocities = p.buffers.positions, p.stored.velocities
    for i in range(count):
        _copy(p.last.position[low + i], positions[i])
        _copy(p.last.velocity[low + i], velocities[i])
    for number in range((steps + p.tile - 1) // p.tile):
        start = number * p.tile
        rows = (min(start + p.tile, steps) - start) * count
        at = start * count if storing else 0
        v, drive = p.buffers.v[:rows], p.buffers.drive[:rows]
        if storing:
            for i in range(count):
                _copy(positions[i], p.stored.positions[number, i])
        for row in range(rows):
            normalise_row(p.epsilon, p.e[start + row // count, low + row % count], v[row])
        multiply(p.blas, v, p.weights.drive, drive, False)
        for row in range(rows):
            x0, x1 = positions[row], positions[row + count]
            z0, z1 = velocities[at + row], velocities[at + row + count]
            if start + row // count < p.ends[row % count]:
                _oscillate(p.weights.coefficients, drive[row], x0, z0, x1, z1)
            else:
                _copy(x0, x1)
                _copy(z0, z1)
        _read_out(p, start, rows, at)
        _gate(p, start, rows, at)
        for i in range(count):
            _copy(positions[rows + i], positions[i])
            if not storing:
                _copy(velocities[rows + i], velocities[i])
    after = steps * count if storing else 0
    for i in range(count):
        _copy(positions[i], p.last.position[low + i])
        _copy(velocities[after + i], p.last.velocity[low + i])


@inlined
def _gate_backward(
    p: BlockPass, gradient: Any, grads: BackwardBuffers, sums: Gradients, start: int, rows: int
) -> None:
    """Write the gradients of the output and of r before gelu; recompute v, its scales and g."""
    count, low, at = p.ends.shape[0], p.low, start * p.ends.shape[0]
    firsts, seconds = p.weights.first_mask, p.weights.second_mask
    for row in range(rows):
        t, i = start + row // count, row % count
        p.buffers.scales[row] = normalise_row(p.epsilon, p.e[t, low + i], p.buffers.v[row])
        if t < p.ends[i]:
            _copy(gradient[t, low + i], grads.output[row])
        else:
            _clear(grads.output[row])
        if t == p.ends[i] - 1:
            _add(p.last.output[low + i], grads.output[row])
        pair, mask = p.stored.pairs[at + row], seconds[row % seconds.shape[0]]
        gated_row_backward(pair, mask, grads.output[row], grads.gates, grads.pairs[row])
        _add(grads.pairs[row], grads.bias)
        gelu_row(p.stored.readout[at + row], firsts[row % firsts.shape[0]], p.buffers.g[row])
    add_transposed_product(p.blas, grads.pairs[:rows], p.buffers.g[:rows], sums.gate)
    multiply(p.blas, grads.pairs[:rows], p.weights.gate, grads.readout[:rows], False)


@inlined
def _read_out_backward(
    p: BlockPass, grads: BackwardBuffers, sums: Gradients, start: int, rows: int
) -> None:
    """Write the gradient of r and with it that of positions; recompute positions."""
    count, at, masks = p.ends.shape[0], start * p.ends.shape[0], p.weights.first_mask
    positions, grad_readout = p.buffers.positions, grads.readout[:rows]
    for i in range(count):
        _copy(p.stored.positions[start // p.tile, i], positions[i])
    for row in range(rows):
        t, i = start + row // count, row % count
        mask = masks[row % masks.shape[0]]
        gelu_row_backward(p.stored.readout[at + row], mask, grad_readout[row])
        if t == p.ends[i] - 1:
            _add(p.last.readout[p.low + i], grad_readout[row])
        _add_product(p.buffers.v[row], grad_readout[row], grads.passing)
        _copy(positions[row], positions[row + count])
        if t < p.ends[i]:
            velocity = p.stored.velocities[at + row + count]
            _add_product(p.weights.coefficients[3], velocity, positions[row + count])
    add_transposed_product(p.blas, grad_readout, positions[count : count + rows], sums.read)
    multiply(p.blas, grad_readout, p.weights.read, p.buffers.drive[:rows], False)


@njit(**LOOP)
def backward(p: BlockPass, gradient: Any, grads: BackwardBuffers, sums: Gradients) -> None:
    """Sum the gradients of some sequences, from the last tile to the first."""
    steps, count, low = p.e.shape[0], p.ends.shape[0], p.low
    tiles, velocities = (steps + p.tile - 1) // p.tile, p.stored.velocities
    for back in range(tiles):
        start = (tiles - 1 - back) * p.tile
        rows = (min(start + p.tile, steps) - start) * count
        at = start * count
        v, grad_drive = p.buffers.v[:rows], p.buffers.drive[:rows]
        # Sums of a tile are in the precision of the inputs, those of all tiles in double.
        for k in range(3):
            _clear(grads.coefficients[k])
        _clear(grads.bias)
        _clear(grads.passing)
        _gate_backward(p, gradient, grads, sums, start, rows)
        _read_out_backward(p, grads, sums, start, rows)
        for row in range(rows - 1, -1, -1):
            i, grad = row % count, grad_drive[row]
            if start + row // count >= p.ends[i]:
                _clear(grad)
                continue
            x0, z0, z1 = (
                p.buffers.positions[row],
                velocities[at + row],
                velocities[at + row + count],
            )
            gx, gz = p.last.position[low + i], p.last.velocity[low + i]
            _oscillate_backward(
                p.weights.coefficients, grad, x0, z0, z1, gx, gz, grads.coefficients
            )
        for k in range(3):
            _add(grads.coefficients[k], sums.coefficients[k])
        _add(grads.bias, sums.bias)
        _add(grads.passing, sums.passing)
        add_transposed_product(p.blas, grad_drive, v, sums.drive)
        grad_v = p.buffers.g[:rows]  # no longer needed
        multiply(p.blas, grad_drive, p.weights.drive, grad_v, False)
        for row in range(rows):
            result, output = p.out[start + row // count, low + row % count], grads.output[row]
            _add_product(p.weights.passing, grads.readout[row], grad_v[row])
            normalise_row_backward(v[row], p.buffers.scales[row], grad_v[row], output, True, result)
