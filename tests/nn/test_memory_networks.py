"""Networks that attend to remembered states: equations, compiled loops, states, refusals."""

import contextlib

import pytest
import torch
from memory_oracles import (
    attends_to_all,
    attends_to_relevant,
    sparse_attentive_backtracking,
)

import undamped
from undamped._base.errors import OptionError, ShapeError

SMALL = {"recent": 3, "relevant": 2}
# Every option with both kinds of network, in combinations: each of them is a kernel to compile.
ATTENDING = [
    ("memrnn", {}),
    ("memrnn", {"attention": "dot", "mix": "learned"}),
    ("memlstm", {"attention": "dot"}),
    ("memlstm", {"mix": "sum"}),
    ("memlstm", {"mix": "learned"}),
]
SCREENED = [
    ("relrnn", SMALL),
    ("relrnn", {**SMALL, "attention": "dot", "mix": "learned", "screening": "share"}),
    ("relrnn", {**SMALL, "mix": "sum", "screening": "learned"}),
    ("relrnn", {**SMALL, "screening": "surprise"}),
    ("relrnn", {"recent": 1, "relevant": 4}),
    ("relrnn", {"recent": 4, "relevant": 0}),
    ("rellstm", SMALL),
    ("rellstm", {"recent": 1, "relevant": 4, "attention": "dot", "screening": "learned"}),
    ("rellstm", {**SMALL, "mix": "learned", "screening": "surprise"}),
    ("rellstm", {"recent": 4, "relevant": 0, "mix": "sum", "screening": "share"}),
    ("rellstm", {**SMALL, "screening": "share"}),
]
VARIANTS = [
    *ATTENDING,
    *SCREENED,
    *(("relrnn", {**SMALL, "nonlinearity": kind}) for kind in ("relu", "modrelu")),
    *(("relrnn", {**SMALL, "recurrence": kind}) for kind in ("exprnn", "scornn", "rnn", "goru")),
    ("memrnn", {"recurrence": "gru", "mix": "learned"}),
    ("relrnn", {**SMALL, "recurrence": "gru", "screening": "surprise"}),
    ("sab", {"keep_every": 2, "top": 3, "truncate": 4}),
    ("sab", {"keep_every": 3, "top": 2, "truncate": 0, "scores": "released"}),
    ("sab", {"keep_every": 2, "top": 1, "truncate": 0, "scores": "released"}),
    ("sab", {"keep_every": 1, "top": 50, "truncate": 5}),
]
STEADY = [(name, options) for name, options in VARIANTS if name.startswith("rel")]


def build(name, **options):
    torch.manual_seed(3)
    net = undamped.build(name, input_size=3, hidden_size=5, **options).double()
    with torch.no_grad():  # away from the start, where much is zero
        for parameter in net.parameters():
            if parameter.requires_grad:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return net


def inputs(time=17, batch=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(time, batch, 3, generator=generator, dtype=torch.float64)


def named(variant):
    return "-".join([variant[0], *(str(value) for value in variant[1].values())])


@pytest.mark.slow
@pytest.mark.parametrize("plain", [True, False], ids=["plain", "compiled"])
@pytest.mark.parametrize("variant", ATTENDING, ids=named)
def test_attention_to_all_is_the_papers(variant, plain):
    name, options = variant
    net, x = build(name, **options), inputs()
    with undamped.plain_loops() if plain else contextlib.nullcontext():
        output, _ = net(x)
    torch.testing.assert_close(output, torch.from_numpy(attends_to_all(x.numpy(), net.cell(0))))


@pytest.mark.slow
@pytest.mark.parametrize("plain", [True, False], ids=["plain", "compiled"])
@pytest.mark.parametrize("variant", SCREENED, ids=named)
def test_screening_is_the_papers(variant, plain):
    name, options = variant
    net, x = build(name, **options), inputs(40)
    with undamped.plain_loops() if plain else contextlib.nullcontext():
        output, state = net(x)
    expected, kept = attends_to_relevant(x.numpy(), net.cell(0))
    torch.testing.assert_close(output, torch.from_numpy(expected))
    cell = net.cell(0)
    result = state[cell.state_names.index("relevant")].view(3, cell.relevant, 5)
    for b, steps in enumerate(kept):
        there = {tuple(row.tolist()) for row in result[b].detach().round(decimals=9)}
        assert there == {tuple(row.tolist()) for row in output[steps, b].detach().round(decimals=9)}


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "compiled"])
@pytest.mark.parametrize("scores", ["paper", "released"])
@pytest.mark.parametrize("top", [1, 3])
def test_sparse_backtracking_is_the_papers(top, scores, plain):
    """Softmax while no more than `top` are remembered, in the released program too."""
    net = build("sab", keep_every=2, top=top, truncate=0, scores=scores)
    x = inputs(30)
    expected = sparse_attentive_backtracking(x.numpy(), net.cell(0))
    with undamped.plain_loops() if plain else contextlib.nullcontext():
        torch.testing.assert_close(net(x)[0], torch.from_numpy(expected))


def test_the_released_scores_do_not_see_the_query():
    net = build("sab", keep_every=1, top=2, truncate=0, scores="released")
    cell, states = net.cell(0), torch.randn(1, 5, 5, dtype=torch.float64)
    one, two = torch.randn(2, 1, 5, dtype=torch.float64)
    seen = torch.ones(1, 5, dtype=torch.bool)
    assert torch.equal(cell._weights(one, states, seen), cell._weights(two, states, seen))
    assert int((cell._weights(one, states, seen) > 0).sum()) == 1  # top − 1


