"""Linear recurrences for the CPU, compiled by Numba; see `shared.column_loop` for the form.

Coefficients are constants of the scan, or a further sequence if they vary per step. Outputs are the
states, so the backward pass needs nothing else, and the gradient of an input is the gradient of the
state to which it was added.

Of forced oscillators only positions are written. The backward pass needs velocities too: where
nothing damps them (a = 1) they are recomputed backwards in time, from the one at the end; otherwise
`forced_velocities` runs a chunk again from the one that was stored at its start.
"""

from __future__ import annotations

from typing import Any

from undamped.kernels.shared.column_loop import BLOCK, block_rows, column_scan, step_function

# The state, or its gradient in the backward pass, is stored between coefficients and sums of
# their gradients; both are zero, and not read, where coefficients are a sequence.
A, H, GA = block_rows(3)  # for numbers
M0, M1, M2, M3, X, Y, GM0, GM1, GM2, GM3 = block_rows(10)  # for pairs, moved by 2×2 matrices
D, K, F, S, POSITION, VELOCITY = block_rows(6)  # for oscillators
V, GX, GZ, GD, GK, GF, GS = block_rows(11)[4:]  # the same in the backward pass


@step_function
def linear_forward(block: Any, rows: Any, width: int) -> None:
    """h' = a h + u."""
    inputs, outputs = rows
    for j in range(min(BLOCK, width)):
        new = block[A + j] * block[H + j] + inputs[j]
        block[H + j] = new
        outputs[j] = new


@step_function
def linear_forward_per_step(block: Any, rows: Any, width: int) -> None:
    """The same with a coefficient per step."""
    inputs, coefficients, outputs = rows
    for j in range(min(BLOCK, width)):
        new = coefficients[j] * block[H + j] + inputs[j]
        block[H + j] = new
        outputs[j] = new


@step_function
def linear_backward(block: Any, rows: Any, width: int) -> None:
    """Gradients of one step, from the state before it."""
    before, grad, grad_inputs = rows
    for j in range(min(BLOCK, width)):
        total = block[H + j] + grad[j]
        block[H + j] = block[A + j] * total
        block[GA + j] += total * before[j]
        grad_inputs[j] = total


@step_function
def linear_backward_per_step(block: Any, rows: Any, width: int) -> None:
    """The same with a coefficient per step."""
    before, grad, coefficients, grad_inputs, grad_coefficients = rows
    for j in range(min(BLOCK, width)):
        total = block[H + j] + grad[j]
        block[H + j] = coefficients[j] * total
        grad_inputs[j] = total
        grad_coefficients[j] = total * before[j]


@step_function
def _advance(block: Any, inputs: Any, outputs: Any, j: int, matrix: Any) -> None:
    """(x, y)' = [[m₀, m₁], [m₂, m₃]] (x, y) + (u, v); the two numbers are adjacent in memory."""
    (m0, m1, m2, m3), x0, y0 = matrix, block[X + j], block[Y + j]
    x1 = m0 * x0 + (m1 * y0 + inputs[2 * j])
    y1 = m2 * x0 + (m3 * y0 + inputs[2 * j + 1])
    block[X + j], block[Y + j] = x1, y1
    outputs[2 * j], outputs[2 * j + 1] = x1, y1


@step_function
def _fixed_matrix(block: Any, j: int) -> Any:
    return block[M0 + j], block[M1 + j], block[M2 + j], block[M3 + j]


@step_function
def _complex_matrix(pairs: Any, j: int) -> Any:
    """Return [[a, −b], [b, a]] for the complex number (a, b)."""
    return pairs[2 * j], -pairs[2 * j + 1], pairs[2 * j + 1], pairs[2 * j]


@step_function
def _matrix(fours: Any, j: int) -> Any:
    return fours[4 * j], fours[4 * j + 1], fours[4 * j + 2], fours[4 * j + 3]


@step_function
def pair_forward(block: Any, rows: Any, width: int) -> None:
    """One step of pairs."""
    inputs, outputs = rows
    for j in range(min(BLOCK, width)):
        _advance(block, inputs, outputs, j, _fixed_matrix(block, j))


@step_function
def complex_forward_per_step(block: Any, rows: Any, width: int) -> None:
    """The same with a complex number per step."""
    inputs, coefficients, outputs = rows
    for j in range(min(BLOCK, width)):
        _advance(block, inputs, outputs, j, _complex_matrix(coefficients, j))


@step_function
def matrix_forward_per_step(block: Any, rows: Any, width: int) -> None:
    """The same with a matrix per step."""
    inputs, coefficients, outputs = rows
    for j in range(min(BLOCK, width)):
        _advance(block, inputs, outputs, j, _matrix(coefficients, j))


@step_function
def _advance_backward(block: Any, grad: Any, grad_inputs: Any, j: int, matrix: Any) -> Any:
    """Replace the gradient of a pair after a step by that before it; return the former."""
    m0, m1, m2, m3 = matrix
    gx, gy = block[X + j] + grad[2 * j], block[Y + j] + grad[2 * j + 1]
    block[X + j] = m0 * gx + m2 * gy
    block[Y + j] = m1 * gx + m3 * gy
    grad_inputs[2 * j], grad_inputs[2 * j + 1] = gx, gy
    return gx, gy


