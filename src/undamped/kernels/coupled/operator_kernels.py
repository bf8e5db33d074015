"""The compiled parts of `operators`: maps between two transforms, and layers of rotations."""

from __future__ import annotations

from typing import Any

import numpy as np

from undamped.kernels.shared.jit import KERNEL, PART, njit

EXACT: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy"}


@njit(**(KERNEL | {"fastmath": {"reassoc", "contract"}}))
def along(vector: Any, row: Any) -> Any:
    """vᴴ z. The order of the sum is the compiler's, so that it can take several at once."""
    re, im = vector[0].real * 0, vector[0].real * 0
    for j in range(row.shape[0]):
        v, z = vector[j], row[j]
        re += v.real * z.real + v.imag * z.imag
        im += v.real * z.imag - v.imag * z.real
    return complex(re, im)


@njit(**KERNEL)
def apply_first_phase(rows: Any, phases: Any, out: Any) -> None:
    """out = D h."""
    size = phases.shape[0]
    for b in range(rows.shape[0]):
        re, im, result = rows[b, :size], rows[b, size:], out[b]
        for j in range(size):
            d = phases[j]
            result[j] = complex(d.real * re[j] - d.imag * im[j], d.real * im[j] + d.imag * re[j])


@njit(**KERNEL)
def reflect(rows: Any, vector: Any, scaled: Any) -> None:
    """rows = R rows, in place; `scaled` is 2v/‖v‖²."""
    for b in range(rows.shape[0]):
        row = rows[b]
        a = along(vector, row)
        for j in range(row.shape[0]):
            s, z = scaled[j], row[j]
            row[j] = complex(
                z.real - s.real * a.real + s.imag * a.imag,
                z.imag - s.real * a.imag - s.imag * a.real,
            )


@njit(**KERNEL)
def apply_permuted_phase(rows: Any, index: Any, phases: Any, out: Any) -> None:
    """out = D Π rows."""
    for b in range(rows.shape[0]):
        row, result = rows[b], out[b]
        for j in range(row.shape[0]):
            d, z = phases[j], row[index[j]]
            result[j] = complex(
                d.real * z.real - d.imag * z.imag, d.real * z.imag + d.imag * z.real
            )


@njit(**KERNEL)
def apply_last_phase(rows: Any, phases: Any, out: Any, adds: bool) -> None:
    """out += D rows."""
    size = phases.shape[0]
    for b in range(rows.shape[0]):
        row, re, im = rows[b], out[b, :size], out[b, size:]
        if not adds:
            out[b] = 0
        for j in range(size):
            re[j] += phases[j].real * row[j].real - phases[j].imag * row[j].imag
        for j in range(size):
            im[j] += phases[j].real * row[j].imag + phases[j].imag * row[j].real


@njit(**KERNEL)
def reflection_gradient(
    rows: Any, grad_rows: Any, vector: Any, scaled: Any, phase: Any, total: Any, both: Any
) -> None:
    """Sum the gradients of a reflection and of the phase after it."""
    # R z = z − c v (vᴴz), c = 2/‖v‖², and g the gradient of it. With α = vᴴz and β = gᴴv the
    # gradient of v is −c Σ(ᾱ g + β z) + c² Re(Σ β α) v: `total` and `both` are the sums. The
    # gradient of a phase after R is −Im Σ ḡ (R z).
    for b in range(rows.shape[0]):
        z, g = rows[b], grad_rows[b]
        a, beta = along(vector, z), along(g, vector)
        both[0] += beta.real * a.real - beta.imag * a.imag
        for j in range(z.shape[0]):
            total[j] += a.conjugate() * g[j] + beta * z[j]
        for j in range(z.shape[0]):
            re = z[j].real - scaled[j].real * a.real + scaled[j].imag * a.imag
            im = z[j].imag - scaled[j].real * a.imag - scaled[j].imag * a.real
            phase[j] += g[j].imag * re - g[j].real * im


@njit(**KERNEL)
def phase_gradient(rows: Any, grad_rows: Any, phase: Any) -> None:
    """−Im Σ ḡ z."""
    for b in range(rows.shape[0]):
        z, g = rows[b], grad_rows[b]
        for j in range(z.shape[0]):
            phase[j] += g[j].imag * z[j].real - g[j].real * z[j].imag


@njit(**PART)
def _rotate(coefficients: Any, partners: Any, paired: bool, row: Any, out: Any) -> None:
    """Write one layer of rotations of a row to `out`."""
    size = partners.shape[0]
    for j in range(size):
        k = partners[j]
        on, off = coefficients[0, j], coefficients[2, j]
        if paired:
            on_im, off_im = coefficients[1, j], coefficients[3, j]
            re, im, re_k, im_k = row[j], row[j + size], row[k], row[k + size]
            out[j] = on * re - on_im * im + off * re_k - off_im * im_k
            out[j + size] = on * im + on_im * re + off * im_k + off_im * re_k
        else:
            out[j] = on * row[j] + off * row[k]


@njit(**EXACT)
def layers(rows: Any, coefficients: Any, partners: Any, paired: bool, out: Any) -> None:
    """Apply all layers to each row."""
    # Row by row, so that the row stays in the first-level cache for all layers.
    width = rows.shape[1]
    now, then = np.empty(width, rows.dtype), np.empty(width, rows.dtype)
    for b in range(rows.shape[0]):
        now[:] = rows[b]
        for layer in range(partners.shape[0]):
            _rotate(coefficients[layer], partners[layer], paired, now, then)
            now, then = then, now
        out[b] = now


@njit(**EXACT)
def layer_gradients(
    inputs: Any, gradients: Any, coefficients: Any, partners: Any, paired: bool, result: Any
) -> None:
    """Sum the gradients of all layers."""
    layers, size = partners.shape
    width = inputs.shape[1]
    values = np.empty((layers + 1, width), inputs.dtype)
    grad, grad_below = np.empty(width, inputs.dtype), np.empty(width, inputs.dtype)
    for b in range(inputs.shape[0]):
        values[0] = inputs[b]
        for layer in range(layers):
            _rotate(coefficients[layer], partners[layer], paired, values[layer], values[layer + 1])
        grad[:] = gradients[b]
        for layer in range(layers - 1, -1, -1):
            row, numbers, sums = values[layer], coefficients[layer], result[layer]
            for j in range(size):
                k = partners[layer, j]
                if paired:
                    re, im, re_k, im_k = row[j], row[j + size], row[k], row[k + size]
                    g, g_im, h, h_im = grad[j], grad[j + size], grad[k], grad[k + size]
                    sums[0, j] += g * re + g_im * im
                    sums[1, j] += g_im * re - g * im
                    sums[2, j] += g * re_k + g_im * im_k
                    sums[3, j] += g_im * re_k - g * im_k
                    on, on_im = numbers[0, j], numbers[1, j]
                    off, off_im = numbers[2, k], numbers[3, k]
                    # An unpaired coordinate is its own partner and has off = 0.
                    grad_below[j] = on * g + on_im * g_im + off * h + off_im * h_im
                    grad_below[j + size] = on * g_im - on_im * g + off * h_im - off_im * h
                else:
                    sums[0, j] += grad[j] * row[j]
                    sums[2, j] += grad[j] * row[k]
                    grad_below[j] = numbers[0, j] * grad[j] + numbers[2, k] * grad[k]
            grad, grad_below = grad_below, grad
