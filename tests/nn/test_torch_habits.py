"""What people do with torch.nn.LSTM works here too."""

import copy
import inspect
import warnings

import pytest
import torch
from tiers import few_fast
from torch import nn
from torch.func import functional_call

import undamped
from undamped._base.errors import OptionError
from undamped._base.registry import models
from undamped.nn import Recurrent

NETWORKS = [
    name
    for name in models
    if isinstance(models[name], type) and issubclass(models[name], Recurrent)
]
every = pytest.mark.parametrize("name", few_fast(NETWORKS))
TWINS = [("RNN", nn.RNN), ("LSTM", nn.LSTM), ("GRU", nn.GRU)]
twins = pytest.mark.parametrize("ours, theirs", [(getattr(undamped.nn, n), t) for n, t in TWINS])
X = torch.randn(7, 4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def parts(state):
    return state if isinstance(state, tuple) else (state,)


def agree(one, two, **tolerance):
    for a, b in zip((one[0], *parts(one[1])), (two[0], *parts(two[1])), strict=True):
        torch.testing.assert_close(a, b, **tolerance)


@twins
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_weights_go_both_ways(ours, theirs, bias, bidirectional):
    options = {"num_layers": 2, "bias": bias, "bidirectional": bidirectional}
    torch.manual_seed(0)
    other = theirs(3, 5, **options, dtype=torch.float64)
    net = ours(3, 5, **options, dtype=torch.float64)
    net.load_state_dict(other.state_dict())
    agree(net(X), other(X))
    fresh = ours(3, 5, **options, dtype=torch.float64)
    back = theirs(3, 5, **options, dtype=torch.float64)
    back.load_state_dict(fresh.torch_state_dict())
    agree(fresh(X), back(X))
    agree(fresh(X), fresh.to_torch()(X))
    fresh.load_state_dict(net.state_dict())  # the names here load as before
    assert next(iter(net.state_dict())) == "cells.0.weight_ih"
    agree(fresh(X), net(X))
    full = nn.ModuleDict({"inner": ours(3, 5, **options, dtype=torch.float64)})
    full.load_state_dict({f"inner.{name}": t for name, t in other.state_dict().items()})
    agree(full["inner"](X), other(X))


@twins
def test_gradients_agree_without_biases(ours, theirs):
    torch.manual_seed(0)
    other = theirs(3, 5, bias=False, dtype=torch.float64)
    net = ours(3, 5, bias=False, dtype=torch.float64)
    net.load_state_dict(other.state_dict())
    for module in (net, other):
        module(X)[0].square().sum().backward()
    for name in other.state_dict():
        torch.testing.assert_close(getattr(net, name).grad, getattr(other, name).grad)
    assert all(p is not None for p in net.parameters()) and len(list(net.parameters())) == 2
    lengths = torch.tensor([7, 2, 5, 1])
    packed = nn.utils.rnn.pack_padded_sequence(X, lengths, enforce_sorted=False)
    torch.testing.assert_close(net(packed)[0].data, other(packed)[0].data)
    with undamped.plain_loops():
        agree(net(X), other(X))


@pytest.mark.parametrize("bidirectional", [True, False])
def test_an_lstm_may_be_projected(bidirectional):
    options = {"num_layers": 2, "proj_size": 2, "bidirectional": bidirectional}
    torch.manual_seed(0)
    other = nn.LSTM(3, 5, **options, dtype=torch.float64)
    torch.manual_seed(0)
    net = undamped.nn.LSTM(3, 5, **options, dtype=torch.float64)
    net.load_state_dict(other.state_dict())
    assert net.proj_size == 2 and net.bias and net.output_size == other(X)[0].shape[-1]
    lengths = torch.tensor([7, 2, 5, 1])
    packed = nn.utils.rnn.pack_padded_sequence(X, lengths, enforce_sorted=False)
    state = tuple(torch.randn_like(part) for part in other(X)[1])
    for given in ((X,), (X, state), (packed, state), (X[:1], state)):
        result, expected = net(*given), other(*given)
        if given[0] is packed:
            result, expected = ((one[0].data, one[1]) for one in (result, expected))
        agree(result, expected)
        for module, (output, (h, c)) in ((net, result), (other, expected)):
            module.zero_grad()
            (output.square().sum() + h.sum() + c.sin().sum()).backward()
        for name in other.state_dict():
            torch.testing.assert_close(getattr(net, name).grad, getattr(other, name).grad)
    agree(net.to_torch()(X), net(X))
    with undamped.plain_loops():
        agree(net(X, state), other(X, state))
    if not bidirectional:
        output, carried = net.step(X[0], state)
        agree((output, carried), (other(X[:1], state)[0][0], other(X[:1], state)[1]))
        torch.testing.assert_close(net.stream(state).push(X[0]), output)
    with pytest.raises(OptionError, match="proj_size must be smaller than hidden_size=5"):
        undamped.nn.LSTM(3, 5, proj_size=5)
    with pytest.raises(LookupError, match="proj_size"):
        undamped.nn.GRU(3, 5, proj_size=2)


def test_parameters_have_their_torch_names():
    net = undamped.nn.LSTM(3, 5, num_layers=2, bidirectional=True)
    assert net.weight_ih_l0 is net.cell(0).weight_ih
    assert net.bias_hh_l1_reverse is net.cell(1, 1).bias_hh
    assert net.all_weights[0][0] is net.weight_ih_l0
    with pytest.raises(AttributeError, match="weight_ih_l7"):
        _ = net.weight_ih_l7
    with torch.no_grad():  # as in programs that open the forget gate
        net.bias_ih_l0[5:10].fill_(1.0)
    assert net.cell(0).bias_ih[5:10].eq(1).all()
    weight = nn.Parameter(torch.zeros_like(net.weight_hh_l1))
    net.weight_hh_l1 = weight
    assert net.cell(1).weight_hh is weight and "weight_hh_l1" not in net._parameters


def test_relatives_of_the_elman_network_go_to_torch_too():
    for name in ("irnn", "rnn-orth"):
        net = undamped.build(name, input_size=3, hidden_size=5).double()
        agree(net(X), net.to_torch()(X))
    with pytest.raises(OptionError, match="modrelu"):
        undamped.nn.RNNOrth(3, 5, nonlinearity="modrelu").to_torch()


@every
def test_the_state_has_two_names(name):
    net = undamped.build(name, input_size=3, hidden_size=4).double().eval()
    _, state = net(X)
    agree(net(X, hx=state), net(X, state))
    with pytest.raises(OptionError, match="got both"):
        net(X, state, hx=state)
    net.flatten_parameters()


@every
def test_device_and_type_are_arguments(name):
    build = models[name]
    net = build(3, 4, num_layers=2, dtype=torch.float64, device="cpu")
    floating = [t for t in (*net.parameters(), *net.buffers()) if t.is_floating_point()]
    assert all(t.dtype == torch.float64 for t in floating)
    net(X)[0].sum().backward()
    assert all(p.device.type == "meta" for p in build(3, 4, device="meta").parameters())
    with pytest.raises(OptionError, match="floating-point"):
        build(3, 4, dtype=torch.int64)
    assert "device" not in build.declared_options()


@every
def test_parameters_can_be_drawn_again(name):
    torch.manual_seed(3)
    net = undamped.build(name, input_size=3, hidden_size=4, num_layers=2).double()
    before, held = copy.deepcopy(net.state_dict()), list(net.parameters())
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.3)
    torch.manual_seed(3)
    net.reset_parameters()
    for key, tensor in net.state_dict().items():
        torch.testing.assert_close(tensor, before[key], msg=key)
    assert all(a is b for a, b in zip(held, net.parameters(), strict=True))


