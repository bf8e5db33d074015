"""Steps with layer normalisation, zoneout and dropout: LSTM and GRU.

The first constant is 1 if products and memory are normalised. The second is 1 if further columns of
the projected input are masks: the units that keep their memory and their state (`zoneout`), then
the factors of the candidate.
"""

from __future__ import annotations

import math
from typing import Any

from undamped.kernels.coupled.loop import (
    add_backpropagated_product,
    apply,
    at_time,
    backward_loop,
    clear_row,
    copy_row,
    forward_loop,
    helper,
    inputs,
    memories,
    states,
    step_function,
)
from undamped.kernels.coupled.projections import EPSILON
from undamped.kernels.shared.tanh import sigmoid, tanh


@helper
def normalise(row: Any, first: int, size: int, out: Any) -> Any:
    """Write a part of a row with mean 0 and variance 1; return the inverse of its deviation."""
    kind = row.dtype.type
    scale, mean, variance = kind(1) / kind(size), kind(0), kind(0)
    for j in range(first, first + size):
        mean += row[j]
    mean *= scale
    for j in range(first, first + size):
        variance += (row[j] - mean) * (row[j] - mean)
    inverse = kind(1) / kind(math.sqrt(variance * scale + kind(EPSILON)))
    for j in range(first, first + size):
        out[j] = (row[j] - mean) * inverse
    return inverse


@helper
def normalise_backward(gradient: Any, normal: Any, inverse: Any, first: int, size: int) -> None:
    """Replace the gradient of a normalised part by that of the part."""
    kind = gradient.dtype.type
    scale, mean, slope = kind(1) / kind(size), kind(0), kind(0)
    for j in range(first, first + size):
        mean += gradient[j]
    for j in range(first, first + size):
        slope += gradient[j] * normal[j]
    mean *= scale
    slope *= scale
    for j in range(first, first + size):
        gradient[j] = (gradient[j] - mean - slope * normal[j]) * inverse


@helper
def scale_and_shift(row: Any, size: int, gain: Any, shift: Any) -> None:
    """Multiply a row by the gain and add the shift."""
    for j in range(size):
        row[j] = gain[j] * row[j] + shift[j]


@helper
def gain_backward(gradient: Any, normal: Any, gain: Any, gain_gradient: Any, size: int) -> None:
    """Add to the gradient of a gain; the gradient becomes that of the normalised row."""
    for j in range(size):
        gain_gradient[j] += gradient[j] * normal[j]
    for j in range(size):
        gradient[j] *= gain[j]


@helper
def lstm_gates(total: Any, size: int, i: Any, f: Any, g: Any, o: Any) -> None:
    """Write the gates and the candidate of an LSTM from their sums."""
    for j in range(size):
        i[j] = sigmoid(total[j])
    for j in range(size):
        f[j] = sigmoid(total[size + j])
    for j in range(size):
        g[j] = tanh(total[2 * size + j])
    for j in range(size):
        o[j] = sigmoid(total[3 * size + j])


@step_function
def normal_lstm_forward(chunk: Any, t: int, weights: Any, constants: Any) -> None:
    """See `NormalisedLongShort`."""
    apply(chunk, t)
    product, projected = chunk.product, inputs(chunk, t)
    (old_memory, new_memory), (old, new) = memories(chunk, t), states(chunk, t)
    size, unit, raw, normal = old.shape[1], product.dtype.type(1), chunk.buffer[0], chunk.buffer[1]
    norm, masks = constants[0] > 0, constants[1] > 0
    for b in range(product.shape[0]):
        total, x, before, after = product[b], projected[b], old_memory[b], new_memory[b]
        hidden, hidden_before = new[b], old[b]
        if norm:
            normalise(total, 0, 4 * size, total)
        scale_and_shift(total, 4 * size, weights[0], x)
        for j in range(size):
            raw[j] = sigmoid(total[j]) * tanh(total[2 * size + j])
        if masks:
            for j in range(size):
                raw[j] *= x[6 * size + j]
        for j in range(size):
            raw[j] += sigmoid(total[size + j]) * before[j]
        copy_row(raw, normal)
        if norm:
            normalise(raw, 0, size, normal)
            scale_and_shift(normal, size, weights[1], weights[2])
        for j in range(size):
            hidden[j] = sigmoid(total[3 * size + j]) * tanh(normal[j])
        copy_row(raw, after)
        if masks:
            for j in range(size):
                rate = x[4 * size + j]
                after[j] = rate * before[j] + (unit - rate) * raw[j]
            for j in range(size):
                rate = x[5 * size + j]
                hidden[j] = rate * hidden_before[j] + (unit - rate) * hidden[j]


