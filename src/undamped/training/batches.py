"""Batches by number, shared by several processes, prepared ahead by threads of their own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from undamped.contract import Batch
from undamped.errors import DataError, explain
from undamped.tasks.task import Task

DISK_WORKERS = 2
"""Threads that read recordings from disk, where nobody says how many."""


def batches(
    task: Task, size: int, first: int, share: tuple[int, int], workers: int = 0
) -> Iterator[Batch]:
    """Give the training batches from a number on, this process's share of each, without end.

    A batch is a function of its number, so threads that prepare some ahead change nothing but the
    time that is spent waiting.

    Args:
        task: The task.
        size: Sequences per batch over all processes.
        first: The number of the first batch.
        share: This process's number and how many there are.
        workers: How many threads prepare batches; none prepares each when it is asked for.
    """
    rank, world = share

    def make(number: int) -> Batch:
        batch = task.batch("train", number, size)
        if world == 1:
            return batch
        if task.sequences_in(batch) < world:
            raise DataError(
                explain(
                    "train.devices",
                    expected=f"a sequence of every batch for each of {world} processes",
                    got=f"{task.sequences_in(batch)} in a batch",
                    remedy="Use fewer processes, or more data.",
                )
            )
        return task.share(batch, rank, world)

    return _ahead(make, first, workers) if workers else _one_by_one(make, first)


def _one_by_one(make: Callable[[int], Batch], number: int) -> Iterator[Batch]:
    while True:
        yield make(number)
        number += 1


def _ahead(make: Callable[[int], Batch], number: int, workers: int) -> Iterator[Batch]:
    """Keep one batch more under way than there are threads, so that none of them waits."""
    pool = ThreadPoolExecutor(workers, thread_name_prefix="batches")
    coming: deque[Future[Batch]] = deque()
    try:
        while True:
            while len(coming) <= workers:
                coming.append(pool.submit(make, number))
                number += 1
            yield coming.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def to_double(batch: Batch) -> Batch:
    """Turn the numbers of a batch into double precision; symbols, classes and masks stay."""
    return batch.map(lambda part: part.double() if part.is_floating_point() else part)
