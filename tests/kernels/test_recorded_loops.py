"""Loops of coupled cells from recordings: the path a GPU takes, with a recorder that needs none."""

import copy
import pickle
from contextlib import contextmanager

import pytest
import torch

import undamped
from undamped._base.registry import models
from undamped.kernels.recorded.recorder import CPU_RECORDER, recorder_for
from undamped.kernels.recorded.scan import RecordingWarning
from undamped.nn.recurrent import Recurrent

STEPS = 11  # two recordings of four, and three steps by themselves


class Repeated:
    """Work is done again, with the memory, the chunks and the order of a recording on a GPU."""

    steps = 4

    def record(self, work):
        work()
        return work


@contextmanager
def recorded_by(recorder):
    token = CPU_RECORDER.set(recorder)
    try:
        yield
    finally:
        CPU_RECORDER.reset(token)


def parts(value):
    return value if isinstance(value, tuple) else (value,)


@pytest.fixture
def no_kernels(monkeypatch):
    """As on a GPU, where the CPU's kernels cannot run."""
    monkeypatch.setattr("undamped.kernels.dispatch._supported", lambda tensors: False)


def results(net, x, lengths):
    net.zero_grad()
    leaf = x.clone().requires_grad_()
    output, state = net(leaf, None, lengths)
    (output.sin().sum() + sum(part.cos().sum() for part in parts(state))).backward()
    return [output, *parts(state), leaf.grad, *[p.grad for p in net.parameters()]]


def build(name, **options):
    torch.manual_seed(0)
    return undamped.build(name, input_size=3, hidden_size=4, **options).double()


def recorded(net):
    return [len(cell._recordings._loops) for cell in net.cells if hasattr(cell, "_recordings")]


COUPLED = [
    name
    for name in models
    if issubclass(models[name], Recurrent) and not models[name].cell_class.memory_plan.state_grows
]


WAYS = [(name, True) for name in COUPLED]
WAYS += [(name, False) for name in ("cornn", "exprnn", "momentum-lstm", "fastgrnn", "lem")]


@pytest.mark.parametrize(("name", "ragged"), WAYS)
def test_recordings_give_what_the_plain_loop_gives(name, ragged, no_kernels):
    net, x = build(name), torch.randn(STEPS, 2, 3, dtype=torch.float64)
    lengths = torch.tensor([STEPS, 6]) if ragged else None
    with undamped.plain_loops():
        expected = results(net, x, lengths)
    with recorded_by(Repeated()):
        for _ in range(2):  # the second time from what was recorded
            torch.testing.assert_close(results(net, x, lengths), expected)
    for count in recorded(net):
        assert count <= 1


@pytest.mark.parametrize("name", ["cornn", "exprnn", "momentum-lstm", "fastgrnn"])
def test_coupled_cells_are_recorded(name, no_kernels):
    net, x = build(name), torch.randn(STEPS, 2, 3, dtype=torch.float64)
    with recorded_by(Repeated()):
        assert recorder_for(x) is not None
        net(x)
        assert recorded(net) == [1]
        net(torch.cat([x, x], dim=1))
        assert recorded(net) == [2]  # another shape
        with undamped.plain_loops():
            assert recorder_for(x) is None
    assert recorder_for(x) is None
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert recorded(twin) == [0]


def test_a_recording_follows_parameters_and_numbers(no_kernels):
    net, x = build("cornn"), torch.randn(STEPS, 2, 3, dtype=torch.float64)

    def same():
        with undamped.plain_loops():
            expected = net(x)[0]
        with recorded_by(Repeated()):
            torch.testing.assert_close(net(x)[0], expected)

    same()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(0.5)
    same()
    net.cell(0).dt *= 0.5
    same()
    net.load_state_dict({k: v.clone() * 2 for k, v in net.state_dict().items()}, assign=True)
    same()


def test_what_cannot_be_recorded_runs_step_by_step_and_says_so(no_kernels):
    class Broken:
        steps = 4

        def record(self, work):
            raise RuntimeError("operation not permitted when stream is capturing")

    net, x = build("cornn"), torch.randn(STEPS, 2, 3, dtype=torch.float64)
    with undamped.plain_loops():
        expected = net(x)[0]
    with recorded_by(Broken()):
        with pytest.warns(RecordingWarning, match="one by one"):
            torch.testing.assert_close(net(x)[0], expected)
        torch.testing.assert_close(net(x)[0], expected)  # once is enough


def test_what_was_recorded_for_inference_trains_too(no_kernels):
    net, x = build("cornn"), torch.randn(STEPS, 2, 3, dtype=torch.float64)
    with undamped.plain_loops():
        expected = results(net, x, None)
    with recorded_by(Repeated()):
        with torch.inference_mode():
            torch.testing.assert_close(net(x)[0], expected[0].detach())
        torch.testing.assert_close(results(net, x, None), expected)
    assert recorded(net) == [1]


def test_two_passes_before_their_backward_passes(no_kernels):
    net = build("cornn")
    first, second = (torch.randn(STEPS, 2, 3, dtype=torch.float64) for _ in range(2))

    def gradient():
        net.zero_grad()
        outputs = [net(x)[0].sin().sum() for x in (first, second)]
        for output in outputs:
            output.backward()
        return [p.grad for p in net.parameters()]

    with undamped.plain_loops():
        expected = gradient()
    with recorded_by(Repeated()):
        torch.testing.assert_close(gradient(), expected)
