"""UnICORNN networks: every way to get gradients, against the equations and the plain loop."""

import itertools
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import undamped
from undamped._base.errors import OptionError
from undamped.kernels import InversionWarning, kernel_limits
from undamped.kernels.unicornn import stack
from undamped.nn.bases.cell import reference_scan

MODES = ("reversible", "checkpoint", "stored")


@pytest.fixture
def short_chunks():
    """Many chunks and few kept states, so that short sequences take every path."""
    with kernel_limits(chunk_steps=16, anchors=2):
        yield


def plain(net, monkeypatch):
    """Make a network run layer by layer in the plain loop."""
    with monkeypatch.context() as patch:
        patch.setattr(type(net), "_fits", lambda *_: False)
        patch.setattr(net.cell_class, "scan", reference_scan)
        yield


def oracle(net, x, y, z):
    """Equation 6 of the paper, layer by layer, step by step; residual layers as in C.5."""
    outputs = []
    for n in range(x.shape[0]):
        below = [x[n]]
        for at in range(net.num_layers):
            cell = net.cell(at)
            parameters = (cell.weight, cell.input_weight, cell.bias, cell.step_logit)
            w, V, b, c = (p.detach().numpy() for p in parameters)
            step = cell.dt / (1 + np.exp(-c))
            u = below[at]
            skip = net.cell_options.get("skip", 2)
            if "Residual" in type(net).__name__ and at + 1 > skip:
                u = np.concatenate([u, below[at - skip]], axis=-1)
            z[at] = z[at] - step * (np.tanh(w * y[at] + u @ V.T + b) + cell.alpha * y[at])
            y[at] = y[at] + step * z[at]
            below.append(y[at].copy())
        outputs.append(below[-1])
    return np.stack(outputs), y, z