@every
def test_dropout_with_one_layer_warns(name):
    with pytest.warns(UserWarning, match="has no effect with one layer"):
        net = undamped.build(name, input_size=3, hidden_size=4, dropout=0.5).double()
    assert torch.equal(net(X)[0], net(X)[0])


def test_the_printed_form_names_what_was_chosen():
    assert "LSTM(\n  3, 4, num_layers=2, dropout=0.1, bias=False" in repr(
        undamped.nn.LSTM(3, 4, 2, bias=False, dropout=0.1)
    )
    assert "alpha=2.0, gradient='stored'" in repr(
        undamped.nn.UnICORNN(3, 4, gradient="stored", alpha=2)
    )
    assert "3, 4, num_layers=1\n" in repr(undamped.nn.MomentumRNN(3, 4))
    assert "orthogonality_penalty=0.1" in repr(undamped.nn.coRNN(3, 4, orthogonality_penalty=0.1))


@every
def test_help_lists_every_argument(name):
    text = inspect.getdoc(models[name])
    for argument in inspect.signature(models[name]).parameters:
        assert f"\n    {argument}: " in text, argument
    for heading in ("Equation:", "Promise:", "Args:", "Example:", "Reference:"):
        assert text.count(f"\n{heading}\n") == 1


@every
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bits_work_or_are_refused(name, dtype):
    torch.manual_seed(0)
    net = undamped.build(name, input_size=3, hidden_size=4, dropout=0.0).to(dtype)
    x = X.to(dtype)
    if net.cell_class.needs_full_precision:
        for call in (net, net.last, lambda x: net.step(x[0])):
            with pytest.raises(OptionError, match="float32 or float64"):
                call(x)
        return
    output, _ = net(x)
    output.float().sum().backward()
    assert output.dtype == dtype and all(p.grad is not None for p in net.parameters())
    wide = undamped.build(name, input_size=3, hidden_size=4).float()
    wide.load_state_dict(net.state_dict())
    long = torch.randn(2000, 2, 3)
    with torch.no_grad():
        end, exact = net(long.to(dtype))[0][-100:].float(), wide(long.to(dtype).float())[0][-100:]
    assert float((end - exact).norm() / exact.norm()) < 0.05


