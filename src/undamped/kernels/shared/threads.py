"""Splitting work over threads: shards of the batch, or the columns of a single scan.

Sequences of a batch are independent, so a thread runs products and scans of its shard without
synchronisation; only weight gradients are summed at the end. Splitting every product and every scan
instead would synchronise the cores a hundred times per pass. A scan without products is split by
its columns, which are independent too.

The pool consists of Python threads and is created on first use; the kernels release the GIL.
Numba's threading layers are not used: they fail after a fork and when two Python threads call them.
The number of threads is torch's, which is 1 in a DataLoader worker. Each thread of the pool
computes its products single-threaded, whatever torch's setting.

Where one thread is as fast as two, the calling thread is single-threaded too (`single_threaded`):
the threads of BLAS would synchronise at every small product, and on a busy machine each
synchronisation waits milliseconds until all of them are scheduled.
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

ALIGNMENT = 4  # sequences; with an even number of steps, products have rows in multiples of eight
COLUMN_GRAIN = 1 << 17  # numbers of a single scan per thread
COLUMN_WIDTH = 16  # columns, so that no two threads write to one cache line
PRODUCT_GRAIN = 1 << 21  # multiplications of a product below which a second thread does not pay off
_SUBNORMAL = 5e-324


_pools: dict[int, ThreadPoolExecutor] = {}
_making = threading.Lock()


def _forget_threads() -> None:
    # Threads do not survive a fork, and locks of other threads stay locked: a child process starts
    # with new ones.
    global _making
    _making = threading.Lock()
    _pools.clear()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_forget_threads)


def _pool(workers: int) -> ThreadPoolExecutor:
    with _making:
        if workers not in _pools:
            _pools[workers] = _new_pool(workers)
        return _pools[workers]


def _new_pool(workers: int) -> ThreadPoolExecutor:
    """Start all threads, each single-threaded in its products.

    A thread that sets its limit also changes the default of later threads, which is restored when
    all have set it. Only this needs a barrier of all threads: a barrier at every call would
    deadlock when a pool has fewer threads than functions to run.
    """
    threads = available_threads()
    pool = ThreadPoolExecutor(workers, thread_name_prefix="undamped-part")
    barrier = threading.Barrier(workers + 1)

    def limit() -> None:
        torch.get_num_threads()  # a thread reads the default once: before it changes
        torch.set_num_threads(1)
        barrier.wait()

    for _ in range(workers):
        pool.submit(limit)
    barrier.wait()
    torch.set_num_threads(threads)
    limits = _thread_limits()
    if _single_threaded.threads is not None and limits is not None:  # still
        for limit_to in limits:
            limit_to(1)
    return pool


def _as_caller(work: Callable[[], T], inference: bool, flushes: bool) -> T:
    """Run a function in the grad and inference modes of the calling thread.

    Modes are per thread, and only a thread in inference mode may write to inference tensors.
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

    If only the last output of a sequence enters the loss, vanishing gradients become subnormal, and
    products of such numbers take ten times as long.
    """
    for dtype in ("float16", "float32", "float64", "longdouble"):
        float(np.finfo(np.dtype(dtype)).smallest_subnormal)  # NumPy warns if it queries this later
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
    """Run a function without mixed precision, as the threads of the pool do."""
    if not torch.is_autocast_enabled("cpu"):
        return work()
    with torch.autocast("cpu", enabled=False):
        return work()


def split_batch(steps: int, batch: int, hidden: int) -> list[slice]:
    """Return the shards of the batch, one per useful thread."""
    grain = current_limits().batch_grain
    count = min(available_threads(), steps * batch * hidden // grain, batch // ALIGNMENT)
    if count < 2:
        return [slice(0, batch)]
    width = -(-batch // (count * ALIGNMENT)) * ALIGNMENT
    return [slice(low, min(low + width, batch)) for low in range(0, batch, width)]


@contextmanager
def single_threaded() -> Iterator[None]:
    """Context manager under which the products of this thread alone are single-threaded.

    It does not use `torch.set_num_threads`, which threads that start in the meantime would inherit.
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
    """Torch's number of threads, while this thread is single-threaded."""

    threads: int | None = None


_single_threaded = _SingleThreaded()


def available_threads() -> int:
    """Return the number of threads: torch's setting."""
    return _single_threaded.threads or torch.get_num_threads()


def single_threaded_if_small(product: int) -> AbstractContextManager[None]:
    """Return `single_threaded` for products of few multiplications, nothing for large ones."""
    return single_threaded() if product < PRODUCT_GRAIN else nullcontext()


@cache
def _thread_limits() -> tuple[Callable[[int], Any], Callable[[int], int]] | None:
    """Return functions that set the OpenMP and MKL threads of the calling thread alone.

    None if torch was built with other libraries, whose threads are not changed.
    """
    for library in sorted((Path(torch.__file__).parent / "lib").glob("*torch_cpu.*")):
        try:
            # The lookup includes the libraries it links; PyDLL keeps the GIL.
            opened = ctypes.PyDLL(str(library))
            return opened.omp_set_num_threads, opened.MKL_Set_Num_Threads_Local
        except (OSError, AttributeError):
            continue
    return None


def run_in_parallel(works: list[Callable[[], T]], product: int = 0) -> list[T]:
    """Run functions in parallel, each in its own thread; return their results in order.

    Args:
        works: The functions.
        product: The multiplications of the largest product of one.

    No function may need gradients. All run in the caller's grad and inference mode, without
    autocast and without other settings of the caller's thread (a profiler, a dispatch mode, a
    default device).
    """
    if len(works) == 1:
        with single_threaded_if_small(product):
            return [_in_full_precision(works[0])]
    pool, inference = _pool(len(works)), torch.is_inference_mode_enabled()
    flushes = flushes_subnormals()
    futures = [pool.submit(_as_caller, work, inference, flushes) for work in works]
    wait(futures)  # all of them, so that none is still writing when one has failed
    return [future.result() for future in futures]


def over_columns(kernel: Callable[..., None], steps: int, columns: int, *arguments: Any) -> None:
    """Run `kernel(*arguments, low, high)` for ranges of columns that cover all of them.

    Args:
        kernel: A compiled function that releases the GIL.
        steps: Rows of the scan, to decide whether splitting pays off.
        columns: The number of columns.
        arguments: The arguments before the range.
    """
    parts = min(available_threads(), steps * columns // COLUMN_GRAIN, columns // COLUMN_WIDTH)
    if parts < 2:
        kernel(*arguments, 0, columns)
        return
    width = -(-columns // (parts * COLUMN_WIDTH)) * COLUMN_WIDTH
    starts = range(width, columns, width)
    pool = _pool(available_threads())
    call = partial(_call_flushing, kernel, flushes_subnormals(), *arguments)
    futures = [pool.submit(call, low, min(low + width, columns)) for low in starts]
    try:
        kernel(*arguments, 0, min(width, columns))
    finally:
        for future in futures:
            future.result()
