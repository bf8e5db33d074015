"""Two processes that share every batch learn what one process learns."""

import pytest
import torch

from undamped.files import read_tensors
from undamped.training import fit, resume

pytestmark = pytest.mark.usefixtures("all_held_out")


def trained(tmp_path, devices):
    return fit(
        "gru",
        "adding",
        model_options={"hidden_size": 6},
        task_options={"length": 8},
        train={"steps": 6, "batch_size": 16, "validate_every": 2, "devices": devices},
        out=tmp_path,
        progress=False,
    )


def test_data_parallel_on_two_processes(tmp_path):
    alone, together = trained(tmp_path, 1), trained(tmp_path, 2)
    mine = read_tensors(alone.path / "model.safetensors")[0]
    theirs = read_tensors(together.path / "model.safetensors")[0]
    for name, tensor in mine.items():
        torch.testing.assert_close(tensor, theirs[name], atol=1e-6, rtol=1e-5)
    assert abs(alone.result["test"]["mse"] - together.result["test"]["mse"]) < 1e-5
    for a, b in zip(alone.metrics(), together.metrics(), strict=True):
        assert abs(a["valid_mse"] - b["valid_mse"]) < 1e-5


def test_two_processes_go_on_as_one_does(tmp_path):
    """The moments of the optimiser come out of a checkpoint; no two processes may share them."""
    ended = []
    for devices in (1, 2):
        run = trained(tmp_path, devices)
        settings = run.settings
        run.update(status="interrupted", train={**settings["train"], "steps": 12})
        ended.append(read_tensors(resume(run.path, progress=False).checkpoint)[0])
    alone, together = ended
    assert alone.keys() == together.keys()
    for name, tensor in alone.items():
        torch.testing.assert_close(tensor, together[name], atol=1e-6, rtol=1e-5)