@helper
def lstm_memory(buffer: Any, x: Any, before: Any, size: int, masks: Any) -> None:
    """Write the new memory to the last row of the buffer, from the gates in the others."""
    i, f, g, raw = buffer[0], buffer[1], buffer[2], buffer[4]
    for j in range(size):
        raw[j] = i[j] * g[j]
    if masks:
        for j in range(size):
            raw[j] *= x[6 * size + j]
    for j in range(size):
        raw[j] += f[j] * before[j]


@helper
def output_gate_backward(buffer: Any, squashed: Any, outer: Any, size: int) -> None:
    """Replace the gradient of the output in the buffer by that of the argument of the last tanh."""
    o, raw, unit = buffer[3], buffer[4], squashed.dtype.type(1)
    for j in range(size):
        outer[3 * size + j] = raw[j] * squashed[j] * o[j] * (unit - o[j])
    for j in range(size):
        raw[j] *= o[j] * (unit - squashed[j] * squashed[j])


@helper
def memory_backward(buffer: Any, grad: Any, grad_cell: Any, outer: Any, size: int) -> None:
    """Backpropagate from the new memory to the input gate, the candidate and the old states."""
    i, f, g, raw, unit = buffer[0], buffer[1], buffer[2], buffer[4], grad.dtype.type(1)
    for j in range(size):
        raw[j] += grad_cell[j]
    for j in range(size):
        outer[2 * size + j] = raw[j] * i[j] * (unit - g[j] * g[j])
    for j in range(size):
        outer[j] = raw[j] * g[j] * i[j] * (unit - i[j])
    for j in range(size):
        grad_cell[j] = raw[j] * f[j]
    clear_row(grad)


@helper
def masked_memory_backward(
    buffer: Any, x: Any, grad: Any, grad_cell: Any, outer: Any, size: int
) -> None:
    """Do the same with zoneout and dropout; masks have no gradient."""
    i, f, g, raw, unit = buffer[0], buffer[1], buffer[2], buffer[4], grad.dtype.type(1)
    for j in range(size):
        raw[j] += grad_cell[j] * (unit - x[4 * size + j])
    for j in range(size):
        g_slope = raw[j] * i[j] * x[6 * size + j]
        outer[2 * size + j] = g_slope * (unit - g[j] * g[j])
    for j in range(size):
        outer[j] = raw[j] * g[j] * x[6 * size + j] * i[j] * (unit - i[j])
    for j in range(size):
        grad_cell[j] = raw[j] * f[j] + grad_cell[j] * x[4 * size + j]
    for j in range(size):
        grad[j] *= x[5 * size + j]
    for j in range(4 * size, 7 * size):
        outer[j] = 0


