"""The compiled loop of all elementwise recurrences: load a block of columns, step, store.

A column is one unit of one sequence: columns = batch × hidden, all independent. A kernel handles
the columns from `low` to `high` in blocks whose state stays in the first-level cache. A step
function advances a block by one time; its loop over the columns of the block vectorises.

Two things are unusual and deliberate. Constants, state and sums of a block are in one small array
at constant offsets: so the compiler has only a few pairs of arrays that might overlap, and
vectorises; with an array for each it does not. And a step may overwrite a sequence that it reads,
for the same reason and for half the memory traffic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba.extending import register_jitable

from undamped.kernels.shared.jit import KERNEL, njit
from undamped.kernels.shared.pointers import column_rows

BLOCK = 256
step_function: Any = register_jitable(
    nogil=True, error_model="numpy", fastmath={"contract"}, forceinline=True
)
"""Decorator for the functions `(block, rows, width)` that `column_scan` takes.

`block` holds BLOCK numbers for each constant, then for each part of the state, then for each sum.
`rows` has an array for every sequence, with the numbers of one time. Its loop runs over
`range(min(BLOCK, width))`: `width` is at most BLOCK, but the compiler does not know it, would
assume that the rows of a block overlap, and would not vectorise.
"""


def block_rows(count: int) -> tuple[int, ...]:
    """Return the offsets of the rows of a block."""
    return tuple(BLOCK * row for row in range(count))


def column_scan(
    step: Callable[..., None], sequences: int, *, outputs: int = 1, backwards: bool = False
) -> Any:
    """Return the compiled scan of a step; `columns.run_columns` calls it.

    Args:
        step: A `step_function` of a module.
        sequences: The number of sequences that it reads and writes.
        outputs: The number of them, the last ones, that are zero after the end of a sequence.
        backwards: Whether it runs from the last step to the first.
    """

    def scan(
        table: Any,  # (sequences, fields), see `columns.sequence_table`
        values: Any,  # (rows of a block, columns), changed in place
        remaining: Any,  # the remaining steps of equal parts of the columns
        steps: int,
        low: int,
        high: int,
    ) -> None:
        block = np.empty(values.shape[0] * BLOCK, values.dtype)
        part = values.shape[1] // remaining.shape[0]
        column = low
        while column < high:
            # A block ends where a sequence does, so that all of its columns end together.
            index = column // part
            width = min(BLOCK, min(high, (index + 1) * part) - column)
            live = remaining[index]
            for k in range(values.shape[0]):
                for j in range(width):
                    block[k * BLOCK + j] = values[k, column + j]
            for i in range(live):
                t = live - 1 - i if backwards else i
                step(block, column_rows(table, sequences, t, column, width, block), width)
            for t in range(live, steps):
                for k in range(sequences - outputs, sequences):
                    (row,) = column_rows(table[k:], 1, t, column, width, block)
                    for j in range(row.shape[0]):
                        row[j] = 0
            for k in range(values.shape[0]):
                for j in range(width):
                    values[k, column + j] = block[k * BLOCK + j]
            column += width

    # Named after its step, so that each has its own file in the cache.
    scan.__qualname__ = scan.__name__ = f"{step.__name__}_scan"
    return njit(**KERNEL)(scan)
