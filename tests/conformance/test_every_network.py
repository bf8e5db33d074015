"""What every recurrent network must do, whatever its cell: one suite over the registry."""

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import few_fast
from torch.nn.utils.rnn import pack_padded_sequence

import undamped
from undamped._base.errors import OptionError, ShapeError
from undamped._base.registry import models
from undamped.kernels import kernel_limits
from undamped.nn import Cell, Recurrent
from undamped.testing import (
    NETWORK_CHECKS,
    assert_same,
    check_padding,
    sequences,
    small_network,
    tensors_of,
)

NETWORKS = [
    name
    for name in models
    if isinstance(models[name], type) and issubclass(models[name], Recurrent)
]
# Numbers are written here that no optimiser of torch would leave.
pytestmark = pytest.mark.filterwarnings("ignore:W of full-capacity-urnn is not unitary")
every = pytest.mark.parametrize("name", few_fast(NETWORKS))


def build(name, **options):
    return small_network(partial(undamped.build, name), **options)


@every
@pytest.mark.parametrize("check", NETWORK_CHECKS)
def test_network(name, check):
    # Adam's filter divides by the root of a sum that starts at zero, which magnifies rounding.
    options = {"tolerance": 1e-3} if (name, check) == ("adam-lstm", "single precision") else {}
    NETWORK_CHECKS[check](partial(build, name), **options)


@every
@settings(deadline=None, max_examples=8)
@given(
    data=st.data(),
    time=st.integers(1, 7),
    batch=st.integers(1, 4),
    both=st.booleans(),
    padding=st.sampled_from([0.0, 1e6, float("nan"), float("inf")]),
)
def test_padding_never_changes_anything(name, data, time, batch, both, padding):
    lengths = data.draw(st.lists(st.integers(1, time), min_size=batch, max_size=batch))
    check_padding(
        partial(build, name), lengths=lengths, time=time, padding=padding, bidirectional=both
    )


@every
def test_restart_checks_the_shape(name):
    net = build(name)
    with pytest.raises(ShapeError, match="restart"):
        net.restart(net.initial_state(3), torch.ones(2))


def input_gradient(call, lengths, later=None):
    """Return the input's gradient; `later` is written over the lengths before the backward pass."""
    x = sequences(40).requires_grad_()
    output, _ = call(x, None, lengths)
    if later is not None:
        lengths.copy_(later)
    return torch.autograd.grad(output.square().sum(), x)[0]


@pytest.mark.slow
@every
@pytest.mark.parametrize("block", ["none", "layer-norm"])
def test_lengths_may_be_overwritten_before_the_backward_pass(name, block):
    if block != "none" and not models[name].cell_class.independent_units:
        return
    limits = {} if block == "none" else {"saved_bytes": 0, "all_saved_bytes": 0}
    net = build(name, **({} if block == "none" else {"block": block}))
    for call in (net, net.last, net.mean):
        lengths = torch.tensor([40, 7, 20])
        with kernel_limits(**limits):
            expected = input_gradient(call, lengths.clone())
            assert torch.equal(expected, input_gradient(call, lengths, torch.tensor([3, 40, 40])))


@every
def test_dropout_has_one_mask_per_sequence(name):
    net = build(name, dropout=0.5, hidden_size=50).train()
    x = sequences(1).expand(5, 3, 3)
    seen = []
    layer = net._dropout_mask(torch.zeros(5, 3, 50))
    assert layer.shape == (1, 3, 50)
    assert set(layer.unique().tolist()) == {0.0, 2.0}
    for _ in range(2):
        torch.manual_seed(3)
        seen.append(net(x)[0])
    assert torch.equal(seen[0], seen[1])
    torch.manual_seed(4)
    assert not torch.equal(net(x)[0], seen[0])
    assert torch.equal(net.eval()(x)[0], net(x)[0])


@every
def test_shapes_are_checked(name):
    net = build(name)
    with pytest.raises(ShapeError, match="input_size"):
        net(sequences(size=5))
    with pytest.raises(ShapeError, match="at least one step"):
        net(torch.zeros(0, 3, 3).double())
    with pytest.raises(ShapeError, match="state"):
        net(sequences(), torch.zeros(1, 1, 1).double())
    for lengths in ([7, 1, 1], [0, 1, 1], [1, 1], [1.5, 1.0, 1.0]):
        with pytest.raises(ShapeError, match="lengths must be 3 integers from 1 to 6"):
            net(sequences(), None, torch.tensor(lengths))
    with pytest.raises(OptionError, match="bidirectional"):
        build(name, bidirectional=True).step(sequences()[0])


@pytest.mark.parametrize("name", [n for n in NETWORKS if hasattr(models[n].cell_class, "inverse")])
def test_invertible_cells_run_backwards(name):
    cell = build(name).cell(0)
    x, state = cell.project(sequences()[0]), cell.initial_state(3, sequences())
    constants = cell.constants()
    assert_same(cell.inverse(x, cell.advance(x, state, constants), constants), state, "the inverse")


def test_the_contract_of_a_cell_is_small():
    names = {name for name in dir(Cell) if not name.startswith("_")} - set(dir(torch.nn.Module))
    assert len(names) <= 20, sorted(names)


@every
def test_mixed_precision_stops_at_the_door(name):
    """What is carried a long way is not rounded to eight bits; gradients still flow."""
    net = build(name).float()
    before = torch.nn.Linear(3, 3)
    x = sequences().float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = before(x)
        assert rounded.dtype == torch.bfloat16
        output, _ = net(rounded)
        last, _ = net.last(x)
        step, _ = net.step(x[0])
    assert output.dtype == last.dtype == step.dtype == torch.float32
    assert torch.equal(output, net(rounded.float())[0])
    output.sum().backward()
    assert before.weight.grad is not None