@step_function
def normal_lstm_backward(chunk: Any, t: int, weights: Any, gradients: Any, constants: Any) -> None:
    """The gradient of `normal_lstm_forward`."""
    product, projected = at_time(chunk, chunk.product, t), at_time(chunk, chunk.projected, t)
    grad_product = at_time(chunk, chunk.gradient, t)
    grad_projected = at_time(chunk, chunk.projected_gradient, t)
    old_memory, buffer = at_time(chunk, chunk.memory, t), chunk.buffer
    size, unit = chunk.state_gradient.shape[1], product.dtype.type(1)
    i, f, g, o, raw = buffer[0], buffer[1], buffer[2], buffer[3], buffer[4]
    norm, masks = constants[0] > 0, constants[1] > 0
    for b in range(product.shape[0]):
        total, x, before, result = product[b], projected[b], old_memory[b], grad_product[b]
        grad, grad_cell = chunk.state_gradient[b], chunk.memory_gradient[b]
        outer = grad_projected[b]
        normal, squashed, inverse, cell_inverse = chunk.scratch[b], chunk.summed[b], unit, unit
        if norm:
            inverse = normalise(total, 0, 4 * size, total)
        for j in range(4 * size):  # the gradient of the input is written to this row later
            outer[j] = weights[0][j] * total[j] + x[j]
        lstm_gates(outer, size, i, f, g, o)
        lstm_memory(buffer, x, before, size, masks)
        copy_row(raw, normal)
        if norm:
            cell_inverse = normalise(raw, 0, size, normal)
        for j in range(size):
            squashed[j] = tanh(weights[1][j] * normal[j] + weights[2][j])
        copy_row(grad, raw)  # from here on the gradient of the output, then of the new memory
        if masks:
            for j in range(size):
                raw[j] *= unit - x[5 * size + j]
        output_gate_backward(buffer, squashed, outer, size)
        if norm:
            for j in range(size):
                gradients[2][j] += raw[j]
            gain_backward(raw, normal, weights[1], gradients[1], size)
            normalise_backward(raw, normal, cell_inverse, 0, size)
        if masks:
            masked_memory_backward(buffer, x, grad, grad_cell, outer, size)
        else:
            memory_backward(buffer, grad, grad_cell, outer, size)
        for j in range(size):
            outer[size + j] = raw[j] * before[j] * f[j] * (unit - f[j])
        for j in range(4 * size):
            result[j] = outer[j]
        if norm:
            gain_backward(result, total, weights[0], gradients[0], 4 * size)
            normalise_backward(result, total, inverse, 0, 4 * size)
    add_backpropagated_product(chunk, t)


@step_function
def normal_gru_forward(chunk: Any, t: int, weights: Any, constants: Any) -> None:
    """See `NormalisedGatedRecurrent`."""
    apply(chunk, t)
    product, projected, (old, new) = chunk.product, inputs(chunk, t), states(chunk, t)
    size, unit, candidate = old.shape[1], product.dtype.type(1), chunk.buffer[0]
    norm, masks = constants[0] > 0, constants[1] > 0
    for b in range(product.shape[0]):
        total, x, before, after = product[b], projected[b], old[b], new[b]
        if norm:
            normalise(total, 0, 2 * size, total)
            normalise(total, 2 * size, size, total)
        scale_and_shift(total, 3 * size, weights[0], weights[1])
        for j in range(size):
            reset = sigmoid(total[j] + x[j])
            candidate[j] = tanh(x[2 * size + j] + reset * total[2 * size + j])
        if masks:
            for j in range(size):
                candidate[j] *= x[4 * size + j]
        for j in range(size):
            z = sigmoid(total[size + j] + x[size + j])
            after[j] = z * before[j] + (unit - z) * candidate[j]
        if masks:
            for j in range(size):
                rate = x[3 * size + j]
                after[j] = rate * before[j] + (unit - rate) * after[j]


@helper
def gru_gates(total: Any, x: Any, size: int, r: Any, z: Any, candidate: Any) -> None:
    """Write the gates and the candidate of a GRU from product and projected input."""
    for j in range(size):
        r[j] = sigmoid(total[j] + x[j])
    for j in range(size):
        z[j] = sigmoid(total[size + j] + x[size + j])
    for j in range(size):
        candidate[j] = tanh(x[2 * size + j] + r[j] * total[2 * size + j])