@pytest.mark.slow
def test_the_cut_leaves_only_attended_paths():
    """With the recurrent gradient cut, a step that is not remembered has none from far away."""
    net = build("sab", keep_every=4, top=2, truncate=4)
    x = inputs(12, 1).requires_grad_()
    output, _ = net(x)
    (gradient,) = torch.autograd.grad(output[-1].sum(), x)
    assert gradient[8:].abs().sum(-1).all()  # after the last cut
    uncut = build("sab", keep_every=100, top=2, truncate=4)
    (separate,) = torch.autograd.grad(uncut(x)[0][-1].sum(), x)
    assert not separate[:8].any() and separate[8:].any()


@pytest.mark.slow
@pytest.mark.parametrize("lengths", [None, [17, 1, 6]], ids=["whole", "lengths"])
@pytest.mark.parametrize("variant", VARIANTS, ids=named)
def test_compiled_loops_agree_with_plain_ones(variant, lengths):
    """Values, and gradients to inputs, to a carried state and to every parameter."""
    name, options = variant
    net, x = build(name, **options), inputs()
    start = [part.detach() for part in net(inputs(7, seed=1))[1]]
    lengths = None if lengths is None else torch.tensor(lengths)
    result = []
    for plain in (True, False):
        leaf = x.clone().requires_grad_()
        state = tuple(part.clone().requires_grad_() for part in start)
        net.zero_grad()
        with undamped.plain_loops() if plain else contextlib.nullcontext():
            output, final = net(leaf, state, lengths)
        generator = torch.Generator().manual_seed(2)
        total = sum(
            (part * torch.randn(part.shape, generator=generator, dtype=part.dtype)).sum()
            for part in (output, *final)
        )
        total.backward()
        leaves = [leaf, *state, *net.parameters()]
        gradients = [torch.zeros_like(v) if v.grad is None else v.grad for v in leaves]
        result.append([output, *final, *gradients])
    for a, b in zip(*result, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("variant", STEADY, ids=named)
def test_a_stream_is_the_pass_and_its_state_does_not_grow(variant):
    name, options = variant
    net, x = build(name, **options), inputs(60)
    with torch.no_grad():
        output, final = net(x)
        state, sizes = None, set()
        for t, x_t in enumerate(x):
            y, state = net.step(x_t, state)
            torch.testing.assert_close(y, output[t], rtol=1e-8, atol=1e-9)
            sizes.add(sum(part.nbytes for part in state))
    assert len(sizes) == 1
    for a, b in zip(state, final, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["relrnn", "rellstm", "memrnn", "memlstm", "sab"])
def test_zero_means_empty(name):
    """Multiplying a state by a mask starts samples afresh."""
    options = SMALL if name.startswith("rel") else {}
    if name == "sab":
        options = {"keep_every": 2, "top": 2}
    net = build(name, **options)
    with torch.no_grad():
        _, state = net(inputs(9))
        mask = torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64).view(1, 3, 1)
        going_on, _ = net(inputs(9, seed=5), tuple(part * mask for part in state))
        afresh, _ = net(inputs(9, seed=5))
        carried, _ = net(inputs(9, seed=5), state)
    torch.testing.assert_close(going_on[:, 1], afresh[:, 1])
    torch.testing.assert_close(going_on[:, 0], carried[:, 0])


@pytest.mark.slow
def test_threads_share_the_batch():
    torch.manual_seed(0)
    net = undamped.nn.RelLSTM(3, 64)
    x = torch.randn(200, 24, 3)
    result = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        net.zero_grad()
        output, _ = net(x)
        output.square().mean().backward()
        result.append([output.detach(), *(p.grad.clone() for p in net.parameters())])
    for one, two in zip(*result, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-6)


def test_what_cannot_be_is_refused():
    for options in ({"recent": 0}, {"relevant": -1}):
        with pytest.raises(OptionError, match="must be an integer ≥"):
            undamped.nn.RelRNN(3, 5, **options)
    with pytest.raises(OptionError, match="must be a recurrent network whose"):
        undamped.nn.RelRNN(3, 5, recurrence="unicornn")
    with pytest.raises(OptionError, match="recurrence"):
        undamped.nn.RelRNN(3, 5, recurrence="node")
    with pytest.raises(OptionError, match="'gru' has no option"):
        undamped.nn.RelRNN(3, 5, recurrence="gru", nonlinearity="tanh")
    net = undamped.nn.RelLSTM(3, 5)
    _, state = net(torch.randn(4, 2, 3))
    with pytest.raises(ShapeError, match="relevant_seen"):
        net(torch.randn(4, 3, 3), state)
    with pytest.raises(ShapeError, match="recent"):
        undamped.nn.RelLSTM(3, 5, recent=3)(torch.randn(4, 2, 3), state)
    top = undamped.nn.SAB(3, 5, keep_every=1, top=50)(torch.randn(4, 2, 3))[0]
    assert top.isfinite().all()  # fewer are stored than may be attended to


@pytest.mark.parametrize("name", ["lstm", "rellstm", "memlstm", "sab"])
def test_how_an_lstm_begins(name):
    torch.manual_seed(0)
    cell = undamped.build(name, input_size=30, hidden_size=40, input_std=1.0, forget_bias=2.0).cell(
        0
    )
    inner = getattr(cell, "recurrence", cell)
    assert abs(float(inner.weight_ih.detach().std()) - 1) < 0.05
    bias = (inner.bias_ih + inner.bias_hh).detach()
    assert torch.equal(bias.view(4, 40)[1], torch.full((40,), 2.0)) and bias.count_nonzero() == 40
    with pytest.raises(OptionError, match="forget_bias"):
        undamped.nn.LSTM(3, 4, bias=False, forget_bias=1.0)
