"""The recurrent step of one sample, forward and backward: φ of an RNN, gates of an LSTM or GRU."""

from __future__ import annotations

from typing import Any

from undamped.kernels.memory.arrays import MODRELU, RELU, TANH
from undamped.kernels.memory.attend import PART
from undamped.kernels.shared.jit import njit
from undamped.kernels.shared.tanh import sigmoid, tanh


@njit(**PART)
def move(row: Any, to: Any) -> None:
    """Copy a row."""
    for j in range(to.shape[0]):
        to[j] = row[j]


@njit(**PART)
def elman(kind: int, total: Any, threshold: Any, new: Any) -> None:
    """Write h = φ(total)."""
    zero = total.dtype.type(0)
    for j in range(new.shape[0]):
        value = total[j]
        if kind == TANH:
            new[j] = tanh(value)
        elif kind == RELU:
            new[j] = zero if value <= zero else value
        elif kind == MODRELU:
            size = max(abs(value) + threshold[j], zero)
            new[j] = zero if value == zero else (size if value > zero else -size)
        else:
            new[j] = value


@njit(**PART)
def gates(total: Any, before: Any, after: Any, new: Any) -> None:
    """Write the cell and the hidden state of an LSTM; `total` holds i, f, g, o."""
    size = new.shape[0]
    for j in range(size):
        after[j] = sigmoid(total[size + j]) * before[j]
    for j in range(size):
        after[j] += sigmoid(total[j]) * tanh(total[2 * size + j])
    for j in range(size):
        new[j] = sigmoid(total[3 * size + j]) * tanh(after[j])


@njit(**PART)
def gru(total: Any, before: Any, new: Any) -> None:
    """Write h of a GRU; `total` holds r, z, and what input and state give the candidate."""
    size, unit = new.shape[0], new.dtype.type(1)
    for j in range(size):
        r, z = sigmoid(total[j]), sigmoid(total[size + j])
        candidate = tanh(total[2 * size + j] + r * total[3 * size + j])
        new[j] = (unit - z) * candidate + z * before[j]


@njit(**PART)
def elman_backward(
    kind: int, new: Any, grad_new: Any, gradient: Any, threshold_gradient: Any
) -> None:
    """Write the gradient of `total`, given that of h; add to that of the threshold."""
    unit, zero = new.dtype.type(1), new.dtype.type(0)
    for j in range(new.shape[0]):
        if kind == TANH:
            gradient[j] = grad_new[j] * (unit - new[j] * new[j])
        elif kind == RELU:
            gradient[j] = grad_new[j] if new[j] > zero else zero
        elif kind == MODRELU:
            gradient[j] = zero if new[j] == zero else grad_new[j]
            threshold_gradient[j] += gradient[j] if new[j] > zero else -gradient[j]
        else:
            gradient[j] = grad_new[j]


@njit(**PART)
def gates_backward(
    total: Any, before: Any, after: Any, grad_new: Any, grad_cell: Any, gradient: Any
) -> None:
    """Write the gradient of `total`; bring `carried`, that of the cell, to the step before."""
    size, unit = grad_new.shape[0], grad_new.dtype.type(1)
    for j in range(size):
        i, f = sigmoid(total[j]), sigmoid(total[size + j])
        g, o = tanh(total[2 * size + j]), sigmoid(total[3 * size + j])
        squashed = tanh(after[j])
        grad_cell[j] += grad_new[j] * o * (unit - squashed * squashed)
        gradient[3 * size + j] = grad_new[j] * squashed * o * (unit - o)
        gradient[j] = grad_cell[j] * g * i * (unit - i)
        gradient[size + j] = grad_cell[j] * before[j] * f * (unit - f)
        gradient[2 * size + j] = grad_cell[j] * i * (unit - g * g)
        grad_cell[j] *= f


@njit(**PART)
def gru_backward(total: Any, before: Any, grad_new: Any, gradient: Any, direct: Any) -> None:
    """Write the gradient of `total`, and to `direct` that of the state which h keeps."""
    size, unit = grad_new.shape[0], grad_new.dtype.type(1)
    for j in range(size):
        r, z = sigmoid(total[j]), sigmoid(total[size + j])
        candidate = tanh(total[2 * size + j] + r * total[3 * size + j])
        slope = grad_new[j] * (unit - z) * (unit - candidate * candidate)
        gradient[j] = slope * total[3 * size + j] * r * (unit - r)
        gradient[size + j] = grad_new[j] * (before[j] - candidate) * z * (unit - z)
        gradient[2 * size + j] = slope
        gradient[3 * size + j] = slope * r
        direct[j] = grad_new[j] * z
