"""The linear part of `coupled_scan` for layers of plane rotations: O(layers · size) a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from numba import njit
from torch import Tensor

from undamped.kernels.coupled.contract import StructuredOperator


@njit(nogil=True, cache=True, error_model="numpy")
def _layers(rows: Any, coefficients: Any, partners: Any, paired: bool, out: Any) -> None:
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
def _layer_gradients(
    inputs: Any, gradients: Any, coefficients: Any, partners: Any, paired: bool, result: Any
) -> None:
    layers, size = partners.shape
    width = inputs.shape[1]
    values = np.empty((layers + 1, width), inputs.dtype)
    given, passed = np.empty(width, inputs.dtype), np.empty(width, inputs.dtype)
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
        given[:] = gradients[b]
        for layer in range(layers - 1, -1, -1):
            for j in range(size):
                k = partners[layer, j]
                if paired:
                    re, im = values[layer, j], values[layer, j + size]
                    other, other_im = values[layer, k], values[layer, k + size]
                    g, g_im = given[j], given[j + size]
                    result[layer, 0, j] += g * re + g_im * im
                    result[layer, 1, j] += g_im * re - g * im
                    result[layer, 2, j] += g * other + g_im * other_im
                    result[layer, 3, j] += g_im * other - g * other_im
                    h, h_im = given[k], given[k + size]
                    keep, keep_im = coefficients[layer, 0, j], coefficients[layer, 1, j]
                    off, off_im = coefficients[layer, 2, k], coefficients[layer, 3, k]
                    # An unpaired coordinate is its own partner and has off = 0.
                    passed[j] = keep * g + keep_im * g_im + off * h + off_im * h_im
                    passed[j + size] = keep * g_im - keep_im * g + off * h_im - off_im * h
                else:
                    result[layer, 0, j] += given[j] * values[layer, j]
                    result[layer, 2, j] += given[j] * values[layer, k]
                    passed[j] = (
                        coefficients[layer, 0, j] * given[j] + coefficients[layer, 2, k] * given[k]
                    )
            given, passed = passed, given


class Layers(StructuredOperator):
    """Layers y_j = d_j h_j + o_j h_partner(j), complex ones as (real | imaginary).

    Args:
        partners: (layers, size), which coordinate stands beside which.
        paired: Whether rows are complex.
    """

    def __init__(self, partners: Tensor, paired: bool) -> None:
        self.partner_table, self.paired = partners, paired

    def describe(self) -> tuple[list[float], list[Tensor]]:
        """Whether rows are complex, and which coordinates stand together."""
        return [float(self.paired)], [self.partner_table]

    @classmethod
    def restore(cls, numbers: Sequence[float], tensors: Sequence[Tensor]) -> Self:
        """Make one from what `describe` returned."""
        return cls(tensors[0], bool(numbers[0]))

    def bind(self, tensors: Sequence[Tensor]) -> None:
        """Take (layers, 4, size), and make the layers of the transposed map."""
        (coefficients,) = tensors
        self.partners = self.partner_table.contiguous().numpy()
        self.backwards = np.ascontiguousarray(self.partners[::-1])
        self.coefficients = coefficients.contiguous().numpy()
        transposed = coefficients.clone()
        for layer, partner in enumerate(self.partners):
            transposed[layer, 2:] = coefficients[layer, 2:, torch.from_numpy(partner)]
        transposed[:, 1::2] *= -1
        self.transposed = transposed.flip(0).contiguous().numpy()

    def apply(self, rows: Tensor, add: Tensor | None, out: Tensor) -> None:
        """Write the product of all layers with each row."""
        _layers(rows.numpy(), self.coefficients, self.partners, self.paired, out.numpy())
        if add is not None:
            out += add

    def transpose(self, rows: Tensor, out: Tensor) -> None:
        """Write the product of the transposed layers, last one first."""
        _layers(rows.numpy(), self.transposed, self.backwards, self.paired, out.numpy())

    def gradients(self, inputs: Tensor, gradients: Tensor) -> tuple[Tensor, ...]:
        """Pass through the layers once for all steps and sequences."""
        result = np.zeros_like(self.coefficients)
        _layer_gradients(
            inputs.numpy(),
            gradients.numpy(),
            self.coefficients,
            self.partners,
            self.paired,
            result,
        )
        return (torch.from_numpy(result),)
