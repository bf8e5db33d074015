"""The work of both processes of tests/lab/training/test_two_processes.py.

They are started as torchrun would.

A test does the same alone and compares.
"""

import os
import signal
from typing import ClassVar

import torch

from undamped._base.contract import Batch
from undamped.lab.tasks import Chance, Characters
from undamped.lab.tasks.task import ArrayTask
from undamped.lab.training import fit, resume

TEXT = "a state goes on from batch to batch, and every process has its own. "


class Uneven(ArrayTask):
    """Running sums of sequences of unequal length, some of whose answers nobody knows."""

    input_size = output_size = 1
    readout = "every"
    answer = "number"
    metric = "mse"
    higher_is_better = False
    counts: ClassVar = {"train": 24, "valid": 8, "test": 8}
    chance = Chance(1.0, 1.0, "nothing")

    def sequences(self, split):
        return self.counts[split]

    def order(self, epoch, size):
        """Like numbers of sequences, whatever the size of a batch."""
        return super().order(epoch, 1)

    def take(self, split, index, generator):
        lengths = 2 + 5 * index % 9
        steps = torch.arange(int(lengths.max()))
        inputs = torch.sin(steps[:, None, None] + index[:, None].float())
        known = (steps[:, None] < lengths) & ((steps[:, None] + index) % 4 > 0)
        return Batch(inputs, inputs.cumsum(0), lengths=lengths, target_mask=known.unsqueeze(-1))


def uneven(out, **train):
    """Train in double precision, where sums in another order are the same to twelve digits."""
    train = {"steps": 4, "validate_every": 2, "precision": "64-true", **train}
    return fit("gru", Uneven(), model_options={"hidden_size": 4}, train=train, out=out,
               progress=False)  # fmt: skip


def carried(out, text, **train):
    """Read four places of a text, in twelve steps of two batches each: more than one pass."""
    return fit(
        "lstm",
        "characters",
        model_options={"hidden_size": 6},
        task_options={"file": str(text), "length": 10},
        train={"steps": 12, "validate_every": 4, "batch_size": 4, "accumulate": 2,
               **train},
        out=out,
        progress=False,
    )  # fmt: skip


def stopped(out, text, **train):
    """The same; one process is told to stop in the middle, and both go on later."""
    read, mine = Characters.batch, int(os.environ.get("RANK", 0))

    def batch(self, split, number, size):
        if split == "train" and number == 13 and mine == 1:
            os.kill(os.getpid(), signal.SIGUSR1)
        return read(self, split, number, size)

    Characters.batch = batch
    run = carried(out, text, **train)
    Characters.batch = read
    assert mine or run.settings["status"] == "interrupted"
    assert mine or run.settings["steps"] == 7
    return resume(run.path, progress=False)


def both(number, port, folder):
    """Be one of two processes that were started from outside."""
    os.environ.update(
        TORCHELASTIC_RUN_ID="test", WORLD_SIZE="2", LOCAL_WORLD_SIZE="2", RANK=str(number),
        LOCAL_RANK=str(number), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
    )  # fmt: skip
    torch.set_num_threads(1)
    train, text = {"devices": 2, "accelerator": "cpu"}, folder / "text.txt"
    uneven(folder / "uneven", batch_size=4, accumulate=3, **train)
    uneven(folder / "timed", batch_size=4, steps=None, seconds=0.2, **train)
    carried(folder / "carried", text, **train)
    stopped(folder / "stopped", text, **train)
