"""The block around a layer of independent units, and networks that take a sequence in chunks."""

import contextlib
import copy

import numpy as np
import pytest
import torch
from family_oracles import ORACLES, array

import undamped
from oracles import sigmoid
from undamped._base.errors import OptionError
from undamped._base.registry import models
from undamped.kernels import kernel_limits
from undamped.kernels.linear.block_parts import gated_unit
from undamped.nn import in_chunks

TAKE_BLOCKS = [
    name
    for name in models
    if getattr(getattr(models[name], "cell_class", None), "independent_units", False)
]


def build(name, block="layer-norm", **options):
    torch.manual_seed(7)
    choice = {"input_size": 3, "hidden_size": 4, "num_layers": 2, "block": block, **options}
    return undamped.build(name, **choice).double().eval()


def inputs(time=8, batch=3, size=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(time, batch, size, generator=generator, dtype=torch.float64)


def parts(state):
    return (state,) if isinstance(state, torch.Tensor) else state


def same(a, b, tolerance=1e-11):
    for left, right in zip(parts(a), parts(b), strict=True):
        torch.testing.assert_close(left, right, atol=tolerance, rtol=tolerance)


def test_these_networks_take_blocks():
    assert set(TAKE_BLOCKS) == {
        *("d-linoss", "indrnn", "linoss", "lru", "mingru", "minlstm", "s4d", "sru", "unicornn"),
    }
    with pytest.raises(LookupError, match="block"):
        undamped.build("lstm", input_size=3, hidden_size=4, block="layer-norm")
    with pytest.raises(OptionError, match=r"gradient cannot be"):
        undamped.nn.UnICORNN(3, 4, block="layer-norm", gradient="stored")


def block_oracle(e, block, layer, statistics):
    """norm → layer → gelu → W₁ g ⊙ σ(W₂ g) → + e, in NumPy."""
    mean, variance = statistics(e)
    r = layer((e - mean) / np.sqrt(variance + 1e-5), block.cell)
    g = 0.5 * r * (1 + np.tanh(np.sqrt(2 / np.pi) * (r + 0.044715 * r**3)))
    W, b = array(block.gate.weight), array(block.gate.bias)
    n = len(b) // 2
    return e + (g @ W[:n].T + b[:n]) * sigmoid(g @ W[n:].T + b[n:])


@pytest.mark.slow
@pytest.mark.parametrize("masked", [False, True])
def test_the_gated_unit_is_the_same_in_one_pass_and_by_torch(masked):
    torch.manual_seed(0)
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 5e-5)):
        r, e = torch.randn(2, 9, 5, 7, dtype=dtype)
        r, weight, bias = 3 * r[..., :6], torch.randn(14, 6, dtype=dtype), torch.randn(14).to(dtype)
        masks = (torch.rand(1, 5, 6, dtype=dtype), torch.rand(1, 5, 7, dtype=dtype))
        masks = masks if masked else ()
        leaves = [t.clone().requires_grad_() for t in (r, e, weight, bias)]
        result = []
        for context in (contextlib.nullcontext(), undamped.plain_loops()):
            with context:
                out = gated_unit(*leaves, masks)
            weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
            result.append([out, *torch.autograd.grad(out, leaves, weights)])
        for ours, theirs in zip(*result, strict=True):
            scale = float(theirs.detach().abs().max())
            torch.testing.assert_close(ours / scale, theirs / scale, atol=tolerance, rtol=0)


def gelu_and_slope(r, dtype, compiled):
    """Of r, through a gate that is open: the unit is then e + gelu(r)."""
    r = r.to(dtype)[:, None].requires_grad_()
    weight, bias = torch.tensor([[1.0], [0.0]], dtype=dtype), torch.tensor([0, 40.0], dtype=dtype)
    with contextlib.nullcontext() if compiled else undamped.plain_loops():
        out = gated_unit(r, torch.zeros_like(r), weight, bias)
    return out.detach()[:, 0], torch.autograd.grad(out.sum(), r)[0][:, 0]


