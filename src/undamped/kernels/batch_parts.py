"""Splitting a whole pass over threads: each takes a part of the batch through all chunks.

Sequences of a batch do not see each other, so a thread can take its share through products and
scans without waiting for the others; only the sums of weight gradients meet at the end. That is
better than splitting every product and every scan, which makes the cores wait for each other a
hundred times a pass. The threads of this pool compute their products alone (one thread each),
whatever torch is set to elsewhere.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

import torch

T = TypeVar("T")

GRAIN = 1 << 18  # numbers per layer below which one thread is as fast as two
ALIGNMENT = 4  # sequences; with an even number of steps, products see their rows in eights


@cache
def _pool(process: int, workers: int) -> ThreadPoolExecutor:
    # Keyed by process: threads do not survive a fork, so a child makes its own.
    return ThreadPoolExecutor(workers, thread_name_prefix=f"undamped-part-{process}")


def _alone(work: Callable[[], T], started: threading.Barrier) -> T:
    if torch.get_num_threads() != 1:
        torch.set_num_threads(1)  # holds for this thread; the caller puts the default right
    started.wait()
    with torch.no_grad():  # which is a setting of each thread
        return work()


def batch_parts(steps: int, batch: int, hidden: int) -> list[slice]:
    """Return the shares of the batch, one for each thread that is worth having."""
    wanted = min(torch.get_num_threads(), steps * batch * hidden // GRAIN, batch // ALIGNMENT)
    if wanted < 2:
        return [slice(0, batch)]
    width = -(-batch // (wanted * ALIGNMENT)) * ALIGNMENT
    return [slice(low, min(low + width, batch)) for low in range(0, batch, width)]


def in_parallel(works: list[Callable[[], T]]) -> list[T]:
    """Run each piece of work in a thread of its own, and return the results in order."""
    if len(works) == 1:
        return [works[0]()]
    threads = torch.get_num_threads()
    pool = _pool(os.getpid(), threads)
    started = threading.Barrier(len(works) + 1)
    others = [pool.submit(_alone, work, started) for work in works]
    started.wait()
    # A thread that limits itself also changes the default for threads to come: put it back.
    torch.set_num_threads(threads)
    return [other.result() for other in others]