@pytest.mark.parametrize("name", ["unicornn", "residual-unicornn"])
@pytest.mark.parametrize("gradient", MODES)
def test_outputs_follow_the_equations(name, gradient, short_chunks):
    torch.manual_seed(0)
    net = undamped.build(
        name, input_size=3, hidden_size=5, num_layers=4, dt=0.4, alpha=2.0, gradient=gradient
    ).double()
    x, y, z = (torch.randn(*s, dtype=torch.float64) for s in ((50, 2, 3), (4, 2, 5), (4, 2, 5)))
    output, state = net(x, (y, z))
    last, last_state = net.last(x, (y, z))
    reference = oracle(net, x.numpy(), y.numpy().copy(), z.numpy().copy())
    for got, expected in zip((output, *state), reference, strict=True):
        np.testing.assert_allclose(got.detach().numpy(), expected, rtol=1e-10, atol=1e-10)
    assert torch.equal(last, output[-1])
    assert all(torch.equal(a, b) for a, b in zip(last_state, state, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("gradient", MODES)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_gradients_are_right(gradient, bidirectional):
    torch.manual_seed(0)
    net = undamped.nn.ResidualUnICORNN(
        2, 2, 3, dt=0.5, gradient=gradient, bidirectional=bidirectional
    ).double()
    cells = 6 if bidirectional else 3
    shapes = ((7, 2, 2), (cells, 2, 2), (cells, 2, 2))
    inputs = [torch.randn(*s, dtype=torch.float64, requires_grad=True) for s in shapes]
    names = [name for name, _ in net.named_parameters()]

    def run(x, y, z, *parameters):
        options = (x, (y, z), torch.tensor([7, 4]))
        output, state = torch.func.functional_call(
            net, dict(zip(names, parameters, strict=True)), options
        )
        return output, *state

    with kernel_limits(chunk_steps=2, anchors=2):
        assert torch.autograd.gradcheck(run, (*inputs, *net.parameters()), fast_mode=True)


CASES = list(itertools.product((False, True), (0.0, 0.4), (None, [40, 1, 17, 33])))


@pytest.mark.slow
@pytest.mark.parametrize("gradient", MODES)
@pytest.mark.parametrize("bidirectional, dropout, lengths", CASES)
def test_every_mode_agrees_with_the_plain_loop(
    gradient, bidirectional, dropout, lengths, short_chunks, monkeypatch
):
    torch.manual_seed(0)
    net = undamped.nn.ResidualUnICORNN(
        3, 6, 4, batch_first=True, dropout=dropout, bidirectional=bidirectional, gradient=gradient
    ).double()
    x = torch.randn(40, 4, 3, dtype=torch.float64)
    ends = None if lengths is None else torch.tensor(lengths)
    for i, length in enumerate(lengths or []):
        x[length:, i] = float("nan")
    x = x.transpose(0, 1).requires_grad_()
    shape = (len(net.cells), 4, 6)
    state = [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for _ in range(2)]

    def everything(run):
        torch.manual_seed(1)  # the same dropout masks
        output, final = run(x, tuple(state), ends)
        loss = (output**2).sum() + (final[0] * final[1]).sum()
        gradients = torch.autograd.grad(loss, (x, *state, *net.parameters()))
        return [t.detach() for t in (output, *final, *gradients)]

    ours = everything(net.forward), everything(net.last)
    for _ in plain(net, monkeypatch):
        theirs = everything(net.forward), everything(net.last)
    for got, expected in zip(itertools.chain(*ours), itertools.chain(*theirs), strict=True):
        assert not got.isnan().any()
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-11)


@settings(deadline=None, max_examples=15)
@given(
    steps=st.integers(1, 60),
    batch=st.integers(1, 4),
    hidden=st.integers(1, 20),
    layers=st.integers(1, 4),
    single=st.booleans(),
    gradient=st.sampled_from(MODES),
)
def test_any_shape(steps, batch, hidden, layers, single, gradient):
    torch.manual_seed(0)
    net = undamped.nn.UnICORNN(2, hidden, layers, gradient=gradient)
    net = net if single else net.double()
    x = torch.randn(steps, batch, 2, dtype=torch.float32 if single else torch.float64)
    x.requires_grad_()
    with kernel_limits(chunk_steps=16, anchors=1):
        output, _ = net(x)
        got = torch.autograd.grad((output**2).sum(), (x, *net.parameters()))
    with pytest.MonkeyPatch.context() as patch:
        for _ in plain(net, patch):
            expected, _ = net(x)
            reference = torch.autograd.grad((expected**2).sum(), (x, *net.parameters()))
    tolerance = 1e-4 if single else 1e-10
    for a, b in zip((output, *got), (expected, *reference), strict=True):
        torch.testing.assert_close(
            a, b, rtol=tolerance, atol=tolerance * float(b.detach().abs().max() + 1e-3)
        )


def trained(net):
    """Weights far from where they start, on both sides of zero."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(1.5).add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return net


@pytest.mark.parametrize("alpha", [0.0, 30.0])
@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("kept", [64, 6])
@pytest.mark.filterwarnings("ignore::undamped.kernels.InversionWarning")
def test_reversible_agrees_with_stored_over_17984_steps(alpha, fresh, kept):
    # With 6 kept states most chunks are rebuilt by running backwards in time.
    torch.manual_seed(0)
    net = undamped.nn.UnICORNN(6, 4, 2, dt=0.03, alpha=alpha)
    net = net if fresh else trained(net)
    x = torch.randn(17984, 2, 6)
    gradients = {}
    for dtype in (torch.float64, torch.float32):
        net = net.to(dtype)
        for net.gradient in ("reversible", "stored"):
            with kernel_limits(anchors=kept):
                output, _ = net.last(x.to(dtype))
            result = torch.autograd.grad((output**2).sum(), net.parameters())
            gradients[dtype, net.gradient] = torch.cat([g.flatten().double() for g in result])

    def distance(one, other):
        return float((gradients[one] - gradients[other]).norm() / gradients[other].norm())

    exact, single = (torch.float64, "stored"), (torch.float32, "stored")
    assert distance((torch.float64, "reversible"), exact) < 1e-9
    # Few kept states are allowed a fifth of what the precision itself costs; CPUs differ.
    allowed = 1e-4 if kept == 64 else max(1e-4, 0.2 * distance(single, exact))
    assert distance((torch.float32, "reversible"), single) < allowed


def test_an_inexact_run_backwards_is_noticed_and_done_again(short_chunks):
    torch.manual_seed(0)
    net = undamped.nn.UnICORNN(2, 4, 2)
    x = torch.randn(200, 2, 2, requires_grad=True)
    expected = (x, *net.parameters())
    net.gradient = "checkpoint"
    reference = torch.autograd.grad(net(x)[0].sum(), expected)
    net.gradient = "reversible"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.autograd.grad(net(x)[0].sum(), expected)
    warned = pytest.warns(InversionWarning, match="Choose gradient='checkpoint'")
    with warned, kernel_limits(inversion_tolerance=-1.0):
        got = torch.autograd.grad(net(x)[0].sum(), expected)
    assert all(torch.equal(a, b) for a, b in zip(got, reference, strict=True))


@pytest.mark.parametrize("gradient", MODES)
def test_second_derivatives_go_through_the_plain_loop(gradient):
    torch.manual_seed(0)
    net = undamped.nn.UnICORNN(2, 3, 2, dt=0.5, gradient=gradient).double()
    x = torch.randn(5, 2, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: net(x)[0], (x,))
    assert torch.autograd.gradgradcheck(lambda x: net.last(x)[0], (x,))


@pytest.mark.parametrize("gradient", MODES)
def test_nothing_is_kept_when_no_gradient_is_wanted(gradient, monkeypatch):
    kept = []
    run = stack.run_stack
    monkeypatch.setattr(
        "undamped.kernels.unicornn.function.run_stack", lambda *a: kept.append(run(*a)) or kept[-1]
    )
    net = undamped.nn.UnICORNN(2, 3, 2, gradient=gradient)
    x = torch.randn(30, 2, 2)
    with torch.no_grad():
        net(x)
    with torch.inference_mode():
        net.last(x)
    net(x)
    assert [k is None for k in kept] == [True, True, False]


def test_an_empty_batch():
    output, _ = undamped.nn.UnICORNN(2, 3, 2)(torch.zeros(5, 0, 2))
    assert output.shape == (5, 0, 3)


def test_a_graph_can_be_walked_twice():
    net = undamped.nn.UnICORNN(2, 3, 2, gradient="stored")
    output, _ = net(torch.randn(30, 2, 2))
    first = torch.autograd.grad(output.sum(), net.parameters(), retain_graph=True)
    second = torch.autograd.grad(output.sum(), net.parameters())
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_changing_a_stored_output_in_place_is_noticed():
    net = undamped.nn.UnICORNN(2, 3, 2, gradient="stored")
    output, _ = net(torch.randn(30, 2, 2))
    loss = (output**2).sum()
    with torch.no_grad():
        output.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_the_pieces_of_a_sequence_give_the_whole():
    torch.manual_seed(0)
    net = undamped.nn.UnICORNN(3, 8, 2)
    x = torch.randn(100, 2, 3)
    with torch.no_grad():
        full, final = net(x)
        first, state = net(x[:37])
        second, state = net(x[37:], state)
    assert torch.equal(torch.cat([first, second]), full)
    assert all(torch.equal(a, b) for a, b in zip(state, final, strict=True))


def test_the_option_is_declared_and_checked():
    assert undamped.nn.UnICORNN.declared_options()["gradient"].default == "reversible"
    with pytest.raises(OptionError, match=r"UnICORNN.gradient must be one of"):
        undamped.nn.UnICORNN(2, 3, gradient="none")
    with pytest.raises(OptionError, match="gradient"):
        undamped.build("unicornn", input_size=2, hidden_size=3, gradient="none")


@pytest.mark.slow
def test_compiler_and_exporter_see_one_operator():
    torch.manual_seed(0)
    net = undamped.nn.UnICORNN(3, 4, 2)
    x = torch.randn(12, 2, 3)
    with torch.no_grad():
        expected = net(x)[0]
        program = torch.export.export(net, (x,))
    called = [str(n.target) for n in program.graph.nodes if n.op == "call_function"]
    assert called.count("undamped.oscillator_scan.default") == 2
    torch.testing.assert_close(program.module()(x)[0], expected)
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    output = compiled(x)[0]
    torch.testing.assert_close(output, expected)
    got = torch.autograd.grad(output.sum(), net.parameters())
    reference = torch.autograd.grad(net(x)[0].sum(), net.parameters())
    for a, b in zip(got, reference, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("gradient", ["reversible", "checkpoint"])
@pytest.mark.parametrize("single", [True, False])
def test_kept_tanh_values_spare_products_and_change_nothing(gradient, single):
    """Some chunks of the second layer are run again from their tanh, others from products."""
    dtype = torch.float32 if single else torch.float64
    torch.manual_seed(0)
    net = undamped.nn.UnICORNN(3, 8, 2, gradient=gradient, dropout=0.3).to(dtype)
    x = torch.randn(70, 4, 3, dtype=dtype, requires_grad=True)
    lengths = torch.tensor([70, 33, 52, 1])
    result = []
    for kept in (0, 2, 100):  # none, two or all of five chunks
        torch.manual_seed(1)
        replay_bytes = kept * 16 * 32 * x.element_size()
        with kernel_limits(chunk_steps=16, wide=8, replay_bytes=replay_bytes):
            output, state = net(x, None, lengths)
        loss = output.square().sum() + sum(s.sum() for s in state)
        result.append(torch.autograd.grad(loss, [x, *net.parameters()]))
    for other in result[1:]:
        for one, two in zip(result[0], other, strict=True):
            assert torch.equal(one, two)


def test_the_backward_pass_takes_the_shares_of_the_forward_pass():
    """Torch's threads may change in between; what was kept lies in shares of the batch."""
    torch.manual_seed(0)
    net = undamped.nn.UnICORNN(3, 32, 2).double()
    x = torch.randn(20, 8, 3, dtype=torch.float64)
    before, result = torch.get_num_threads(), []
    try:
        for forward, backward in ((1, 1), (2, 1), (1, 2), (2, 2)):
            torch.set_num_threads(forward)
            with kernel_limits(batch_grain=1):
                loss = net(x)[0].square().sum()
            torch.set_num_threads(backward)
            result.append(torch.autograd.grad(loss, list(net.parameters())))
    finally:
        torch.set_num_threads(before)
    for other in result[1:]:
        for one, two in zip(result[0], other, strict=True):
            torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-12)