@step_function
def pair_backward(block: Any, rows: Any, width: int) -> None:
    """Gradients of one step of pairs, from the state before it."""
    before, grad, grad_inputs = rows
    for j in range(min(BLOCK, width)):
        gx, gy = _advance_backward(block, grad, grad_inputs, j, _fixed_matrix(block, j))
        x0, y0 = before[2 * j], before[2 * j + 1]
        block[GM0 + j] += gx * x0
        block[GM1 + j] += gx * y0
        block[GM2 + j] += gy * x0
        block[GM3 + j] += gy * y0


@step_function
def complex_backward_per_step(block: Any, rows: Any, width: int) -> None:
    """The same with a complex number per step."""
    before, grad, coefficients, grad_inputs, grad_coefficients = rows
    for j in range(min(BLOCK, width)):
        gx, gy = _advance_backward(block, grad, grad_inputs, j, _complex_matrix(coefficients, j))
        x0, y0 = before[2 * j], before[2 * j + 1]
        grad_coefficients[2 * j] = gx * x0 + gy * y0
        grad_coefficients[2 * j + 1] = gy * x0 - gx * y0


@step_function
def matrix_backward_per_step(block: Any, rows: Any, width: int) -> None:
    """The same with a matrix per step."""
    before, grad, coefficients, grad_inputs, grad_coefficients = rows
    for j in range(min(BLOCK, width)):
        gx, gy = _advance_backward(block, grad, grad_inputs, j, _matrix(coefficients, j))
        x0, y0 = before[2 * j], before[2 * j + 1]
        grad_coefficients[4 * j] = gx * x0
        grad_coefficients[4 * j + 1] = gx * y0
        grad_coefficients[4 * j + 2] = gy * x0
        grad_coefficients[4 * j + 3] = gy * y0


@step_function
def forced_forward(block: Any, rows: Any, width: int) -> None:
    """z' = a z − k x + f u, x' = x + s z'; positions are written."""
    inputs, outputs = rows
    for j in range(min(BLOCK, width)):
        x0, z0 = block[POSITION + j], block[VELOCITY + j]
        z1 = block[D + j] * z0 + (block[F + j] * inputs[j] - block[K + j] * x0)
        x1 = x0 + block[S + j] * z1
        block[POSITION + j] = x1
        block[VELOCITY + j] = z1
        outputs[j] = x1


@step_function
def forced_velocities(block: Any, rows: Any, width: int) -> None:
    """The same with known positions: the velocity before the step is written."""
    before, inputs, velocities = rows
    for j in range(min(BLOCK, width)):
        z = block[V + j]
        velocities[j] = z
        block[V + j] = block[D + j] * z + (block[F + j] * inputs[j] - block[K + j] * before[j])


@step_function
def _oscillator_gradients(block: Any, j: int, u: Any, x: Any, z: Any, grad: Any) -> Any:
    """Gradients of one step, from the old position x and velocity z."""
    k, z1 = block[K + j], block[V + j]
    gx = block[GX + j] + grad
    gz = block[GZ + j] + block[S + j] * gx
    block[V + j] = z
    block[GX + j] = gx - k * gz
    block[GZ + j] = block[D + j] * gz
    block[GD + j] += gz * z
    block[GK + j] -= gz * x
    block[GF + j] += gz * u
    block[GS + j] += gx * z1
    return block[F + j] * gz


@step_function
def forced_backward(block: Any, rows: Any, width: int) -> None:
    """Gradients of one step, with the velocities that `forced_velocities` wrote."""
    before, inputs, velocities, grad, grad_inputs = rows
    for j in range(min(BLOCK, width)):
        u, x = inputs[j], before[j]
        grad_inputs[j] = _oscillator_gradients(block, j, u, x, velocities[j], grad[j])


@step_function
def forced_backward_reversible(block: Any, rows: Any, width: int) -> None:
    """The same where a = 1, where the old velocity is recomputed from the new one."""
    before, inputs, grad, grad_inputs = rows
    for j in range(min(BLOCK, width)):
        u, x = inputs[j], before[j]
        z = block[V + j] - (block[F + j] * u - block[K + j] * x)
        grad_inputs[j] = _oscillator_gradients(block, j, u, x, z, grad[j])


# By the form of the units, and whether coefficients vary per step.
_STEPS = {
    ("numbers", False): (linear_forward, linear_backward),
    ("numbers", True): (linear_forward_per_step, linear_backward_per_step),
    ("complex", False): (pair_forward, pair_backward),
    ("complex", True): (complex_forward_per_step, complex_backward_per_step),
    ("matrices", False): (pair_forward, pair_backward),
    ("matrices", True): (matrix_forward_per_step, matrix_backward_per_step),
}
KERNELS: dict[Any, Any] = {
    (form, per_step): (
        column_scan(forward, 2 + per_step),
        column_scan(backward, 3 + 2 * per_step, outputs=1 + per_step, backwards=True),
    )
    for (form, per_step), (forward, backward) in _STEPS.items()
}
KERNELS |= {
    "forced_forward": column_scan(forced_forward, 2),
    "forced_velocities": column_scan(forced_velocities, 3, outputs=0),
    "forced_backward": column_scan(forced_backward, 5, backwards=True),
    "forced_backward_reversible": column_scan(forced_backward_reversible, 4, backwards=True),
}
