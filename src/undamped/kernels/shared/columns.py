"""Splitting a scan over threads.

Columns are independent, so each thread takes a range of them. The kernels release the GIL; the
pool is Python's own, made on first use for the process that asks. Numba's threading layers are
not used: they break when a process is forked or when two Python threads call at once. How many
threads is torch's setting, which is 1 inside a DataLoader worker.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import torch
from torch import Tensor

GRAIN = 16384  # elements below which a second thread costs more than it gives
ALIGNMENT = 16  # columns; no two threads write into one cache line


@cache
def _pool(process: int, workers: int) -> ThreadPoolExecutor:
    # Keyed by process: threads do not survive a fork, so a child makes its own.
    return ThreadPoolExecutor(workers, thread_name_prefix=f"undamped-{process}")


def over_columns(kernel: Callable[..., None], steps: int, columns: int, *arguments: Any) -> None:
    """Run `kernel(*arguments, low, high)` for ranges of columns that cover all of them.

    Args:
        kernel: A compiled function that releases the GIL.
        steps: Rows it walks, to judge whether splitting pays.
        columns: How many columns there are.
        arguments: What comes before the range.
    """
    parts = min(torch.get_num_threads(), steps * columns // GRAIN, columns // ALIGNMENT)
    if parts < 2:
        kernel(*arguments, 0, columns)
        return
    width = -(-columns // (parts * ALIGNMENT)) * ALIGNMENT
    starts = range(width, columns, width)
    pool = _pool(os.getpid(), torch.get_num_threads())
    others = [pool.submit(kernel, *arguments, low, min(low + width, columns)) for low in starts]
    try:
        kernel(*arguments, 0, min(width, columns))
    finally:
        for other in others:
            other.result()


def alive_columns(lengths: Tensor | None, start: int, stop: int, like: Tensor) -> Any:
    """Return how many of the steps from `start` to `stop` each column lives, as an array.

    `like` (time, batch, hidden) gives sizes and type: counts are kept as numbers of the type
    the kernel works in, since they share its array.
    """
    batch, hidden = like.shape[1:]
    if lengths is None:
        return like.new_zeros(batch * hidden).numpy()
    left = (lengths - start).clamp(0, stop - start).to(like.dtype)
    return left.repeat_interleave(hidden).numpy()
