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
    BackwardRoom,
    Ends,
    Gradients,
    Kept,
    Room,
    Weights,
)
from undamped.kernels.linear.gate_compiled import gated, gated_backward, gelu, gelu_backward
from undamped.kernels.linear.norm_compiled import backward as norm_backward
from undamped.kernels.linear.norm_compiled import forward as normalise
from undamped.kernels.linear.reading_compiled import add_scaled, add_scaled_backward
from undamped.kernels.shared.compilers import LOOP
from undamped.kernels.shared.gemm import add_transposed_product, multiply
from undamped.kernels.shared.jit import njit

_norm_backward = norm_backward(True)
MAKES_ARRAYS: dict[str, Any] = LOOP | {"_nrt": True, "fastmath": {"contract"}}


@njit(**MAKES_ARRAYS)
def _swing(
    coefficients: Any, u: Any, positions: Any, velocities: Any, ends: Any, start: int
) -> None:
    """z' = a z − k x + f u, x' = x + s z' for all steps of a tile."""
    a, k, f, s = coefficients[0], coefficients[1], coefficients[2], coefficients[3]
    count = ends.shape[0]
    for row in range(u.shape[0]):
        x0, z0, x1, z1 = (
            positions[row],
            velocities[row],
            positions[row + count],
            velocities[row + count],
        )
        if start + row // count < ends[row % count]:
            force = u[row]
            for j in range(a.shape[0]):
                z1[j] = a[j] * z0[j] + (f[j] * force[j] - k[j] * x0[j])
            for j in range(a.shape[0]):
                x1[j] = x0[j] + s[j] * z1[j]
        else:
            for j in range(a.shape[0]):
                z1[j] = z0[j]
            for j in range(a.shape[0]):
                x1[j] = x0[j]


@njit(**MAKES_ARRAYS)
def _swing_again(s: Any, positions: Any, velocities: Any, ends: Any, start: int) -> None:
    """Find the positions of a tile, velocities and the first position known."""
    count = ends.shape[0]
    for row in range(positions.shape[0] - count):
        x0, x1, z1 = positions[row], positions[row + count], velocities[row + count]
        live = start + row // count < ends[row % count]
        for j in range(s.shape[0]):
            x1[j] = x0[j] + s[j] * z1[j] if live else x0[j]


@njit(**MAKES_ARRAYS)
def _swing_back(
    coefficients: Any,
    flow: Any,  # (rows, units): the gradient of what is shown; in the end that of f u
    positions: Any,
    velocities: Any,
    gx: Any,  # (sequences, units): gradients of positions behind the tile, in the end before it
    gz: Any,
    sums: Any,
    ends: Any,
    start: int,
) -> None:
    """The gradient of a tile's steps, from the last to the first."""
    a, k, s = coefficients[0], coefficients[1], coefficients[3]
    of_a, of_k, of_s = sums[0], sums[1], sums[2]
    count, units = ends.shape[0], coefficients.shape[1]
    for back in range(flow.shape[0]):
        row = flow.shape[0] - 1 - back
        i = row % count
        given = flow[row]
        if start + row // count >= ends[i]:
            for j in range(units):
                given[j] = 0
            continue
        x0, z0, z1, px, pz = positions[row], velocities[row], velocities[row + count], gx[i], gz[i]
        for j in range(units):
            given[j] += px[j]
        for j in range(units):
            pz[j] += s[j] * given[j]
        for j in range(units):
            px[j] = given[j] - k[j] * pz[j]
        for j in range(units):
            of_s[j] += given[j] * z1[j]
        for j in range(units):
            of_a[j] += pz[j] * z0[j]
        for j in range(units):
            of_k[j] -= pz[j] * x0[j]
        for j in range(units):
            given[j] = pz[j]
        for j in range(units):
            pz[j] *= a[j]


@njit(**MAKES_ARRAYS)
def _clear_finished(rows: Any, ends: Any, start: int) -> None:
    """Write zeros where sequences are over."""
    count = ends.shape[0]
    for row in range(rows.shape[0]):
        if start + row // count >= ends[row % count]:
            rows[row] = 0