def test_gelu_and_its_slope_are_right_for_every_size_of_its_argument():
    powers = torch.cat([m * 2.0 ** torch.arange(-126.0, 126.0) for m in (1, 1.3, 1.7, 1.9)])
    r = torch.cat([powers, -powers, torch.linspace(-13, 13, 5_001)])
    (value, slope), (exact, rise) = (
        gelu_and_slope(r, dtype, compiled=dtype == torch.float32)
        for dtype in (torch.float32, torch.float64)
    )
    rise = torch.where(r.abs() > 100, (r > 0).double(), rise)  # torch's own is NaN from 1e26 on
    assert float((slope - rise).abs().max()) < 2e-6
    assert bool((slope[r < -60] == 0).all()) and bool((slope[r > 60] == 1).all())
    assert float(((value - exact) / r.abs().clamp(min=1e-30)).abs().max()) < 1e-6


def over_features(e):
    return e.mean(-1, keepdims=True), e.var(-1, keepdims=True)


def over_batch_and_time(e):
    return e.mean((0, 1)), e.var((0, 1))


@pytest.mark.parametrize("name", ["linoss", "lru", "indrnn", "mingru"])
@pytest.mark.parametrize("training", [False, True])
def test_a_block_is_its_equation(name, training):
    net = build(name, "batch-norm" if training else "layer-norm").train(training)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(1 - 0.2 * torch.rand_like(parameter))
    x = inputs()
    bottom = net.cell(0).encoder
    e = x.numpy() @ array(bottom.weight).T + array(bottom.bias)
    assert net.cell(1).encoder is None
    for block in (net.cell(0), net.cell(1)):
        e = block_oracle(
            e, block, ORACLES[name], over_batch_and_time if training else over_features
        )
    np.testing.assert_allclose(net(x)[0].detach().numpy(), e, atol=1e-10)


@pytest.mark.parametrize("name", TAKE_BLOCKS)
def test_blocks_stream_and_carry_their_state(name):
    for block in ("layer-norm", "batch-norm"):
        net = build(name, block)
        net.train()(inputs(seed=1))  # moves the averages
        net.eval()
        x = inputs()
        output, final = net(x)
        stream = net.stream(batch=3)
        same(torch.stack([stream.push(x_t) for x_t in x]), output)
        same(stream.state, final)
        state, stepped = None, []
        for x_t in x:
            y, state = net.step(x_t, state)
            stepped.append(y)
        same(torch.stack(stepped), output)
        first, state = net(x[:3])
        second, state = net(x[3:], state)
        same(torch.cat([first, second]), output)
        same(state, final)


@pytest.mark.parametrize("name", ["linoss", "unicornn", "sru"])
@pytest.mark.parametrize("both", [False, True])
def test_padding_changes_nothing(name, both):
    net = build(name, bidirectional=both)
    x, lengths = inputs(), torch.tensor([8, 3, 5])
    for i, length in enumerate(lengths):
        x[length:, i] = torch.nan
    output, state = net(x, None, lengths)
    mean, _ = net.mean(x, None, lengths)
    last, _ = net.last(x, None, lengths)
    for i, length in enumerate(lengths.tolist()):
        separate, alone_state = net(x[:length, i : i + 1])
        same(output[:length, i : i + 1], separate)
        assert not output[length:, i].any()
        same(tuple(part[:, i : i + 1] for part in state), alone_state)
        same(mean[i], separate[:, 0].mean(0))
        same(last[i : i + 1], net.last(x[:length, i : i + 1])[0])


def test_statistics_are_those_of_true_steps_and_stand_still_in_evaluation():
    net, x = build("linoss", "batch-norm"), inputs()
    padded = torch.cat([x, torch.full((4, 3, 3), 1e6, dtype=torch.float64)])
    other = copy.deepcopy(net)
    same(net.train()(x)[0], other.train()(padded, None, torch.tensor([8, 8, 8]))[0][:8])
    for (key, ours), theirs in zip(
        net.named_buffers(), dict(other.named_buffers()).values(), strict=True
    ):
        same(ours, theirs)
        assert ours.abs().sum() > 0, key
    before = copy.deepcopy(net.state_dict())
    net.eval()(x)
    assert all(torch.equal(before[key], value) for key, value in net.state_dict().items())


@pytest.mark.slow
def test_gradients_of_blocks():
    for name, block in (("linoss", "layer-norm"), ("minlstm", "batch-norm")):
        net = build(name, block, hidden_size=3).train()
        names = [n for n, _ in net.named_parameters()]
        values = tuple(p.detach().clone().requires_grad_() for p in net.parameters())
        x = inputs(4, 2).requires_grad_()

        def run(x, *values, net=net, names=names):
            named = dict(zip(names, values, strict=True))
            return torch.func.functional_call(net, named, (x,))[0]

        assert torch.autograd.gradcheck(run, (x, *values))


