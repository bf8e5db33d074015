"""Two processes that share every batch learn what one process learns."""

import shutil
import socket
import time
from pathlib import Path

import pytest
import torch
import two_at_once
from two_at_once import TEXT, carried, uneven

from undamped.lab.benchmarks.forks import forks
from undamped.lab.files import read_tensors
from undamped.lab.training import Run, fit, resume
from undamped.lab.training.checkpoint import load_checkpoint

pytestmark = [pytest.mark.usefixtures("all_held_out"), pytest.mark.process]


def weights(run):
    return read_tensors(run.path / "model.safetensors")[0]


def assert_near(mine, theirs, far):
    assert mine.keys() == theirs.keys()
    for name, tensor in mine.items():
        torch.testing.assert_close(tensor, theirs[name], atol=far, rtol=far)


def test_two_processes_that_training_starts_go_on_as_one_does(tmp_path):
    """The moments of the optimiser come out of a checkpoint; no two processes may share them."""
    alone = fit(
        "gru",
        "adding",
        model_options={"hidden_size": 6},
        task_options={"length": 8},
        train={"steps": 6, "batch_size": 16, "validate_every": 2},
        out=tmp_path,
        progress=False,
    )
    together = Run(Path(shutil.copytree(alone.path, tmp_path / "together")))
    for run, devices in ((alone, 1), (together, 2)):
        train = {**run.settings["train"], "steps": 12, "devices": devices}
        run.update(status="interrupted", train=train)
        resume(run.path, progress=False)
    assert_near(weights(alone), weights(together), 1e-6)
    assert_near(*(read_tensors(run.checkpoint)[0] for run in (alone, together)), 1e-6)
    for one, other in zip(alone.metrics(), together.metrics(), strict=True):
        assert one["valid_mse"] == pytest.approx(other["valid_mse"], abs=1e-5)
    assert together.result["test"]["mse"] == pytest.approx(alone.result["test"]["mse"], abs=1e-5)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """Where two processes that were started from outside have left their runs."""
    folder = tmp_path_factory.mktemp("both")
    (folder / "text.txt").write_text(TEXT * 12)
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    context = forks()
    processes = [
        context.Process(target=two_at_once.both, args=(number, port, folder)) for number in range(2)
    ]
    for process in processes:
        process.start()
    while all(process.is_alive() for process in processes):
        time.sleep(0.05)
    if any(process.exitcode for process in processes):  # the other would wait for it
        for process in processes:
            process.terminate()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    return folder


def test_batches_of_one_step_are_one_large_batch(tmp_path, both):
    """With unequal lengths and unknown answers, so that means of means would be something else."""
    large = uneven(tmp_path, batch_size=12)
    several = uneven(tmp_path, batch_size=4, accumulate=3)
    together = Run.open(both / "uneven" / "Uneven-gru-1")
    plain = uneven(tmp_path, batch_size=4)
    assert_near(weights(large), weights(several), 1e-12)
    assert_near(weights(large), weights(together), 1e-12)
    assert abs(weights(large)["head.weight"] - weights(plain)["head.weight"]).max() > 1e-6
    for one, other in zip(large.metrics(), several.metrics(), strict=True):
        same = {**one, "seconds": 0}
        assert same == pytest.approx({**other, "seconds": 0}, rel=1e-9)
    assert large.result["throughput"].keys() == several.result["throughput"].keys()


def test_every_process_carries_its_own_state(tmp_path, both):
    alone = carried(tmp_path, both / "text.txt")
    together = Run.open(both / "carried" / "characters-lstm-1")
    assert_near(weights(alone), weights(together), 1e-6)
    for one, other in zip(alone.metrics(), together.metrics(), strict=True):
        assert one["valid_loss"] == pytest.approx(other["valid_loss"], abs=1e-6)
    (mine,), theirs = (load_checkpoint(run.checkpoint).carried for run in (alone, together))
    assert len(theirs) == 2
    for whole, *parts in zip(mine, *theirs, strict=True):
        for number, part in enumerate(parts):  # (layers, places, units)
            torch.testing.assert_close(part, whole[..., number::2, :], atol=1e-6, rtol=1e-6)


def test_two_processes_stop_with_one_and_go_on_to_the_same_bits(both):
    whole, stopped = (
        Run.open(both / name / "characters-lstm-1") for name in ("carried", "stopped")
    )
    assert stopped.result["steps"] == 12
    for name in ("model.safetensors", "checkpoints/last.safetensors"):
        mine, theirs = (read_tensors(run.path / name)[0] for run in (whole, stopped))
        assert mine.keys() == theirs.keys()
        assert all(torch.equal(tensor, theirs[key]) for key, tensor in mine.items())


def test_two_processes_end_at_the_same_step_though_their_clocks_differ(both):
    timed = Run.open(both / "timed" / "Uneven-gru-1").settings
    assert timed["status"] == "finished" and timed["result"]["seconds"] >= 0.2
