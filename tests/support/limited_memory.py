"""Train on a file of 176 MB in a process that gets 80 MB.

Used by tests/lab/data/test_larger_than_memory.py.

A process of its own: what runs out of memory inside a library may end without a Python error.
"""

import json
import resource
import sys
from pathlib import Path

import numpy as np
import torch

from undamped._base.memory import memory_use, reset_peak_memory
from undamped.lab.data.recordings import series as recordings
from undamped.lab.data.recordings.read import read_recordings
from undamped.lab.tasks import SeriesTask, series, series_scores
from undamped.lab.training import fit

LIMIT = 80 << 20
STEPS = 11 << 20  # of two channels in double precision


def write(path, steps):
    file = np.lib.format.open_memmap(path, "w+", np.float64, (1, steps, 2))
    for start in range(0, steps, 1 << 18):
        piece = np.arange(start, min(steps, start + (1 << 18)))
        file[0, piece[0] : piece[-1] + 1] = np.sin(piece / 9)[:, None]
    return path


def train(path, out):
    task = SeriesTask(read_recordings(path, in_memory=1 << 20), horizon=4, window=64, stride=1280)
    return fit("rnn", task, model_options={"hidden_size": 4}, out=out, progress=False,
               train={"steps": 6, "batch_size": 16, "learning_rate": 0.01})  # fmt: skip


def reserved():
    """Return the bytes that count for the limit."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(dict(line.split(":", 1) for line in lines)["VmData"].split()[0])


if __name__ == "__main__":
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    series.IN_MEMORY = series_scores.IN_MEMORY = 1 << 20
    recordings._LET_GO = 1 << 22
    train(write(folder / "short.npy", 64_000), folder)  # libraries are loaded before the limit
    path = write(folder / "long.npy", STEPS)
    resource.setrlimit(resource.RLIMIT_DATA, (reserved() + LIMIT,) * 2)
    try:
        np.load(path)
        refused = False
    except MemoryError:
        refused = True
    before, _ = memory_use()
    reset_peak_memory()
    run = train(path, folder)
    told = {"refused": refused, "size": path.stat().st_size, "grown": memory_use()[1] - before}
    print(json.dumps({**told, **run.result["throughput"]}))