def test_dropout_inside_a_block():
    net = build("linoss", dropout=0.5, num_layers=1, hidden_size=30).train()
    x = inputs(1).expand(5, 3, 3)
    seen = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        seen.append(net(x)[0])
    assert torch.equal(seen[0], seen[1]) and not torch.equal(seen[0], seen[2])
    # What is added to e is dropped for a whole sequence.
    torch.manual_seed(1)
    added = net(x)[0] - net.cell(0).encode(x)
    dropped = (added == 0).all(0)
    assert torch.equal(dropped, (added == 0).any(0)) and 0 < dropped.sum() < dropped.numel()
    assert torch.equal(net.eval()(x)[0], net(x)[0])


# Chunks


def short_chunks(net, saved=6, all_saved=6):
    """Return chunks of 3 steps; graphs of some steps, of three sequences, may be kept."""
    each = in_chunks.step_bytes(net, inputs(1))
    return kernel_limits(chunk_steps=3, saved_bytes=saved * each, all_saved_bytes=all_saved * each)


CHUNKED = [
    *((name, "layer-norm") for name in TAKE_BLOCKS),
    *((name, "none") for name in ("linoss", "lru", "mingru")),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "block"), CHUNKED)
@pytest.mark.parametrize("lengths", [None, [11, 2, 7]])
def test_chunks_give_what_the_whole_gives(name, block, lengths, monkeypatch):
    net = build(name, block, dropout=0.2).train()
    ends = None if lengths is None else torch.tensor(lengths)
    x = inputs(11)
    begin = tuple(torch.rand_like(part) for part in parts(net.initial_state(3)))
    begin = begin if len(begin) > 1 else begin[0]
    weights = inputs(11, size=4, seed=2)
    calls = []
    run = in_chunks._InChunks.apply
    monkeypatch.setattr(in_chunks._InChunks, "apply", lambda *a: calls.append(1) or run(*a))

    def everything(call):
        net.zero_grad()
        leaves = [x.clone().requires_grad_(), *(p.clone().requires_grad_() for p in parts(begin))]
        torch.manual_seed(3)
        state = tuple(leaves[1:]) if len(leaves) > 2 else leaves[1]
        output, final = call(leaves[0], state, ends)
        loss = (output * (weights if output.dim() == 3 else weights[0])).sum()
        (loss + sum(part.square().sum() for part in parts(final))).backward()
        grads = [p.grad for p in (*leaves, *net.parameters())]
        return [output.detach(), *(p.detach() for p in parts(final)), *grads]

    for call, full in ((net, 6), (net, 11), (net.last, 6), (net.mean, 6)):
        with short_chunks(net, all_saved=full):
            result = everything(call)
        # What fits whole and goes in tiles of its own needs no chunks.
        assert bool(calls) != (full == 11 and block != "none" and name in ("linoss", "d-linoss"))
        calls.clear()
        with short_chunks(net, saved=1000, all_saved=full):
            expected = everything(call)
        assert not calls
        for a, b in zip(result, expected, strict=True):
            assert (a is None) == (b is None) or not (a if b is None else b).any()
            if a is not None and b is not None:
                torch.testing.assert_close(a, b, atol=1e-10, rtol=1e-10)


@pytest.mark.slow
def test_chunks_without_gradients_and_with_parameters_of_somebody_else():
    net, x = build("linoss", "batch-norm"), inputs(11)
    with torch.no_grad(), short_chunks(net):
        chunked = net(x)[0]
    with torch.enable_grad(), short_chunks(net):  # averages that might move are not taken in chunks
        same(chunked, net(x)[0].detach())
    net = build("linoss", num_layers=1, oscillators=2)
    names = [n for n, _ in net.named_parameters()]
    values = tuple(p.detach().clone().requires_grad_() for p in net.parameters())

    def run(*values):
        named = dict(zip(names, values, strict=True))
        return torch.func.functional_call(net, named, (x,))[0]

    with short_chunks(net):
        assert torch.autograd.gradcheck(run, values)
        output = net(x)[0]
    output.sum().backward(retain_graph=True)
    once = [p.grad.clone() for p in net.parameters()]
    output.sum().backward()
    same([p.grad for p in net.parameters()], [2 * g for g in once])
    with pytest.raises(OptionError, match="plain_loops"), short_chunks(net):
        leaf = x.clone().requires_grad_()
        torch.autograd.grad(net(leaf)[0].sum(), leaf, create_graph=True)
