"""Splitting work over threads: shards of the batch, or the columns of a single scan.

Sequences of a batch do not see each other, so a thread can take its shard through products and
scans without waiting for the others; only the sums of weight gradients meet at the end. That is
better than splitting every product and every scan, which makes the cores wait for each other a
hundred times a pass. Where a scan stands alone its columns, which are independent too, are split.

The pool is Python's own, made on first use; the kernels release the GIL. Numba's threading layers
are not used: they break when a process is forked or when two Python threads call at once. How many
threads is torch's setting, which is 1 inside a DataLoader worker. The threads of the pool compute
their products alone (one thread each), whatever torch is set to elsewhere.

Where one thread is as fast as two, the calling thread computes its products alone too
(`single_threaded`): the library's threads would meet at every small product, and on a machine with
other things to do each meeting waits until all of them have had their turn, for milliseconds.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from undamped.kernels.shared.limits import current_limits

T = TypeVar("T")

ALIGNMENT = 4  # sequences; with an even number of steps, products see their rows in eights
COLUMN_GRAIN = 1 << 17  # numbers of a single scan, for each thread that is worth having
COLUMN_WIDTH = 16  # columns; no two threads write into one cache line
PRODUCT_GRAIN = 1 << 21  # multiplications of a product below which a second thread is not missed
_SUBNORMAL = 5e-324


_pools: dict[int, ThreadPoolExecutor] = {}
_making = threading.Lock()


def _forget_threads() -> None:
    # Threads do not survive a fork, nor does what another thread held: a child starts afresh.
    global _making
    _making = threading.Lock()
    _pools.clear()


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_forget_threads)


def _pool(workers: int) -> ThreadPoolExecutor:
    with _making:
        if workers not in _pools:
            _pools[workers] = _new_pool(workers)
        return _pools[workers]


def _new_pool(workers: int) -> ThreadPoolExecutor:
    """Start all threads at once, each limited to itself.

    A thread that limits itself also changes the default for threads to come, which is put back
    when all have done so. That needs all of them to meet, and here is the only place where they
    do: meeting at every call would stop for ever when a pool has fewer threads than there is work.
    """
    threads = worth_having()
    pool = ThreadPoolExecutor(workers, thread_name_prefix="undamped-part")
    barrier = threading.Barrier(workers + 1)

    def limit() -> None:
        torch.get_num_threads()  # a thread takes the default when first asked: now, not later
        torch.set_num_threads(1)
        barrier.wait()

    for _ in range(workers):
        pool.submit(limit)
    barrier.wait()
    torch.set_num_threads(threads)
    limits = _thread_limits()
    if (
        _single_threaded.threads is not None and limits is not None
    ):  # this thread stays single-threaded
        for limit_to in limits:
            limit_to(1)
    return pool


def _as_caller(work: Callable[[], T], inference: bool, flushes: bool) -> T:
    """Do the work of a shard in the modes of the calling thread: torch has modes per thread.

    What the caller makes in inference mode, no thread outside of it may write to.
    """
    _set_flushing(flushes)
    with torch.inference_mode() if inference else torch.no_grad():
        return work()


def flushes_subnormals() -> bool:
    """Return whether this thread rounds subnormal numbers to zero."""
    return _SUBNORMAL * 2.0 == 0.0


def _set_flushing(flushes: bool) -> None:
    if flushes != flushes_subnormals():
        torch.set_flush_denormal(flushes)


@contextmanager
def flush_subnormals() -> Iterator[None]:
    """Round subnormal numbers to zero in this thread and in the threads of kernels.

    Where only the last output of a sequence counts, gradients that vanish become subnormal on
    their way back, and a processor takes ten times as long for products of such numbers.
    """
    for dtype in ("float16", "float32", "float64", "longdouble"):
        float(np.finfo(np.dtype(dtype)).smallest_subnormal)  # NumPy warns if it first looks later
    before = flushes_subnormals()
    _set_flushing(True)
    try:
        yield
    finally:
        _set_flushing(before)


def _call_flushing(kernel: Callable[..., None], flushes: bool, *arguments: Any) -> None:
    _set_flushing(flushes)
    kernel(*arguments)


def _in_full_precision(work: Callable[[], T]) -> T:
    """Do the work of a shard without mixed precision, as the threads of the pool do."""
    if not torch.is_autocast_enabled("cpu"):
        return work()
    with torch.autocast("cpu", enabled=False):
        return work()


def split_batch(steps: int, batch: int, hidden: int) -> list[slice]:
    """Return the shards of the batch, one for each thread that is worth having."""
    grain = current_limits().batch_grain
    count = min(worth_having(), steps * batch * hidden // grain, batch // ALIGNMENT)
    if count < 2:
        return [slice(0, batch)]
    width = -(-batch // (count * ALIGNMENT)) * ALIGNMENT
    return [slice(low, min(low + width, batch)) for low in range(0, batch, width)]


@contextmanager
def single_threaded() -> Iterator[None]:
    """Let this thread, and no other, compute its products by itself while this lasts.

    Not by `torch.set_num_threads`: threads that begin in the meantime would keep to it for good.
    """
    threads, limits = torch.get_num_threads(), _thread_limits()
    if threads == 1 or limits is None:
        yield
        return
    set_openmp, set_products = limits
    set_openmp(1)
    before, _single_threaded.threads = set_products(1), threads
    try:
        yield
    finally:
        _single_threaded.threads = None
        set_products(before)
        set_openmp(threads)


class _SingleThreaded(threading.local):
    """How many threads torch is set to, while this thread is single-threaded."""

    threads: int | None = None


_single_threaded = _SingleThreaded()


def worth_having() -> int:
    """Return how many threads there may be: as many as torch is set to."""
    return _single_threaded.threads or torch.get_num_threads()


def single_threaded_if_small(product: int) -> AbstractContextManager[None]:
    """Return `single_threaded` for products of few multiplications, nothing for large ones."""
    return single_threaded() if product < PRODUCT_GRAIN else nullcontext()


@cache
def _thread_limits() -> tuple[Callable[[int], Any], Callable[[int], int]] | None:
    """Return what sets the threads of OpenMP and of MKL for the calling thread alone.

    None where torch was built with other libraries: then its threads are left as they are.
    """
    for library in sorted((Path(torch.__file__).parent / "lib").glob("*torch_cpu.*")):
        try:
            # Which looks into the libraries behind it, too; the interpreter need not be let go.
            opened = ctypes.PyDLL(str(library))
            return opened.omp_set_num_threads, opened.MKL_Set_Num_Threads_Local
        except (OSError, AttributeError):
            continue
    return None


def run_in_parallel(works: list[Callable[[], T]], product: int = 0) -> list[T]:
    """Run functions in parallel, each in its own thread; return their results in order.

    Args:
        works: The functions.
        product: How many multiplications the largest product of one makes.

    No function may need gradients. Grad and inference mode are the caller's in all of them;
    autocast is off, and what is set up for the caller's thread alone (a profiler, a mode of
    dispatch, a default device) is not seen by the others.
    """
    if len(works) == 1:
        with single_threaded_if_small(product):
            return [_in_full_precision(works[0])]
    pool, inference = _pool(len(works)), torch.is_inference_mode_enabled()
    flushes = flushes_subnormals()
    futures = [pool.submit(_as_caller, work, inference, flushes) for work in works]
    wait(futures)  # all of them, so that none still writes when one has failed
    return [future.result() for future in futures]


def over_columns(kernel: Callable[..., None], steps: int, columns: int, *arguments: Any) -> None:
    """Run `kernel(*arguments, low, high)` for ranges of columns that cover all of them.

    Args:
        kernel: A compiled function that releases the GIL.
        steps: Rows it goes through, to judge whether splitting pays.
        columns: How many columns there are.
        arguments: What comes before the range.
    """
    parts = min(worth_having(), steps * columns // COLUMN_GRAIN, columns // COLUMN_WIDTH)
    if parts < 2:
        kernel(*arguments, 0, columns)
        return
    width = -(-columns // (parts * COLUMN_WIDTH)) * COLUMN_WIDTH
    starts = range(width, columns, width)
    pool = _pool(worth_having())
    call = partial(_call_flushing, kernel, flushes_subnormals(), *arguments)
    futures = [pool.submit(call, low, min(low + width, columns)) for low in starts]
    try:
        kernel(*arguments, 0, min(width, columns))
    finally:
        for future in futures:
            future.result()
