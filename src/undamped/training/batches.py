"""Batches by number, shared by several processes."""

from __future__ import annotations

from collections.abc import Iterator

from undamped.contract import Batch
from undamped.tasks.task import Task


def batches(task: Task, size: int, first: int, share: tuple[int, int]) -> Iterator[Batch]:
    """Give the training batches from a step on, this process's share of each, without end.

    Args:
        task: The task.
        size: Sequences per batch over all processes.
        first: The number of the first batch.
        share: This process's number and how many there are.
    """
    rank, world = share
    number = first
    while True:
        batch = task.batch("train", number, size)
        yield batch if world == 1 else task.share(batch, rank, world)
        number += 1


def to_double(batch: Batch) -> Batch:
    """Turn the numbers of a batch into double precision; symbols, classes and masks stay."""
    return batch.map(lambda part: part.double() if part.is_floating_point() else part)