# What SAB remembers depends on a clock that is part of the data.
@pytest.mark.parametrize("name", few_fast(name for name in NETWORKS if name != "sab"))
# torch's own rules for forward mode are scripts still.
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
def test_plain_loops_are_open_to_transforms(name):
    net = undamped.build(name, input_size=3, hidden_size=4).double().eval()
    many = torch.stack([X, 2 * X])
    with undamped.plain_loops():
        together = torch.vmap(lambda x: net(x)[0])(many)
        slope = torch.func.jvp(lambda x: net(x)[0], (X,), (X,))[1]
    torch.testing.assert_close(together, torch.stack([net(x)[0] for x in many]))
    step = 1e-6
    difference = (net(X * (1 + step))[0] - net(X * (1 - step))[0]) / (2 * step)
    torch.testing.assert_close(slope, difference, atol=1e-6, rtol=1e-5)
    # Outside of plain_loops a transform finds the plain loop by itself.
    torch.testing.assert_close(torch.vmap(lambda x: net(x)[0])(many), together)


@twins
def test_a_state_dict_still_goes_into_functional_calls(ours, theirs):
    net = ours(3, 5, dtype=torch.float64)
    agree(functional_call(net, net.state_dict(), (X,)), net(X))


@every
def test_parameters_and_buffers_have_no_gaps(name):
    net = undamped.build(name, input_size=3, hidden_size=4, num_layers=2)
    assert all(t.is_contiguous() for t in (*net.parameters(), *net.buffers()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nn.utils.parameters_to_vector(net.parameters())


@pytest.mark.parametrize("name", ["lstm", "gru", "rnn", "irnn", "rnn-orth"])
@pytest.mark.parametrize("options", [{}, {"bias": False}, {"nonlinearity": "modrelu"}])
def test_steps_and_streams_are_those_of_a_sequence(name, options):
    if "bias" in options and name not in ("lstm", "gru", "rnn"):
        return
    if "nonlinearity" in options and name != "rnn-orth":
        return
    torch.manual_seed(0)
    sizes = {"input_size": 3, "hidden_size": 4, "num_layers": 2}
    net = undamped.build(name, **sizes, **options).double()
    x, state, stream = torch.randn(6, 2, 3, dtype=torch.float64), None, net.stream(batch=2)
    outputs, _ = net(x)
    for x_t, expected in zip(x, outputs, strict=True):
        output, state = net.step(x_t, state)
        torch.testing.assert_close(output, expected)
        torch.testing.assert_close(stream.push(x_t), expected)
