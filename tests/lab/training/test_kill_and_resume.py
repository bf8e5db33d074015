"""A training that is killed, more than once, ends with the very same numbers."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from undamped.lab import cli
from undamped.lab.benchmarks.forks import forks
from undamped.lab.files import read_tensors
from undamped.lab.training.checkpoint import load_checkpoint
from undamped.lab.training.run import Run

pytestmark = pytest.mark.usefixtures("all_held_out")

STEPS = 160
WORDS = [
    "model.hidden_size=12",
    "model.num_layers=2",
    "model.dropout=0.3",
    f"train.steps={STEPS}",
    "train.batch_size=16",
    "train.validate_every=10",
    "train.optimizer=rmsprop",
    "train.schedule=plateau",
    "train.learning_rate=0.01",
    "seed=11",
    "--no-page",
]


def start(*words, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "undamped", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        **options,
    )


def finish(process):
    out, err = process.communicate()
    assert process.returncode == 0, err
    return out


def command(words):
    """Be a process of the command line, quietly."""
    torch.set_num_threads(1)
    sys.argv = ["undamped", *words]
    with Path(os.devnull).open("w") as nowhere:
        sys.stdout = sys.stderr = nowhere
        cli.main()


def begin(*words):
    """Start a command in a process that has imported everything already."""
    process = forks().Process(target=command, args=(words,))
    process.start()
    return process


def interrupt(process, folder, after, how):
    """Send a signal as soon as the run has come `after` steps far."""
    while process.is_alive():
        try:
            if load_checkpoint(folder / "checkpoints" / "last.safetensors").progress.step >= after:
                break
        except Exception:  # not there yet
            pass
        time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError):  # a fast machine may have been done
        os.kill(process.pid, how)
    process.join()


def same_run(one, two):
    assert one.settings["status"] == two.settings["status"] == "finished"
    for name in ("model.safetensors", "checkpoints/last.safetensors"):
        mine, theirs = read_tensors(one.path / name)[0], read_tensors(two.path / name)[0]
        assert mine.keys() == theirs.keys()
        for key, tensor in mine.items():
            assert torch.equal(tensor, theirs[key]), key
    times = ("seconds", "cpu_seconds", "peak_memory_bytes", "throughput")
    assert {k: v for k, v in one.result.items() if k not in times} == {
        k: v for k, v in two.result.items() if k not in times
    }
    for a, b in zip(one.metrics(), two.metrics(), strict=True):
        assert {**a, "seconds": 0} == {**b, "seconds": 0}


@pytest.mark.process
@pytest.mark.parametrize("task", ["adding", "characters"])
def test_killed_twice_and_interrupted_once(tmp_path, task):
    words = ["train", task, "lstm", *WORDS]
    if task == "adding":
        words += ["task.length=12"]
    else:
        text = tmp_path / "text.txt"
        text.write_text("the state is carried from batch to batch, and saved with it. " * 40)
        words += [f"task.file={text}", "task.length=25", "train.truncate=7"]
    finish(start(*words, "--out", str(tmp_path / "whole")))
    whole = Run.open(tmp_path / "whole" / f"{task}-lstm-1")

    folder = tmp_path / "broken" / f"{task}-lstm-1"
    interrupt(begin(*words, "--out", str(folder.parent)), folder, 30, signal.SIGKILL)
    assert Run.open(folder).settings["status"] == "running"
    interrupt(begin("resume", str(folder)), folder, 70, signal.SIGKILL)
    interrupt(begin("train", "--resume", str(folder)), folder, 110, signal.SIGINT)
    assert Run.open(folder).settings["status"] in ("interrupted", "finished")
    last = begin("resume", str(folder))
    last.join()
    assert last.exitcode == 0
    same_run(Run.open(folder), whole)


@pytest.mark.process
def test_resuming_a_finished_run_changes_nothing(tmp_path):
    finish(start("train", "adding", "gru", "task.length=6", "model.hidden_size=4", "train.steps=3",
                 "train.batch_size=4", "--out", str(tmp_path)))  # fmt: skip
    folder = tmp_path / "adding-gru-1"
    before = (folder / "run.json").read_text()
    said = json.loads(finish(start("resume", str(folder), "--json")))
    assert said["status"] == "finished"
    assert (folder / "run.json").read_text() == before