@every
def test_plain_loops_can_be_differentiated_twice(name):
    """A Hessian times a vector, against the difference of two gradients."""
    torch.manual_seed(3)
    net = undamped.build(name, input_size=2, hidden_size=4).double()
    x, direction = torch.randn(2, 5, 3, 2, dtype=torch.float64)

    def slope(at):
        leaf = at.clone().requires_grad_()
        return torch.autograd.grad(net(leaf)[0].square().sum(), leaf)[0]

    step = 1e-5
    expected = (slope(x + step * direction) - slope(x - step * direction)) / (2 * step)
    leaf = x.clone().requires_grad_()
    with undamped.plain_loops():
        loss = net(leaf)[0].square().sum()
    (gradient,) = torch.autograd.grad(loss, leaf, create_graph=True)
    torch.testing.assert_close(gradient, slope(x), rtol=1e-9, atol=1e-9)
    (result,) = torch.autograd.grad((gradient * direction).sum(), leaf)
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-6)


@every
def test_an_empty_batch_is_an_answer_of_size_zero(name):
    net = build(name)
    output, state = net(torch.zeros(6, 0, 3).double())
    assert output.shape == (6, 0, net.output_size)
    assert all(part.shape[1] == 0 for part in tensors_of(state))
    output.sum().backward()
    assert all(p.grad is None or not p.grad.any() for p in net.parameters())
    lengths = torch.zeros(0, dtype=torch.int64)
    assert net(torch.zeros(6, 0, 3).double(), None, lengths)[0].shape == output.shape
    assert net.last(torch.zeros(6, 0, 3).double())[0].shape == (0, net.output_size)
    assert net.step(torch.zeros(0, 3).double())[0].shape == (0, net.output_size)
    other = build(name, batch_first=True)
    assert other(torch.zeros(0, 6, 3).double())[0].shape == (0, 6, net.output_size)
    assert other.last(torch.zeros(0, 6, 3).double())[0].shape == (0, net.output_size)
    assert other.step(torch.zeros(0, 3).double())[0].shape == (0, net.output_size)


@every
def test_types_that_do_not_fit_are_refused(name):
    net, x = build(name), sequences()
    state = net.initial_state(3)
    single = tuple(part.float() for part in tensors_of(state))
    single = single if isinstance(state, tuple) else single[0]
    for call in (lambda: net(x, single), lambda: net.step(x[0], single)):
        with pytest.raises(ShapeError, match=r"state must be torch\.float64, .*float32"):
            call()
    for call in (lambda: net(x.float()), lambda: net.step(x[0].float())):
        with pytest.raises(ShapeError, match=r"input must be torch\.float64, .*float32"):
            call()
    for call in (net, net.step, net.last):
        with pytest.raises(ShapeError, match=r"must be a tensor .* got numpy\.ndarray"):
            call(x.numpy())
    stream = net.stream()
    for sample, match in (
        (x[0, 0].numpy(), r"must be a tensor, got numpy\.ndarray"),
        (x[0, 0].float(), r"must be torch\.float64, .*float32"),
        (x[0, 0, :2], r"must have shape \(1, 3\), got \(2,\)"),
    ):
        with pytest.raises(ShapeError, match=match):
            stream.push(sample)
    packed = pack_padded_sequence(x, torch.tensor([6, 4, 2]))
    with pytest.raises(ShapeError, match=r"one sample .* got a PackedSequence"):
        net.step(packed)
    for call in (net, net.last):
        with pytest.raises(OptionError, match="which contains them"):
            call(packed, None, torch.tensor([6, 4, 2]))


@pytest.mark.parametrize("name", ["rnn", "irnn", "indrnn", "spectral", "scornn", "exprnn"])
def test_minus_infinity_is_zero_after_relu(name):
    options = {} if "ind" in name or name == "irnn" else {"nonlinearity": "relu"}
    net = build(name, num_layers=1, **options)
    with torch.no_grad():
        for key, parameter in net.named_parameters():
            if "weight_ih" in key or "input_weight" in key:
                parameter.fill_(1.0)
    x = sequences()
    x[2, 0] = -torch.inf
    output = net(x)[0]
    assert not output[2, 0].any() and output.isfinite().all()
    with undamped.plain_loops():
        assert_same(net(x)[0], output, "plain loops")


@pytest.mark.parametrize("name", ["cornn", "indrnn", "relrnn", "sab", "linoss", "lru", "mingru"])
def test_second_derivatives_of_the_kernels_are_refused_with_a_remedy(name):
    net, x = build(name), sequences().requires_grad_()
    loss = net(x)[0].square().sum()
    with pytest.raises(OptionError, match="plain_loops"):
        torch.autograd.grad(loss, x, create_graph=True)


@pytest.mark.parametrize("name", ["lstm", "gru", "rnn", "irnn", "rnn-orth"])
def test_second_derivatives_of_torchs_networks_go_through_the_plain_loop(name):
    net, x = build(name), sequences().requires_grad_()
    lengths = torch.full((x.shape[1],), x.shape[0])
    lengths[0] = 1

    def second():
        loss = net(x, lengths=lengths)[0].square().sum()
        (first,) = torch.autograd.grad(loss, x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), [x, *net.parameters()])

    results = second()
    with undamped.plain_loops():
        for result, expected in zip(results, second(), strict=True):
            assert_same(result, expected, name)
