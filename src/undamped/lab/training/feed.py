"""What a training reads: batches on its device, counted, and the time spent waiting for them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import torch

from undamped._base.contract import Batch
from undamped.lab.training.batches import batches, disk_workers, to_double

if TYPE_CHECKING:
    from lightning.fabric import Fabric

    from undamped.lab.training.loop import Training


class Feed:
    """Gives the batches of one process, from where its training stands, without end.

    Args:
        fabric: Device and processes.
        training: The training; its progress counts what was read.
    """

    def __init__(self, fabric: Fabric, training: Training) -> None:
        self._fabric, self._training = fabric, training
        task, options = training.task, training.options
        workers = options.workers
        if workers is None:
            workers = disk_workers(task)
        self._number = training.progress.step * options.accumulate
        share = (fabric.global_rank, fabric.world_size)
        self._batches = batches(task, options.batch_size, self._number, share, workers)

    def __iter__(self) -> Feed:
        return self

    def __next__(self) -> Batch:
        """Return the next batch, with random numbers of its own for whatever is made of it."""
        progress, start = self._training.progress, time.perf_counter()
        batch = next(self._batches)
        progress.waited += time.perf_counter() - start
        # Other processes have shares of the same size, up to a sequence.
        progress.sequences += self._training.task.sequences_in(batch) * self._fabric.world_size
        progress.samples += self._training.task.samples_in(batch) * self._fabric.world_size
        self._seed()
        self._number += 1
        batch = batch.to(self._fabric.device)
        return to_double(batch) if self._training.options.precision == "64-true" else batch

    def _seed(self) -> None:
        """Let whatever is random depend on the seed, the batch and the process alone."""
        entropy = [self._training.seed, self._number, self._fabric.global_rank]
        seed = int(np.random.SeedSequence(entropy).generate_state(1)[0])
        # Without an accelerator, torch.manual_seed still writes down for each kind of them where it
        # was called from, which a small network notices.
        on_cpu = self._fabric.device.type == "cpu"
        (torch.default_generator if on_cpu else torch).manual_seed(seed)

    def close(self) -> None:
        """Let the threads that prepare batches end."""
        close = getattr(self._batches, "close", None)
        if close is not None:
            close()
