"""The compiled filters of `projections`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from undamped.kernels.shared.jit import LOOP, PART, njit


@njit(**PART)
def _advance(row: Any, v: Any, m: Any, a: Any, constants: Any, out: Any) -> None:
    """Update the velocity and the moment of a sequence; write v', or s u without a velocity."""
    step, decay, fresh = constants[0], constants[1], constants[3]
    for j in range(m.shape[0]):
        m[j] = decay * m[j] + fresh * row[j] * row[j]
    for j in range(v.shape[0]):
        v[j] = a * v[j] + step * row[j]
    if v.shape[0] == 0:
        for j in range(row.shape[0]):
            out[j] = step * row[j]
    else:
        for j in range(row.shape[0]):
            out[j] = v[j]


@njit(**LOOP)
def filter_rows(
    rows: Any, velocity: Any, moment: Any, decays: Any, remaining: Any, constants: Any, shift: Any
) -> None:
    """Filter the rows of a chunk in place."""
    softening = constants[2]
    for t in range(rows.shape[0]):
        for b in range(rows.shape[1]):
            if t >= remaining[b]:
                continue
            row, m = rows[t, b], moment[b]
            _advance(row, velocity[b], m, decays[t, b], constants, row)
            for j in range(m.shape[0]):
                row[j] /= math.sqrt(m[j] + softening)
            for j in range(shift.shape[0]):
                row[j] += shift[j]


@njit(**LOOP)
def velocity_backward(
    gradient: Any, velocity_gradient: Any, decays: Any, remaining: Any, step: Any
) -> None:
    """Backpropagate through the velocity: gradients of the result become those of u."""
    for t in range(gradient.shape[0] - 1, -1, -1):
        for b in range(gradient.shape[1]):
            if t >= remaining[b]:
                continue
            row, state_gradient, a = gradient[t, b], velocity_gradient[b], decays[t, b]
            for j in range(row.shape[0]):
                state_gradient[j] += row[j]
            for j in range(row.shape[0]):
                row[j] = step * state_gradient[j]
            for j in range(row.shape[0]):
                state_gradient[j] *= a


@njit(**LOOP)
def moment_backward(
    gradient: Any,
    u: Any,
    velocity: Any,
    moment: Any,
    velocity_gradient: Any,
    moment_gradient: Any,
    decays: Any,
    remaining: Any,
    constants: Any,
    buffer: Any,
) -> None:
    """Backpropagate through velocity and moment, recomputed first; `buffer` is (2, *u)."""
    step, decay, softening, fresh = constants[0], constants[1], constants[2], constants[3]
    steps, sequences, size = gradient.shape
    half, unit, two = u.dtype.type(0.5), u.dtype.type(1), u.dtype.type(2)
    # The forward pass again, storing the numerator and the inverse denominator of every step.
    tops, bottoms = buffer[0], buffer[1]
    for t in range(steps):
        for b in range(sequences):
            if t < remaining[b]:
                m, bottom = moment[b], bottoms[t, b]
                _advance(u[t, b], velocity[b], m, decays[t, b], constants, tops[t, b])
                for j in range(size):
                    bottom[j] = unit / math.sqrt(m[j] + softening)
    for t in range(steps - 1, -1, -1):
        for b in range(sequences):
            if t >= remaining[b]:
                continue
            row, grad, top, scale = u[t, b], gradient[t, b], tops[t, b], bottoms[t, b]
            m_gradient, v_gradient, a = moment_gradient[b], velocity_gradient[b], decays[t, b]
            for j in range(size):
                m_gradient[j] -= half * grad[j] * top[j] * scale[j] * scale[j] * scale[j]
            for j in range(size):
                grad[j] *= scale[j]
            for j in range(v_gradient.shape[0]):
                v_gradient[j] += grad[j]
            if v_gradient.shape[0]:
                for j in range(size):
                    grad[j] = v_gradient[j]
            for j in range(size):
                grad[j] = step * grad[j] + two * fresh * row[j] * m_gradient[j]
            for j in range(v_gradient.shape[0]):
                v_gradient[j] *= a
            for j in range(size):
                m_gradient[j] *= decay


@njit(**PART)
def _uniform(seed: Any, column: int, t: int, b: int, j: int) -> float:
    """Return a number in [0, 1) that depends on its position only (splitmix64)."""
    z = np.uint64(seed) + np.uint64(column) * np.uint64(0xD6E8FEB86659FD93)
    z += np.uint64(t) * np.uint64(0x9E3779B97F4A7C15)
    z += np.uint64(b) * np.uint64(0xC2B2AE3D27D4EB4F) + np.uint64(j) * np.uint64(0x165667B19E3779F9)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return float(z >> np.uint64(11)) * 2.0**-53


@njit(**LOOP)
def fill_masks(
    masks: Any, origin: tuple[int, int, int], size: int, rates: Any, dropout: float
) -> None:
    """Fill the columns of masks of a chunk (steps, sequences, columns).

    Args:
        masks: The array.
        origin: The seed, the first step of the chunk, the first of the sequences.
        size: Number of units.
        rates: Probabilities of a one, for each block of columns but the last.
        dropout: Probability of a zero in the last block, which is the same at all steps.
    """
    seed, start, first = origin
    count, scale = rates.shape[0], 0.0 if dropout == 1.0 else 1.0 / (1.0 - dropout)
    for t in range(masks.shape[0]):
        for b in range(masks.shape[1]):
            row = masks[t, b]
            for k in range(count):
                for j in range(size):
                    row[k * size + j] = _uniform(seed, k, start + t, first + b, j) < rates[k]
            for j in range(size):
                active = _uniform(seed, count, 0, first + b, j) >= dropout
                row[count * size + j] = active * scale