@helper
def gru_masks_backward(buffer: Any, x: Any, grad: Any, size: int) -> None:
    """Backpropagate through zoneout and dropout; zoneout's direct part goes to the buffer."""
    candidate, inner, carried, unit = buffer[2], buffer[3], buffer[4], grad.dtype.type(1)
    for j in range(size):
        carried[j] = grad[j] * x[3 * size + j]
    for j in range(size):
        grad[j] *= unit - x[3 * size + j]
    for j in range(size):
        inner[j] *= x[4 * size + j]
    for j in range(size):
        candidate[j] *= x[4 * size + j]


@helper
def gru_gates_backward(
    buffer: Any, grad: Any, before: Any, total: Any, result: Any, size: int
) -> None:
    """Write the gradient of the product with gain and shift."""
    r, z, candidate, inner = buffer[0], buffer[1], buffer[2], buffer[3]
    unit = grad.dtype.type(1)
    for j in range(size):
        result[j] = inner[j] * total[2 * size + j] * r[j] * (unit - r[j])
    for j in range(size):
        result[size + j] = grad[j] * (before[j] - candidate[j]) * z[j] * (unit - z[j])
    for j in range(size):
        result[2 * size + j] = inner[j] * r[j]


@step_function
def normal_gru_backward(chunk: Any, t: int, weights: Any, gradients: Any, constants: Any) -> None:
    """The gradient of `normal_gru_forward`."""
    product, projected = at_time(chunk, chunk.product, t), at_time(chunk, chunk.projected, t)
    old, grad_product = at_time(chunk, chunk.hidden_states, t), at_time(chunk, chunk.gradient, t)
    grad_projected = at_time(chunk, chunk.projected_gradient, t)
    gain, shift = weights[0], weights[1]
    size, unit, buffer = old.shape[1], product.dtype.type(1), chunk.buffer
    r, z, candidate, inner, carried = buffer[0], buffer[1], buffer[2], buffer[3], buffer[4]
    norm, masks = constants[0] > 0, constants[1] > 0
    for b in range(product.shape[0]):
        total, x, before, result = product[b], projected[b], old[b], grad_product[b]
        grad, outer, gates_inverse, inverse = chunk.state_gradient[b], grad_projected[b], unit, unit
        if norm:
            gates_inverse = normalise(total, 0, 2 * size, total)
            inverse = normalise(total, 2 * size, size, total)
        for j in range(3 * size):
            outer[j] = gain[j] * total[j] + shift[j]
        gru_gates(outer, x, size, r, z, candidate)
        clear_row(carried)
        for j in range(size):
            inner[j] = (unit - z[j]) * (unit - candidate[j] * candidate[j])
        if masks:
            gru_masks_backward(buffer, x, grad, size)
        for j in range(size):
            inner[j] *= grad[j]
        gru_gates_backward(buffer, grad, before, outer, result, size)
        for j in range(2 * size):
            outer[j] = result[j]
        for j in range(size):
            outer[2 * size + j] = inner[j]
        for j in range(size):
            grad[j] = grad[j] * z[j] + carried[j]
        if masks:
            for j in range(3 * size, 5 * size):
                outer[j] = 0
        for j in range(3 * size):
            gradients[1][j] += result[j]
        if norm:
            gain_backward(result, total, gain, gradients[0], 3 * size)
            normalise_backward(result, total, gates_inverse, 0, 2 * size)
            normalise_backward(result, total, inverse, 2 * size, size)
    add_backpropagated_product(chunk, t)


LOOPS = {
    "NormalisedLongShort": (
        forward_loop(normal_lstm_forward, has_memory=True),
        backward_loop(normal_lstm_backward),
    ),
    "NormalisedGatedRecurrent": (
        forward_loop(normal_gru_forward),
        backward_loop(normal_gru_backward),
    ),
}
