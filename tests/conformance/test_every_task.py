"""What every task must do: reproducible batches of its shape, finite scores, baselines."""

import pytest
from canonical_files import everything
from tiers import few_fast

from undamped._base.options import options_of
from undamped._base.registry import tasks
from undamped.testing import TASK_CHECKS

SMALL = {
    "copy": {"delay": 7},
    "transfer-copy": {"delay": 7, "test_delays": (3, 9)},
    "smnist": {"validation": 10},
    "psmnist": {"validation": 10},
    "noise-cifar": {"validation": 10, "length": 40},
    "mnist-images": {"validation": 10},
    "cifar10-images": {"validation": 10},
    "lorenz96": {"length": 40},
    "vitals": {"stride_seconds": 8.0},
    "links": {"trajectories": 8},
    "two-body": {"trajectories": 8},
    "three-body": {"trajectories": 8},
    "pendulum-pictures": {"films": 8},
    "hopper": {"series": 8, "points": 10, "observed": 5},
}
# A task with a required option reads a file of the user, which its own tests write.
TASKS = [name for name in tasks if not any(o.required for o in options_of(tasks[name]).values())]


@pytest.fixture(scope="module")
def tiny_data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    everything(folder)
    return folder


@pytest.mark.parametrize("name", few_fast(TASKS, fast=("copy", "adding", "digits", "rmts")))
def test_task(name, tiny_data, monkeypatch):
    monkeypatch.setenv("UNDAMPED_DATA", str(tiny_data))
    task = tasks.build(name, **SMALL.get(name, {}))
    for check in TASK_CHECKS.values():
        check(task)
    if task.input_kind == "pictures" and task.answer == "class":
        assert len(task.batch("train", 0, 5).expanded().inputs) == sum(task.rows)
        assert task.output_size == len(task.answer_names)
