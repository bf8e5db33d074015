"""Kernels beside threads and forked workers."""

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import undamped
from undamped._base.registry import models
from undamped.kernels import kernel_limits
from undamped.kernels.shared import threads
from undamped.kernels.shared.threads import run_in_parallel
from undamped.nn.recurrent import Recurrent

NETWORKS = [
    name
    for name in models
    if isinstance(models[name], type) and issubclass(models[name], Recurrent)
]


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def gradients(net, x):
    output, _ = net(x)
    return [output.detach(), *torch.autograd.grad((output**2).sum(), net.parameters())]


def test_splitting_columns_changes_nothing(two_threads):
    torch.manual_seed(0)
    net = undamped.nn.UnICORNN(3, 40, 2)
    x = torch.randn(100, 33, 3)
    both = gradients(net, x)
    torch.set_num_threads(1)
    one = gradients(net, x)
    for a, b in zip(both, one, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5 * float(b.abs().max()))


def test_several_python_threads_at_once(two_threads):
    torch.manual_seed(0)
    net = undamped.nn.UnICORNN(3, 32, 2)
    inputs = [torch.randn(80, 20, 3) for _ in range(6)]
    expected = [net(x)[0].detach() for x in inputs]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            result = list(pool.map(lambda x: gradients(net, x)[0], inputs))
            assert all(torch.equal(a, b) for a, b in zip(result, expected, strict=True))


@pytest.mark.skipif(threads._thread_limits() is None, reason="torch has other libraries here")
def test_a_thread_that_keeps_to_itself_leaves_others_as_they_are(two_threads):
    with threads.single_threaded():
        assert torch.get_num_threads() == 1 and threads.available_threads() == 2
        with ThreadPoolExecutor(1) as pool:  # a thread that begins in the meantime
            assert pool.submit(torch.get_num_threads).result() == 2
        with threads.single_threaded():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2 == threads.available_threads()
    with pytest.raises(ZeroDivisionError), threads.single_threaded():
        _ = 1 / 0
    assert torch.get_num_threads() == 2


@pytest.mark.skipif(threads._thread_limits() is None, reason="torch has other libraries here")
def test_a_pool_that_is_made_by_a_thread_alone_leaves_everything_as_it_was(
    two_threads, monkeypatch
):
    monkeypatch.setattr(threads, "_pools", {})
    with threads.single_threaded():
        inside = threads.run_in_parallel([torch.get_num_threads] * 2)
        told = [torch.get_num_threads(), threads.available_threads()]
    assert inside == [1, 1] and told == [1, 2] and torch.get_num_threads() == 2
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(torch.get_num_threads).result() == 2
    for made in threads._pools.values():
        made.shutdown()


@pytest.mark.parametrize("name", ["lstm", "exprnn", "unicornn", "indrnn", "memrnn"])
def test_small_passes_leave_the_threads_of_torch_as_they_were(two_threads, name):
    net = undamped.build(name, input_size=3, hidden_size=8)
    net(torch.randn(10, 2, 3))[0].sum().backward()
    with torch.no_grad():
        net(torch.randn(10, 2, 3))
    assert torch.get_num_threads() == 2


ALONE = """
import os, numba, scipy.linalg, torch, undamped  # which bring threads of their own
torch.set_num_threads(1)
names = "exprnn", "urnn", "full-capacity-urnn", "lstm"
nets = [undamped.build(name, input_size=3, hidden_size=8) for name in names]
torch.set_num_threads(2)
def threads():
    return len(os.listdir("/proc/self/task"))
before = threads()
for name, net in zip(names, nets):
    net(torch.randn(10, 2, 3))[0].sum().backward()
    torch.optim.SGD(net.parameters(), 0.1).step()
    assert threads() == before, name
torch.randn(999, 999) @ torch.randn(999, 999)
assert threads() > before, "large products wake some"
"""


