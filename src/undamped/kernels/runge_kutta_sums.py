"""Weighted sums of a few arrays, and the norm of one in units of a tolerance: one pass each.

These are the operations of a Runge–Kutta step besides evaluations of its field. In torch every term
would be a pass over the state and a call; here one call adds all terms to a block of the state
while it stays in the first-level cache. Arrays are passed by address, in a table that grows with
the stages of a step: a wrapper for each array would cost more than the sums.
"""

from __future__ import annotations

import math
from operator import attrgetter
from typing import Any, overload

import numpy as np
import torch
from numba import carray
from torch import Tensor

from undamped.kernels.shared.jit import njit
from undamped.kernels.shared.pointers import at
from undamped.kernels.shared.threads import over_columns

BLOCK = 1024
MOST = 32
"""Stages of a step; the longest method here has thirteen."""
Y, OUT, STAGES = 0, 1, 2
"""Rows of the table: the value at the start of a step, the result or end of the step, stages."""
kind_of = attrgetter("__class__", "dtype", "is_cpu", "shape")
"""Return the properties that tensors must share."""
ONE_THREAD = 1 << 21
"""Numbers read below which one thread is faster than two."""


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})
def _add(table: Any, weights: Any, h: float, size: int, like: Any, low: int, high: int) -> None:
    """Write y + h Σ w_j k_j for the blocks from low to high."""
    number = like.dtype.type
    start, result = carray(at(table[Y], like), size), carray(at(table[OUT], like), size)
    for block in range(low, high):
        first, last = block * BLOCK, min(size, (block + 1) * BLOCK)
        before, total = start[first:last], result[first:last]
        untouched = True
        for j in range(len(weights)):
            if weights[j] == 0:
                continue
            part, weight = carray(at(table[STAGES + j], like), size), number(h * weights[j])
            stage = part[first:last]
            if untouched:
                for i in range(last - first):
                    total[i] = before[i] + weight * stage[i]
                untouched = False
            else:
                for i in range(last - first):
                    total[i] += weight * stage[i]


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract", "reassoc"})
def _squares(
    table: Any,
    weights: Any,
    h: float,
    size: int,
    rtol: float,
    atol: float,
    totals: Any,
    low: int,
    high: int,
) -> None:
    """Sum the squares of h Σ w_j k_j / (atol + rtol max(|y|, |y'|)) in each block into `totals`.

    Every block has its own total, so that the number of threads does not change the sum.
    """
    number = totals.dtype.type
    relative, absolute = number(rtol), number(atol)
    tiny = np.finfo(totals.dtype).tiny
    start, reached = carray(at(table[Y], totals), size), carray(at(table[OUT], totals), size)
    error = np.empty(BLOCK, totals.dtype)
    for block in range(low, high):
        first, last = block * BLOCK, min(size, (block + 1) * BLOCK)
        before, after = start[first:last], reached[first:last]
        for i in range(last - first):
            error[i] = 0
        for j in range(len(weights)):
            if weights[j] == 0:
                continue
            part, weight = carray(at(table[STAGES + j], totals), size), number(h * weights[j])
            stage = part[first:last]
            for i in range(last - first):
                error[i] += weight * stage[i]
        total = number(0)
        for i in range(last - first):
            largest = max(abs(before[i]), abs(after[i]))
            # The last term is zero, or NaN where the step ended in infinity, relative to
            # which any error would be small.
            scale = absolute + relative * largest
            # As in torch, a scale of zero is the smallest there is: 0/0 is no error.
            ratio = error[i] / (tiny if scale < tiny else scale) + (after[i] - after[i])
            total += ratio * ratio
        totals[block] = total


@njit(nogil=True, cache=True, error_model="numpy")
def _sum_squares(
    table: Any, weights: Any, h: float, size: int, rtol: float, atol: float, totals: Any
) -> float:
    _squares(table, weights, h, size, rtol, atol, totals, 0, len(totals))
    return _total(totals)


@njit(nogil=True, cache=True, error_model="numpy")
def _total(totals: Any) -> float:
    total = 0.0
    for part in totals:
        total += part
    return total


class WeightedSums:
    """Sums over the stages of a step, all of the shape and dtype of one tensor, contiguous.

    Args: like: A contiguous tensor on the CPU, float32 or float64.
    """

    def __init__(self, like: Tensor) -> None:
        self._kind, self._size = (Tensor, like.dtype, True, like.shape), like.numel()
        self._blocks = -(-self._size // BLOCK)
        kind = np.float32 if like.dtype == torch.float32 else np.float64
        self._like = np.empty(0, kind)
        self._totals = np.empty(self._blocks, kind)
        self._table = np.zeros(STAGES + MOST, np.int64)
        self._y, self._stages = like, [like]  # references, since the table holds addresses only

    def begin(self, y: Tensor) -> bool:
        """Begin a step at y; return whether its shape and dtype match."""
        self._y = y
        self._stages.clear()
        if kind_of(y) == self._kind and y.is_contiguous():
            self._table[Y] = y.data_ptr()
            return True
        return False

    def take(self, stage: Tensor) -> bool:
        """Add the next stage; return whether its shape and dtype match."""
        stages = self._stages
        if kind_of(stage) == self._kind and stage.is_contiguous() and len(stages) < MOST:
            self._table[STAGES + len(stages)] = stage.data_ptr()
            stages.append(stage)
            return True
        return False

    @overload
    def add(self, h: float, weights: Any) -> Tensor: ...

    @overload
    def add(self, h: float, weights: Any, stage: Tensor) -> Tensor | None: ...

    def add(self, h: float, weights: Any, stage: Tensor | None = None) -> Tensor | None:
        """Return y + h Σ w_j k_j, a new tensor without a graph; all stages must match.

        Args:
            h: A number that multiplies all weights.
            weights: The w_j of the stages so far, an array of float64, not all zero.
            stage: The newest stage, which is added first; the result is None if it does not match.
        """
        if stage is not None:
            # As in `take`, inlined: this runs for every evaluation of a field.
            count = len(self._stages)
            if kind_of(stage) != self._kind or not stage.is_contiguous() or count == MOST:
                return None
            self._table[STAGES + count] = stage.data_ptr()
            self._stages.append(stage)
        out = torch.empty_like(self._y)
        self._table[OUT] = out.data_ptr()
        work = self._table, weights, h, self._size, self._like
        if len(weights) * self._size < ONE_THREAD:
            _add(*work, 0, self._blocks)
        else:
            over_columns(_add, BLOCK, self._blocks, *work)
        return out

    def error(
        self, y1: Tensor, h: float, weights: Any, rtol: float, atol: float, size: int | None = None
    ) -> float | None:
        """Return the root mean square of h Σ w_j k_j / (atol + rtol max(|y|, |y'|)).

        Args:
            y1: Value after the step; where it is not finite, neither is the result. The result is
                None if its shape or dtype does not match; all stages must match.
            h: A number that multiplies all weights.
            weights: The w_j, an array of float64.
            rtol: Relative tolerance.
            atol: Absolute tolerance.
            size: The number of leading elements that count; all by default.
        """
        if kind_of(y1) != self._kind or not y1.is_contiguous():
            return None
        self._table[OUT] = y1.data_ptr()
        counted = self._size if size is None else size
        totals = self._totals if size is None else self._totals[: -(-size // BLOCK)]
        work = self._table, weights, h, counted, rtol, atol, totals
        if len(weights) * counted < ONE_THREAD:
            total = _sum_squares(*work)
        else:
            over_columns(_squares, BLOCK, len(totals), *work)
            total = _total(totals)
        return math.sqrt(total / max(counted, 1))
