"""The compiled part of `givens_layers`."""

from __future__ import annotations

from typing import Any

import numpy as np

from undamped.kernels.shared.jit import njit


@njit(nogil=True, cache=True, error_model="numpy")
def layers(rows: Any, coefficients: Any, partners: Any, paired: bool, out: Any) -> None:
    """Apply all layers to each row."""
    # Row by row, so that all layers find the row in the nearest cache.
    size = partners.shape[1]
    width = rows.shape[1]
    now, then = np.empty(width, rows.dtype), np.empty(width, rows.dtype)
    for b in range(rows.shape[0]):
        now[:] = rows[b]
        for layer in range(partners.shape[0]):
            for j in range(size):
                k = partners[layer, j]
                keep, off = coefficients[layer, 0, j], coefficients[layer, 2, j]
                if paired:
                    keep_im, off_im = coefficients[layer, 1, j], coefficients[layer, 3, j]
                    re, im = now[j], now[j + size]
                    other, other_im = now[k], now[k + size]
                    then[j] = keep * re - keep_im * im + off * other - off_im * other_im
                    then[j + size] = keep * im + keep_im * re + off * other_im + off_im * other
                else:
                    then[j] = keep * now[j] + off * now[k]
            now, then = then, now
        out[b] = now


@njit(nogil=True, cache=True, error_model="numpy")
def layer_gradients(
    inputs: Any, gradients: Any, coefficients: Any, partners: Any, paired: bool, result: Any
) -> None:
    """Add up the gradients of all layers."""
    layers, size = partners.shape
    width = inputs.shape[1]
    values = np.empty((layers + 1, width), inputs.dtype)
    grad, grad_below = np.empty(width, inputs.dtype), np.empty(width, inputs.dtype)
    for b in range(inputs.shape[0]):
        values[0] = inputs[b]
        for layer in range(layers):
            for j in range(size):
                k = partners[layer, j]
                keep, off = coefficients[layer, 0, j], coefficients[layer, 2, j]
                if paired:
                    keep_im, off_im = coefficients[layer, 1, j], coefficients[layer, 3, j]
                    re, im = values[layer, j], values[layer, j + size]
                    other, other_im = values[layer, k], values[layer, k + size]
                    values[layer + 1, j] = (
                        keep * re - keep_im * im + off * other - off_im * other_im
                    )
                    values[layer + 1, j + size] = (
                        keep * im + keep_im * re + off * other_im + off_im * other
                    )
                else:
                    values[layer + 1, j] = keep * values[layer, j] + off * values[layer, k]
        grad[:] = gradients[b]
        for layer in range(layers - 1, -1, -1):
            for j in range(size):
                k = partners[layer, j]
                if paired:
                    re, im = values[layer, j], values[layer, j + size]
                    other, other_im = values[layer, k], values[layer, k + size]
                    g, g_im = grad[j], grad[j + size]
                    result[layer, 0, j] += g * re + g_im * im
                    result[layer, 1, j] += g_im * re - g * im
                    result[layer, 2, j] += g * other + g_im * other_im
                    result[layer, 3, j] += g_im * other - g * other_im
                    h, h_im = grad[k], grad[k + size]
                    keep, keep_im = coefficients[layer, 0, j], coefficients[layer, 1, j]
                    off, off_im = coefficients[layer, 2, k], coefficients[layer, 3, k]
                    # An unpaired coordinate is its own partner and has off = 0.
                    grad_below[j] = keep * g + keep_im * g_im + off * h + off_im * h_im
                    grad_below[j + size] = keep * g_im - keep_im * g + off * h_im - off_im * h
                else:
                    result[layer, 0, j] += grad[j] * values[layer, j]
                    result[layer, 2, j] += grad[j] * values[layer, k]
                    grad_below[j] = (
                        coefficients[layer, 0, j] * grad[j] + coefficients[layer, 2, k] * grad[k]
                    )
            grad, grad_below = grad_below, grad
