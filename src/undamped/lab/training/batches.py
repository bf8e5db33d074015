"""Batches by number, shared by several processes, prepared ahead by threads of their own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count

from undamped._base.contract import Batch
from undamped._base.errors import DataError, explain
from undamped.lab.tasks import optional
from undamped.lab.tasks.task import Task

DISK_WORKERS = 2


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
        if optional.count_sequences(task, batch) < world:
            raise DataError(
                explain(
                    "train.devices",
                    expected=f"a sequence of every batch for each of {world} processes",
                    got=f"{optional.count_sequences(task, batch)} in a batch",
                    remedy="Use fewer processes, or more data.",
                )
            )
        return optional.shard(task, batch, rank, world)

    return made(make, count(first), workers)


def made(make: Callable[[int], Batch], numbers: Iterable[int], workers: int) -> Iterator[Batch]:
    """Give batches in the order of their numbers, prepared ahead by threads.

    One batch more is under way than there are threads, so that none of them waits.

    Args:
        make: Makes a batch of its number.
        numbers: Which ones.
        workers: How many threads; none makes each batch when it is asked for.
    """
    if not workers:
        yield from map(make, numbers)
        return
    pool = ThreadPoolExecutor(workers, thread_name_prefix="batches")
    coming: deque[Future[Batch]] = deque()
    try:
        for number in numbers:
            coming.append(pool.submit(make, number))
            if len(coming) > workers:
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def disk_workers(task: Task) -> int:
    """Return how many threads prepare batches where nobody says: two if they lie on disk."""
    return DISK_WORKERS if optional.stays_on_disk(task) else 0


def to_double(batch: Batch) -> Batch:
    """Turn the numbers of a batch into double precision; symbols, classes and masks stay."""
    return batch.map(lambda part: part.double() if part.is_floating_point() else part)
