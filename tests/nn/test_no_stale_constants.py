"""What a network remembers between calls is never out of date, however parameters were written."""

import copy

import numpy as np
import pytest
import torch
from tiers import few_fast
from torch import multiprocessing
from torch.func import functional_call, vmap
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import undamped
from undamped._base.registry import models
from undamped.nn import Recurrent
from undamped.nn.bases.constant_cache import ModuleCache, contents

NETWORKS = [
    name
    for name in models
    if isinstance(models[name], type) and issubclass(models[name], Recurrent)
]
# Numbers are written here that no optimiser of torch would leave.
pytestmark = pytest.mark.filterwarnings("ignore:W of full-capacity-urnn is not unitary")
every = pytest.mark.parametrize("name", few_fast(NETWORKS))
X = torch.randn(7, 2, 3, generator=torch.Generator().manual_seed(0))


def build(name, **options):
    torch.manual_seed(1)
    return undamped.build(name, input_size=3, hidden_size=4, num_layers=2, **options).eval()


def parts(state):
    return state if isinstance(state, tuple) else (state,)


@torch.no_grad()
def stepped(net):
    """All outputs, one sample at a time: what a remembered constant would spoil."""
    state, outputs = None, []
    for x_t in X:
        output, state = net.step(x_t, state)
        outputs.append(output)
    return torch.stack(outputs)


def truth(net):
    """The same from a network that cannot remember anything: gradients are on."""
    with torch.enable_grad():
        return copy.deepcopy(net)(X)[0].detach()


def fused_adam(net):
    optimiser = torch.optim.Adam(net.parameters(), lr=0.1, fused=True)
    with torch.enable_grad():
        (net(X)[0].square().sum() + undamped.nn.penalty(net)).backward()
    optimiser.step()
    optimiser.zero_grad()


def data_writes(net):
    for parameter in net.parameters():
        parameter.data.add_(0.1)


def averaged_weights(net):
    """Swap in an average of weights, as evaluations during training do."""
    for parameter in net.parameters():
        parameter.data, parameter.kept = 0.7 * parameter.data, parameter.data


def numpy_writes(net):
    for parameter in net.parameters():
        array = parameter.detach().numpy()
        array += np.float32(0.1)


def buffers(net):
    for module in net.modules():
        if hasattr(module, "base"):
            module.base.data.neg_()


WRITES = [fused_adam, data_writes, averaged_weights, numpy_writes, buffers]


@pytest.mark.slow
@every
def test_no_write_goes_unnoticed(name):
    net = build(name)
    for write in (None, *WRITES, *WRITES):
        if write is not None:
            write(net)
        expected = truth(net)
        output = f"{write} went unnoticed: {{}}".format
        torch.testing.assert_close(stepped(net), expected, rtol=1e-4, atol=1e-5, msg=output)
        with torch.no_grad():
            torch.testing.assert_close(net(X)[0], expected, rtol=1e-4, atol=1e-5, msg=output)


@every
def test_a_vector_behind_all_parameters_may_change_in_place(name):
    net = build(name)
    vector = parameters_to_vector(net.parameters()).detach().clone()
    vector_to_parameters(vector, net.parameters())
    before = stepped(net)
    vector.mul_(0.9).add_(0.05)
    after = stepped(net)
    torch.testing.assert_close(after, truth(net), rtol=1e-4, atol=1e-5)
    assert not torch.equal(before, after)


@every
@torch.no_grad()
def test_functional_calls_see_their_own_parameters(name):
    """The allocator gives every call the addresses of the call before."""
    net = build(name)
    for call in range(8):
        scale = 1 + 0.1 * call
        fresh = {n: scale * p for n, p in net.named_parameters()}
        result = functional_call(net, fresh, (X,))[0]
        del fresh
        other = copy.deepcopy(net)
        for parameter in other.parameters():
            parameter.mul_(scale)
        torch.testing.assert_close(result, truth(other), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["exprnn", "spectral", "goru", "urnn", "lipschitz"])
@torch.no_grad()
def test_many_networks_at_once(name):
    """A transform stacks the parameters of several networks: nothing of it is remembered."""
    net = build(name)
    stepped(net)
    stacked = {n: torch.stack([p, 1.1 * p]) for n, p in net.named_parameters()}
    result = vmap(lambda p: functional_call(net, p, (X,))[0])(stacked)
    for one, output in enumerate(result):
        separate = {n: p[one] for n, p in stacked.items()}
        torch.testing.assert_close(output, functional_call(net, separate, (X,))[0])


