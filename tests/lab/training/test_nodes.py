"""Training over nodes: two of two processes each, on this machine, one of which dies."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from undamped._base.errors import OptionError, RunError
from undamped.lab.benchmarks.forks import forks
from undamped.lab.cli.settings import read_settings
from undamped.lab.files import read_tensors
from undamped.lab.training import Run, fit, resume
from undamped.lab.training.checkpoint import load_checkpoint
from undamped.lab.training.devices import (
    check_launched,
    is_secondary_rank,
    is_silent,
    lost_process_error,
)
from undamped.lab.training.options import TrainOptions

WORDS = [
    "train", "adding", "rnn", "task.length=8", "model.hidden_size=4", "train.steps=240",
    "train.validate_every=40", "train.batch_size=16", "--no-page",
]  # fmt: skip
TOGETHER = ["train.nodes=2", "train.devices=2", "train.accelerator=cpu"]


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def nodes(*words):
    """Start two nodes of two processes each, as two machines would."""
    port = str(free_port())
    return [
        subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node",
             "2", "--node-rank", str(number), "--master-addr", "127.0.0.1", "--master-port", port,
             "-m", "undamped", *words],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )
        for number in range(2)
    ]  # fmt: skip


def pull_the_plug(node):
    """Kill a node with all its processes at once, as a machine without power would end."""
    parents = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            words = place.read_text().rpartition(")")[2].split()
            parents[int(place.parent.name)] = int(words[1])
    for process in [one for one, parent in parents.items() if parent == node.pid] + [node.pid]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def go_on(run):
    """Resume with four processes, which begin at once; return how they ended."""
    context, port = forks(), free_port()
    processes = [context.Process(target=resume_as, args=(n, port, run)) for n in range(4)]
    for one in processes:
        one.start()
    for one in processes:
        one.join()
    return [one.exitcode for one in processes]


def resume_as(number, port, run):
    """Be one of the four, as torchrun would have it."""
    os.environ.update(
        TORCHELASTIC_RUN_ID="x", WORLD_SIZE="4", LOCAL_WORLD_SIZE="2", RANK=str(number),
        LOCAL_RANK=str(number % 2), GROUP_RANK=str(number // 2), MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
    )  # fmt: skip
    torch.set_num_threads(1)
    resume(run, progress=False)


def step_of(run):
    try:
        return load_checkpoint(run / "checkpoints" / "last.safetensors").progress.step
    except Exception:  # not there yet
        return 0


@pytest.mark.process
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are found in /proc")
def test_two_nodes_lose_one_and_go_on_to_the_weights_of_one_process(tmp_path, all_held_out):
    settings = read_settings(WORDS[1:-1])
    alone = fit(
        "rnn",
        "adding",
        model_options=settings.model_options("rnn"),
        task_options=settings.task_options("adding"),
        train=settings.train_options(),
        out=tmp_path / "alone",
    )
    run = tmp_path / "together" / "adding-rnn-1"
    first, second = nodes(*WORDS, *TOGETHER, "--out", str(run.parent))
    while step_of(run) < 40 and first.poll() is None:
        time.sleep(0.05)
    pull_the_plug(second)
    said, _ = first.communicate()
    second.communicate()
    if Run.open(run).settings["status"] != "finished":  # a fast machine may have been done
        assert first.returncode != 0
        assert "another process of the training has ended" in said
        assert Run.open(run).settings["status"] == "interrupted"
    assert go_on(run) == [0, 0, 0, 0]
    assert [folder.name for folder in run.parent.iterdir()] == ["adding-rnn-1"]
    together = Run.open(run)
    assert together.result["steps"] == 240
    mine = read_tensors(run / "model.safetensors")[0]
    theirs = read_tensors(alone.path / "model.safetensors")[0]
    assert max(float((mine[name] - theirs[name]).abs().max()) for name in mine) < 1e-6


@pytest.fixture
def four_processes(monkeypatch):
    names = {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "4", "RANK": "1", "LOCAL_RANK": "1"}
    for name, value in names.items():
        monkeypatch.setenv(name, value)


@pytest.mark.process
def test_processes_that_were_started_have_to_be_those_that_are_wanted(four_processes, tmp_path):
    assert is_secondary_rank() and is_silent()
    check_launched(TrainOptions(nodes=2, devices=2))
    with pytest.raises(OptionError, match="4 processes were started"):
        fit("rnn", "adding", train={"steps": 2}, out=tmp_path)
    with pytest.raises(OptionError, match="needs a single process"):
        fit("auto", "adding", out=tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_lost_process_is_told_from_other_errors(four_processes, tmp_path):
    assert isinstance(
        lost_process_error(RuntimeError("Connection closed by peer [::1]:1"), tmp_path), RunError
    )
    assert lost_process_error(RuntimeError("shapes do not fit"), tmp_path) is None
    assert lost_process_error(ValueError("Connection closed"), tmp_path) is None


def test_the_script_of_a_job_is_one_process_and_a_step_is_many(monkeypatch):
    for name, value in {"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_JOB_NAME": "x"}.items():
        monkeypatch.setenv(name, value)
    check_launched(TrainOptions())
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    with pytest.raises(OptionError, match="4 processes were started"):
        check_launched(TrainOptions())
