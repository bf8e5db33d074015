"""A block around linear oscillators in one compiled pass: what the block gives part by part."""

import pytest
import torch

import undamped
from undamped._base.errors import OptionError
from undamped.kernels import kernel_limits
from undamped.kernels.linear import block as fused
from undamped.nn.bases.cell import Cell
from undamped.nn.linoss import LinearOscillators


@pytest.fixture
def small_tiles():
    """Tiles of 3 steps, groups of two sequences, and two threads for everything."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    with kernel_limits(tile_rows=2, tile_steps=3, tile_sequences=2, batch_grain=1):
        yield
    torch.set_num_threads(before)


@pytest.fixture
def passes(monkeypatch):
    """Count how often the compiled pass is taken."""
    calls, apply = [], fused._Block.apply
    monkeypatch.setattr(fused._Block, "apply", lambda *a: calls.append(1) or apply(*a))
    return calls


def build(name="linoss", dtype=torch.float64, **options):
    torch.manual_seed(0)
    choice = {"input_size": 3, "hidden_size": 5, "block": "layer-norm", **options}
    return undamped.build(name, **choice).to(dtype).train()


def drawn(net, dtype, steps=8, batch=5):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(steps, batch, 3, generator=generator, dtype=dtype)
    state = [torch.rand(p.shape[1:], generator=generator) for p in net.initial_state(batch)]
    return x, [part.to(dtype) for part in state]


def everything(net, x, state, lengths, told=(0, 1, 2, 3, 4)):
    """Outputs, last states, and gradients of all that was given and learnt."""
    net.zero_grad()
    leaves = [part.clone().requires_grad_() for part in (x, *state)]
    torch.manual_seed(3)  # for the masks
    output, final = net.cell(0).scan(leaves[0], tuple(leaves[1:]), lengths)
    results = (output, *final)
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(part.shape, generator=generator).to(part.dtype) for part in results]
    torch.stack([(results[i] * weights[i]).sum() for i in told]).sum().backward()
    grads = [p.grad for p in (*leaves, *net.parameters())]
    return [*(part.detach() for part in results), *grads]


def alike(found, wanted, tolerance):
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours is not None or theirs is None or not theirs.any()
        if ours is not None:
            theirs = torch.zeros_like(ours) if theirs is None else theirs
            scale = float(theirs.abs().max()) or 1.0
            torch.testing.assert_close(ours / scale, theirs / scale, atol=tolerance, rtol=0)


CASES = [
    ("linoss", {}),
    ("linoss", {"method": "imex", "dropout": 0.3}),
    ("linoss", {"oscillators": 3, "dropout": 0.3}),
    ("d-linoss", {}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), CASES)
@pytest.mark.parametrize("lengths", [None, [8, 0, 3, 7, 6]])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_compiled_pass_is_the_block(
    name, options, lengths, dtype, small_tiles, passes, monkeypatch
):
    net = build(name, dtype, **options)
    x, state = drawn(net, dtype)
    ends = None if lengths is None else torch.tensor(lengths)
    result = everything(net, x, state, ends)
    assert len(passes) == 1
    with monkeypatch.context() as patch:
        patch.setattr(LinearOscillators, "_block_scan", Cell._block_scan)
        expected = everything(net, x, state, ends)
    assert len(passes) == 1
    alike(result, expected, 1e-12 if dtype == torch.float64 else 2e-5)


@pytest.mark.parametrize("told", [(0,), (1,), (2,), (3, 4)])
def test_each_result_has_its_own_gradient(told, small_tiles, monkeypatch):
    net = build(dropout=0.3)
    x, state = drawn(net, torch.float64)
    result = everything(net, x, state, None, told)
    monkeypatch.setattr(LinearOscillators, "_block_scan", Cell._block_scan)
    alike(result, everything(net, x, state, None, told), 1e-12)


def test_gradients_are_those_of_differences(small_tiles):
    net = build(hidden_size=3)
    x, state = drawn(net, torch.float64, 5, 3)
    names, values = zip(*net.cell(0).named_parameters(), strict=True)
    leaves = [part.detach().clone().requires_grad_() for part in (x, *state[2:], *values)]

    def run(x, position, velocity, *values):
        named = dict(zip(names, values, strict=True))
        begin = (*state[:2], position, velocity)
        output, final = torch.func.functional_call(net.cell(0), named, (x, begin), strict=True)
        return output, *final

    net.cell(0).forward = net.cell(0).scan
    assert torch.autograd.gradcheck(run, leaves)


def test_without_gradients_nothing_is_kept_and_the_bits_are_the_same(small_tiles):
    net = build(dropout=0.3).eval()
    x, state = drawn(net, torch.float64)
    with_graph = net.cell(0).scan(x, tuple(state))[0]
    assert with_graph.grad_fn is not None
    for mode in (torch.no_grad(), torch.inference_mode()):
        with mode:
            assert torch.equal(net.cell(0).scan(x, tuple(state))[0], with_graph)


def test_gaps_in_memory_change_nothing(small_tiles):
    net = build()
    x, state = drawn(net, torch.float64)
    strided = x.transpose(0, 1).contiguous().transpose(0, 1)
    turned = [part.t().contiguous().t() for part in state]
    alike(everything(net, strided, turned, None), everything(net, x, state, None), 1e-14)


def test_one_sequence_for_two_threads_goes_part_by_part(small_tiles, passes):
    net = build()
    x, state = drawn(net, torch.float64, batch=1)
    everything(net, x, state, None)
    assert not passes


def test_a_pass_is_asked_twice_and_refuses_second_derivatives(small_tiles):
    net = build()
    x, _ = drawn(net, torch.float64)
    output = net(x)[0].square().sum()
    output.backward(retain_graph=True)
    once = [p.grad.clone() for p in net.parameters()]
    output.backward()
    alike([p.grad for p in net.parameters()], [2 * g for g in once], 1e-15)
    leaf = x.clone().requires_grad_()
    with pytest.raises(OptionError, match="plain_loops"):
        torch.autograd.grad(net(leaf)[0].sum(), leaf, create_graph=True)