@pytest.mark.process
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="the system does not count")
@pytest.mark.skipif(threads._thread_limits() is None, reason="torch has other libraries here")
def test_small_networks_wake_no_other_thread():
    """Matrices, passes and constrained steps, in a process where nobody has woken any yet."""
    subprocess.run([sys.executable, "-W", "ignore", "-c", ALONE], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("size", [3, 200])
def test_matrices_on_one_thread_have_the_gradients_of_autograd(two_threads, size):
    """Those of small networks have a graph of their own; one may go back through it twice."""
    torch.manual_seed(0)
    net = undamped.nn.nnRNN(2, size, dtype=torch.float64)
    x = torch.randn(4, 2, 2, dtype=torch.float64)
    loss = net(x)[0].square().sum()
    expected = [p for p in net.parameters() if p.requires_grad]
    once = torch.autograd.grad(loss, expected, retain_graph=True)
    repeated = torch.autograd.grad(loss, expected)
    with undamped.plain_loops():
        plain = torch.autograd.grad(net(x)[0].square().sum(), expected)
    for a, b, c in zip(once, repeated, plain, strict=True):
        assert torch.equal(a, b)
        torch.testing.assert_close(a, c)
    for parameter in net.parameters():
        parameter.requires_grad_(False)
    assert not net(x)[0].requires_grad


def test_work_of_several_callers_waits_its_turn(two_threads):
    """More work than threads, from callers whose pieces come in between each other."""
    busy = threading.Event()

    def first():
        busy.set()
        return torch.get_num_threads()

    with ThreadPoolExecutor(8) as callers:
        result = list(callers.map(lambda _: run_in_parallel([first, busy.wait]), range(64)))
    assert all(count == 1 and waited for count, waited in result)
    assert torch.get_num_threads() == 2


def test_shares_are_done_whatever_torchs_threads_are(two_threads):
    torch.set_num_threads(1)
    assert run_in_parallel([lambda: 1, lambda: 2, lambda: 3]) == [1, 2, 3]
    assert torch.get_num_threads() == 1


def test_an_error_in_one_share_comes_back_after_all_have_ended(two_threads):
    ended = []

    def fails():
        raise ValueError("this share")

    def slow():
        time.sleep(0.1)
        ended.append(True)

    with pytest.raises(ValueError, match="this share"):
        run_in_parallel([fails, slow])
    assert ended == [True]


class Features(Dataset):
    """Items that are made by a network inside a worker."""

    def __init__(self, net):
        self.net = net

    def __len__(self):
        return 4

    def __getitem__(self, index):
        x = torch.full((100, 20, 3), float(index))
        return gradients(self.net, x)[0]


@pytest.mark.process
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_beside_data_loader_workers(two_threads):
    torch.manual_seed(0)
    items = Features(undamped.nn.UnICORNN(3, 32, 1))
    expected = [items[i] for i in range(4)]  # with two threads, before the fork
    loader = DataLoader(items, batch_size=None, num_workers=2)
    for result, reference in zip(loader, expected, strict=True):
        torch.testing.assert_close(result, reference)


class Scans(Dataset):
    """Items made by a kernel over two threads of a forked process, without any torch in it."""

    def __len__(self):
        return 2

    def __getitem__(self, index):
        torch.set_num_threads(2)
        return torch.from_numpy(scan())


def scan():
    from undamped.kernels.shared.columns import Columns

    columns, constants = Columns(), np.ones((4, 640))
    constants[1] = 0.1
    arrays = (np.ones((100, 640)), constants, np.zeros((2, 640)))
    rows, constants, state = map(torch.from_numpy, arrays)
    columns.run(columns.kernels("unicornn")["forward"], [rows], constants, state)
    return rows.numpy()


@pytest.mark.process
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_the_pool_is_made_anew_after_a_fork(two_threads):
    expected = torch.from_numpy(scan())
    for result in DataLoader(Scans(), batch_size=None, num_workers=1, timeout=60):
        assert torch.equal(result, expected)


@pytest.mark.process
def test_importing_the_library_does_not_load_numba():
    code = "import sys, undamped; sys.exit('numba' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("gradient", ["reversible", "checkpoint", "stored"])
@pytest.mark.parametrize("every", [True, False])
def test_parts_of_the_batch_give_what_the_whole_gives(gradient, every):
    """Two threads, each with half of the batch: the same outputs, states and gradients."""
    torch.manual_seed(0)
    net = undamped.nn.ResidualUnICORNN(
        3, 128, num_layers=3, skip=2, dropout=0.3, gradient=gradient, dt=0.2
    ).double()
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(70, 72, 3, generator=generator, dtype=torch.float64)
    lengths = torch.randint(1, 71, (72,), generator=generator)
    state = tuple(torch.randn(3, 72, 128, generator=generator).double() for _ in range(2))

    def run(count):
        torch.set_num_threads(count)
        assert len(threads.split_batch(70, 72, 128)) == count
        torch.manual_seed(2)
        net.zero_grad()
        given = x.clone().requires_grad_(True)
        start = tuple(part.clone().requires_grad_(True) for part in state)
        output, final = (net if every else net.last)(given, start, lengths)
        (output.square().sum() + final[1].sum()).backward()
        result = [output, *final, given.grad, *(part.grad for part in start)]
        return [t.detach().clone() for t in [*result, *(p.grad for p in net.parameters())]]

    for separate, together in zip(run(1), run(2), strict=True):
        torch.testing.assert_close(together, separate, atol=1e-11, rtol=1e-9)
    assert torch.get_num_threads() == 2, "torch's own setting is left alone"


def test_an_error_in_a_part_reaches_the_caller():
    torch.set_num_threads(2)

    def fail():
        raise ValueError("in a thread")

    with pytest.raises(ValueError, match="in a thread"):
        run_in_parallel([lambda: 1, fail])
    assert run_in_parallel([lambda: 1, lambda: 2]) == [1, 2]


def modes():
    return torch.is_inference_mode_enabled(), torch.is_grad_enabled(), torch.is_autocast_enabled()


def test_shares_run_in_the_modes_of_the_caller(two_threads):
    """torch keeps its modes for each thread; gradients and autocast are off in all of them."""
    for count in (1, 2):
        with torch.inference_mode():
            assert run_in_parallel([modes] * count) == [(True, False, False)] * count
            made = run_in_parallel([lambda: torch.zeros(1)] * count)
            assert all(part.is_inference() for part in made)
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            assert run_in_parallel([modes] * count) == [(False, False, False)] * count


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_inference_mode_with_shares_of_the_batch(name, two_threads):
    """Threads write into what the caller made in inference mode."""
    torch.manual_seed(0)
    net = undamped.build(name, input_size=3, hidden_size=8)
    x, lengths = torch.randn(20, 12, 3), torch.arange(12) + 5
    with torch.no_grad(), kernel_limits(batch_grain=1):
        expected = net(x)[0], net.last(x, None, lengths)[0]
    with torch.inference_mode(), kernel_limits(batch_grain=1):
        result = net(x)[0], net.last(x, None, lengths)[0]
    assert all(torch.equal(a, b) for a, b in zip(result, expected, strict=True))


@pytest.mark.slow
def test_a_default_device_elsewhere_is_nothing_to_the_kernels(two_threads):
    for name in ("unicornn", "indrnn", "lstm", "urnn"):
        net = undamped.build(name, input_size=3, hidden_size=8)
        x, lengths = torch.randn(20, 12, 3), torch.arange(12) + 5
        with kernel_limits(batch_grain=1):
            expected = net(x, None, lengths)[0]
        with torch.device("meta"), kernel_limits(batch_grain=1):
            result, _ = net(x, None, lengths)
            result.sum().backward()
        assert torch.equal(result, expected)


@pytest.mark.slow
def test_an_estimator_predicts_with_several_threads(two_threads):
    generator = np.random.default_rng(0)
    X = generator.normal(size=(70, 150, 1)).astype(np.float32)
    y = (X[:, 0, 0] > 0).astype(int)
    estimator = undamped.SequenceClassifier("unicornn", steps=2, hidden_size=128, random_state=0)
    estimator.fit(X[:50], y[:50])
    for batch in (1, 7, 33, 70):
        assert estimator.predict(X[:batch]).shape == (batch,)


def test_threads_of_kernels_flush_subnormal_numbers_with_their_caller(two_threads):
    def halved():
        return [float(torch.tensor([1.5e-38]) * 0.5), threads.flushes_subnormals()]

    with threads.flush_subnormals():
        assert threads.run_in_parallel([halved, halved]) == [[0.0, True]] * 2
    number = float(torch.tensor([1.5e-38]) * 0.5)
    assert number > 0 and not threads.flushes_subnormals()
    assert threads.run_in_parallel([halved, halved]) == [[number, False]] * 2


def test_columns_flush_subnormal_numbers_with_their_caller(two_threads):
    def double(values, low, high):
        values[low:high] *= 0.5

    values = np.full(1 << 19, 1.5e-38, np.float32)
    with threads.flush_subnormals():
        threads.over_columns(double, 1, len(values), values)
    assert not values.any()
