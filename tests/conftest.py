"""What all tests share: one thread, small held-out splits, and markers of whole folders."""

from pathlib import Path

import pytest
import torch

from undamped.lab.tasks.relations.trials import TrialTask
from undamped.lab.tasks.task import GeneratedTask

GENERATED = (GeneratedTask, TrialTask)
ALL_HELD_OUT = {task: task.held_out for task in GENERATED}
FEW_HELD_OUT = {"valid": 96, "test": 192}
SLOW_FOLDERS = [Path(__file__).parent / "lab" / name for name in ("benchmarks", "papers", "sweeps")]


def pytest_collection_modifyitems(items):
    """Mark the tests of folders that train many models as slow."""
    for item in items:
        if any(item.path.is_relative_to(folder) for folder in SLOW_FOLDERS):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def one_thread():
    """Tests run many small products, for which one thread is the fastest."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True, scope="session")
def few_held_out():
    """With batches of four, two thousand test sequences take far longer than a short training."""
    with pytest.MonkeyPatch.context() as patch:
        for task in GENERATED:
            patch.setattr(task, "held_out", FEW_HELD_OUT)
        yield


@pytest.fixture(scope="module")
def all_held_out(few_held_out):
    """As many as ever, for tests beside other processes, which know nothing of the few."""
    with pytest.MonkeyPatch.context() as patch:
        for task, count in ALL_HELD_OUT.items():
            patch.setattr(task, "held_out", count)
        yield