@njit(**MAKES_ARRAYS)
def forward(
    blas: int,
    epsilon: float,
    keeping: bool,
    tile: int,  # steps
    e: Any,  # (steps, sequences, features), as `out`
    out: Any,
    weights: Weights,
    kept: Kept,
    room: Room,
    last: Ends,  # of all sequences: position and velocity are where the pass begins
    ends: Any,  # (sequences,) of this thread, how many steps each has
    low: int,  # the first of this thread's sequences
) -> None:
    """Take some sequences through a block."""
    steps, count = e.shape[0], ends.shape[0]
    high, features = low + count, e.shape[2]
    room.positions[:count] = last.position[low:high]
    kept.velocities[:count] = last.velocity[low:high]
    for number in range((steps + tile - 1) // tile):
        start, stop = number * tile, min((number + 1) * tile, steps)
        rows, at = (stop - start) * count, start * count if keeping else 0
        v, drive, g = room.v[:rows], room.drive[:rows], room.g[:rows]
        positions = room.positions[: rows + count]
        velocities = kept.velocities[at : at + rows + count]
        shown, pairs = kept.shown[at : at + rows], kept.pairs[at : at + rows]
        if keeping:
            kept.borders[number] = positions[:count]
        for t in range(start, stop):
            i = (t - start) * count
            given, scales = e[t, low:high], room.scales[i : i + count]
            normalise(epsilon, given, v[i : i + count], scales, 0, count)
        multiply(blas, v, weights.drive, drive, False)
        _swing(weights.coefficients, drive, positions, velocities, ends, start)
        multiply(blas, positions[count:], weights.read, shown, False)
        add_scaled(weights.passing, v, shown, 0, rows)
        _clear_finished(shown, ends, start)
        gelu(shown, weights.first_mask, g, 0, rows)
        multiply(blas, g, weights.gate, pairs, False)
        for t in range(start, stop):
            i = (t - start) * count
            pair, given, result = pairs[i : i + count], e[t, low:high], out[t, low:high]
            gated(pair, weights.bias, weights.second_mask, given, result, 0, count)
        for i in range(count):
            if ends[i] < stop:
                for t in range(max(start, ends[i]), stop):
                    out[t, low + i] = 0
            if start < ends[i] <= stop:
                row = (ends[i] - 1 - start) * count + i
                for j in range(features):
                    last.output[low + i, j] = out[ends[i] - 1, low + i, j]
                    last.shown[low + i, j] = shown[row, j]
        positions[:count] = positions[rows:]
        if not keeping:
            velocities[:count] = velocities[rows:]
    after = steps * count if keeping else 0
    last.position[low:high] = room.positions[:count]
    last.velocity[low:high] = kept.velocities[after : after + count]


@njit(**MAKES_ARRAYS)
def backward(
    blas: int,
    epsilon: float,
    tile: int,
    e: Any,
    gradient: Any,  # of the output; as e
    out: Any,  # the gradient of e
    weights: Weights,
    kept: Kept,
    room: Room,
    more: BackwardRoom,
    found: Gradients,
    last: Ends,  # gradients; of position and velocity, in the end those of the first state
    ends: Any,
    low: int,
) -> None:
    """Find the gradients of some sequences, from the last tile to the first."""
    steps, count = e.shape[0], ends.shape[0]
    high, features = low + count, e.shape[2]
    tiles = (steps + tile - 1) // tile
    for back in range(tiles):
        number = tiles - 1 - back
        start, stop = number * tile, min((number + 1) * tile, steps)
        rows, at = (stop - start) * count, start * count
        v, scales, flow, g = room.v[:rows], room.scales[:rows], room.drive[:rows], room.g[:rows]
        given, of_pairs = more.given[:rows], more.pairs[:rows]
        of_shown, of_v = more.shown[:rows], more.v[:rows]
        positions = room.positions[: rows + count]
        velocities = kept.velocities[at : at + rows + count]
        shown, pairs = kept.shown[at : at + rows], kept.pairs[at : at + rows]
        for t in range(start, stop):
            i = (t - start) * count
            given[i : i + count] = gradient[t, low:high]
            normalise(epsilon, e[t, low:high], v[i : i + count], scales[i : i + count], 0, count)
        _clear_finished(given, ends, start)
        for i in range(count):
            if start < ends[i] <= stop:
                given[(ends[i] - 1 - start) * count + i] += last.output[low + i]
        gated_backward(pairs, weights.second_mask, given, of_pairs, 0, rows)
        more.of_bias[:] = 0
        for row in range(rows):
            for j in range(2 * features):
                more.of_bias[j] += of_pairs[row, j]
        gelu(shown, weights.first_mask, g, 0, rows)
        add_transposed_product(blas, of_pairs, g, found.gate)
        multiply(blas, of_pairs, weights.gate, of_shown, False)
        gelu_backward(shown, weights.first_mask, of_shown, 0, rows)
        for i in range(count):
            if start < ends[i] <= stop:
                of_shown[(ends[i] - 1 - start) * count + i] += last.shown[low + i]
        add_scaled_backward(weights.passing, v, of_shown, of_v, found.passing, 0, features)
        positions[:count] = kept.borders[number]
        _swing_again(weights.coefficients[3], positions, velocities, ends, start)
        add_transposed_product(blas, of_shown, positions[count:], found.read)
        multiply(blas, of_shown, weights.read, flow, False)
        more.sums[:] = 0
        gx, gz = last.position[low:high], last.velocity[low:high]
        _swing_back(
            weights.coefficients, flow, positions, velocities, gx, gz, more.sums, ends, start
        )
        for k in range(3):
            for j in range(flow.shape[1]):
                found.coefficients[k, j] += more.sums[k, j]
        for j in range(2 * features):
            found.bias[j] += more.of_bias[j]
        add_transposed_product(blas, flow, v, found.drive)
        multiply(blas, flow, weights.drive, of_v, True)
        for t in range(start, stop):
            i = (t - start) * count
            these = slice(i, i + count)
            _norm_backward(
                v[these], scales[these], of_v[these], given[these], out[t, low:high], 0, count
            )