def _write_from_elsewhere(net):
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.1)


@pytest.mark.process
def test_another_process_may_write(name="exprnn"):
    net = build(name).share_memory()
    before = stepped(net)
    process = multiprocessing.get_context("spawn").Process(
        target=_write_from_elsewhere, args=(net,)
    )
    process.start()
    process.join(120)
    assert process.exitcode == 0
    after = stepped(net)
    assert not torch.equal(before, after)
    torch.testing.assert_close(after, truth(net), rtol=1e-4, atol=1e-5)


def test_numbers_count_as_well_as_tensors():
    net = build("spectral", margin=0.01)
    stepped(net)
    for cell in net.cells:
        cell.matrix_set.margin = 0.5
        for parameter in cell.free_parameters():
            parameter.data.add_(0.3)
    stepped(net)
    for cell in net.cells:
        cell.matrix_set.margin = 0.01
    torch.testing.assert_close(stepped(net), truth(net))


@torch.no_grad()
def test_remembering_compares_bytes():
    module, memory, made = torch.nn.Linear(2, 2), ModuleCache(), []
    module.scale = 1.0

    def make():
        made.append(module.weight.clone())
        return made[-1]

    assert memory.get(module, make) is memory.get(module, make)
    module.weight.data[0, 0] = 0.0
    memory.get(module, make)
    module.weight.data[0, 0] = -0.0  # equal to 0, and not the same
    memory.get(module, make)
    assert len(made) == 3
    module.weight.data[0, 0] = float("nan")  # the same, and not equal to itself
    assert memory.get(module, make) is memory.get(module, make)
    module.scale = 2.0
    memory.get(module, make)
    module.weight.data = module.weight.data.t()
    memory.get(module, make)
    assert memory.get(module, make) is made[-1]
    module.double()
    memory.get(module, make)
    assert len(made) == 7
    assert contents(module)[1][-1] == 2.0
    assert memory.get(module.to("meta"), lambda: 5) == 5
    assert copy.deepcopy(memory)._entry is None


@torch.no_grad()
def test_what_is_written_while_a_value_is_made_is_not_kept():
    module, memory = torch.nn.Linear(2, 2), ModuleCache()

    def make():
        before = module.weight.clone()
        module.weight.add_(1)
        return before

    first = memory.get(module, make)
    assert not torch.equal(memory.get(module, make), first)


@every
def test_streams_are_snapshots(name):
    net = build(name)
    output, final = net(X)
    stream, late = net.stream(batch=2), net.stream(batch=2)
    pushed = [stream.push(x_t) for x_t in X]
    torch.testing.assert_close(torch.stack(pushed), output.detach())
    state = stream.state
    for one, two in zip(
        *(s if isinstance(s, tuple) else (s,) for s in (state, final)), strict=True
    ):
        torch.testing.assert_close(one, two.detach())
    torch.testing.assert_close(net.stream(state).push(X[0]), net.step(X[0], final)[0].detach())
    data_writes(net)
    assert torch.equal(late.push(X[0]), pushed[0])
    single = net.stream()
    torch.testing.assert_close(single.push(X[0, 0]), net.step(X[0, 0])[0].detach())


@every
def test_what_a_stream_returns_may_be_written_over(name):
    net = build(name)
    stream = net.stream(batch=2)
    pushed = []
    for x_t in X:
        answer = stream.push(x_t)
        pushed.append(answer.clone())
        answer.fill_(9.0)
    torch.testing.assert_close(torch.stack(pushed), net(X)[0].detach())


@every
@torch.no_grad()
def test_small_integers_count_as_far_as_large_ones(name):
    net = build(name, bidirectional=True)
    x = torch.randn(300, 3, 3, generator=torch.Generator().manual_seed(0))
    small = (torch.int8,), (torch.uint8, torch.int16, torch.int32, torch.uint16)
    for longest, lengths, dtypes in zip((130, 300), (127, 255), small, strict=True):
        counts = torch.tensor([lengths, 1, 100])
        expected = net(x[:longest], None, counts)
        for dtype in dtypes:
            result = net(x[:longest], None, counts.to(dtype))
            assert torch.equal(result[0], expected[0])
            pairs = zip(parts(result[1]), parts(expected[1]), strict=True)
            assert all(torch.equal(a, b) for a, b in pairs)
