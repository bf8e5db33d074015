"""Training batches by index: split between processes, prepared in advance by threads."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
import torch

from undamped._base.contract import Batch
from undamped._base.errors import DataError
from undamped.lab.tasks import optional
from undamped.lab.tasks.task import Task

if TYPE_CHECKING:
    from lightning.fabric import Fabric

    from undamped.lab.training.loop import Training

DISK_WORKERS = 2


def batches(
    task: Task, size: int, first: int, rank: int, world_size: int, workers: int = 0
) -> Iterator[Batch]:
    """Yield the part of a process of every training batch, from an index on and without end.

    A batch is a function of its index, so threads that prepare batches do not change results.

    Args:
        task: The task.
        size: Sequences per batch over all processes.
        first: The index of the first batch.
        rank: The rank of this process.
        world_size: The number of processes.
        workers: Threads that prepare batches; 0 prepares each batch when it is requested.
    """

    def load(index: int) -> Batch:
        batch = task.batch("train", index, size)
        if world_size == 1:
            return batch
        sequences = optional.count_sequences(task, batch)
        if sequences < world_size:
            raise DataError(
                f"A batch has {sequences} sequences, too few for {world_size} processes. Use fewer "
                "processes (train.devices), or more data."
            )
        return optional.shard(task, batch, rank, world_size)

    return prefetch(load, count(first), workers)


def prefetch(load: Callable[[int], Batch], indices: Iterable[int], workers: int) -> Iterator[Batch]:
    """Yield batches in the order of their indices, prepared in advance by threads.

    There is one batch more in preparation than there are threads, so that none of them waits.

    Args:
        load: Returns the batch of an index.
        indices: The indices.
        workers: Number of threads; 0 prepares each batch when it is requested.
    """
    if not workers:
        yield from map(load, indices)
        return
    pool = ThreadPoolExecutor(workers, thread_name_prefix="batches")
    pending: deque[Future[Batch]] = deque()
    try:
        for index in indices:
            pending.append(pool.submit(load, index))
            if len(pending) > workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def disk_workers(task: Task) -> int:
    """Return the default number of threads: two for data on disk, none for data in memory."""
    return DISK_WORKERS if optional.stays_on_disk(task) else 0


def to_double(batch: Batch) -> Batch:
    """Convert the numbers of a batch to double precision, but not symbols, classes and masks."""
    return batch.map(lambda part: part.double() if part.is_floating_point() else part)


class Feed:
    """The training batches of one process, from the current step on and without end.

    Args:
        fabric: Device and processes.
        training: The training; its progress counts the data that was read.
    """

    def __init__(self, fabric: Fabric, training: Training) -> None:
        self._fabric, self._training = fabric, training
        task, options = training.task, training.options
        workers = disk_workers(task) if options.workers is None else options.workers
        self._index = training.progress.step * options.accumulate
        rank, world_size = fabric.global_rank, fabric.world_size
        self._batches = batches(task, options.batch_size, self._index, rank, world_size, workers)

    def __iter__(self) -> Feed:
        return self

    def __next__(self) -> Batch:
        """Return the next batch, and seed the random numbers of its step."""
        task, progress, start = self._training.task, self._training.progress, time.perf_counter()
        batch = next(self._batches)
        progress.waited += time.perf_counter() - start
        # The parts of other processes have the same size, up to a sequence.
        world_size = self._fabric.world_size
        progress.sequences += optional.count_sequences(task, batch) * world_size
        progress.samples += optional.count_samples(task, batch) * world_size
        self._seed()
        self._index += 1
        batch = batch.to(self._fabric.device)
        return to_double(batch) if self._training.options.precision == "64-true" else batch

    def _seed(self) -> None:
        """Seed by the seed of the run, the batch and the process, and by nothing else."""
        entropy = [self._training.seed, self._index, self._fabric.global_rank]
        seed = int(np.random.SeedSequence(entropy).generate_state(1)[0])
        # Without an accelerator, torch.manual_seed still records for each kind of them where it
        # was called from, which takes long compared with a small network.
        on_cpu = self._fabric.device.type == "cpu"
        (torch.default_generator if on_cpu else torch).manual_seed(seed)

    def close(self) -> None:
        """Stop the threads that prepare batches."""
        close = getattr(self._batches, "close", None)
        if close is not None:
            close()
