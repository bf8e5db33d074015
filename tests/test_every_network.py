"""What every recurrent network must do, whatever its cell: one suite over the registry."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import undamped
from undamped._base.errors import OptionError, ShapeError
from undamped._base.registry import models
from undamped.nn import in_chunks
from undamped.nn.recurrent import Recurrent

NETWORKS = [
    name
    for name in models
    if isinstance(models[name], type) and issubclass(models[name], Recurrent)
]
# Numbers are written here that no optimiser of torch would leave.
pytestmark = pytest.mark.filterwarnings("ignore:full-capacity-urnn. expected W on the unitary")
every = pytest.mark.parametrize("name", NETWORKS)


def build(name, **options):
    torch.manual_seed(7)
    chosen = {"input_size": 3, "hidden_size": 4, "num_layers": 2, **options}
    return undamped.build(name, **chosen).double().eval()


def inputs(time=6, batch=3, size=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(time, batch, size, generator=generator, dtype=torch.float64)


def parts(state):
    return (state,) if isinstance(state, torch.Tensor) else state


def same(a, b, tolerance=1e-11):
    for left, right in zip(parts(a), parts(b), strict=True):
        torch.testing.assert_close(left, right, atol=tolerance, rtol=tolerance)


@every
def test_some_samples_begin_anew(name):
    net = build(name, num_layers=1)
    with torch.no_grad():
        _, state = net(inputs())
        again = net.restart(state, torch.tensor([False, True, False]))
        goes_on, _ = net(inputs(seed=1), again)
        same(goes_on[:, 1:2], net(inputs(seed=1)[:, 1:2])[0])
        same(goes_on[:, 0], net(inputs(seed=1), state)[0][:, 0])
        anew = net.restart(state, torch.ones(3))
        assert [part.shape for part in parts(anew)] == [
            part.shape for part in parts(net.initial_state(3))
        ]
    with pytest.raises(ShapeError, match="restart: ended"):
        net.restart(state, torch.ones(2))


def alike(part, other):
    """Return as much of a state that grows as another has; what is left over must be empty."""
    if part.shape == other.shape:
        return part
    assert not part[..., other.shape[-1] :].any()
    return part[..., : other.shape[-1]]


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
    """Outputs, final states and all gradients are those of each sequence on its own."""
    lengths = torch.tensor(
        data.draw(st.lists(st.integers(1, time), min_size=batch, max_size=batch))
    )
    net = build(name, bidirectional=both)
    x = inputs(time, batch)
    padded = x.clone()
    for i, length in enumerate(lengths):
        padded[length:, i] = padding
    padded.requires_grad_(True)
    output, state = net(padded, None, lengths)
    last, _ = net.last(padded.detach(), None, lengths)
    weight = torch.randn(
        output.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64
    )
    loss = (output * weight).sum() + sum(part.square().sum() for part in parts(state))
    loss.backward()
    together = {n: p.grad for n, p in net.named_parameters() if p.grad is not None}
    alone = copy.deepcopy(net)
    alone.zero_grad()
    for i, length in enumerate(lengths.tolist()):
        one = x[:length, i : i + 1].clone().requires_grad_(True)
        y, s = alone(one)
        (
            (y * weight[:length, i : i + 1]).sum() + sum(p.square().sum() for p in parts(s))
        ).backward()
        same(output[:length, i : i + 1], y)
        assert not output[length:, i].any()
        same(
            tuple(alike(p[:, i : i + 1], q) for p, q in zip(parts(state), parts(s), strict=True)), s
        )
        same(last[i : i + 1], alone.last(one.detach())[0])
        same(padded.grad[:length, i : i + 1], one.grad, 1e-9)
        assert not padded.grad[length:, i].any()
    for n, p in alone.named_parameters():
        if p.grad is not None:
            same(together[n], p.grad, 1e-9)


@every
def test_packed_sequences_give_the_same(name):
    net = build(name, bidirectional=True)
    x, lengths = inputs(), torch.tensor([2, 6, 4])
    output, state = net(x, None, lengths)
    packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
    packed_output, packed_state = net(packed)
    assert torch.equal(packed_output.sorted_indices, packed.sorted_indices)
    unpacked, counted = pad_packed_sequence(packed_output)
    assert torch.equal(counted, lengths)
    same(unpacked, output)
    same(packed_state, state)


@every
def test_streaming_equals_the_whole_sequence(name):
    net = build(name)
    x = inputs(9)
    output, final = net(x)
    state, streamed = None, []
    for x_t in x:
        y, state = net.step(x_t, state)
        streamed.append(y)
    same(torch.stack(streamed), output)
    same(state, final)


@every
def test_state_carries_over(name):
    net = build(name)
    x = inputs(10)
    output, final = net(x)
    first, state = net(x[:4])
    second, state = net(x[4:], state)
    same(torch.cat([first, second]), output)
    same(state, final)


@every
def test_last_is_the_end_of_the_output(name):
    net = build(name)
    x = inputs()
    output, state = net(x)
    last, same_state = net.last(x)
    same(last, output[-1])
    same(same_state, state)
    weights = list(net.parameters())
    of_last, of_output = (
        torch.autograd.grad(end.square().sum(), weights, allow_unused=True)
        for end in (last, output[-1])
    )
    for one, other in zip(of_last, of_output, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            same(one, other)


@every
def test_batch_first_and_no_batch(name):
    net = build(name)
    other = build(name, batch_first=True)
    other.load_state_dict(net.state_dict())
    x = inputs()
    output, state = net(x)
    turned, turned_state = other(x.transpose(0, 1))
    same(turned.transpose(0, 1), output)
    same(turned_state, state)
    one, one_state = net(x[:, 0])
    same(one, output[:, 0])
    same(one_state, tuple(p[:, 0] for p in parts(state)))
    step, _ = net.step(x[0, 0])
    same(step, output[0, 0])


@every
def test_any_stride(name):
    net = build(name)
    x = inputs(6, 3)
    strided = x.transpose(0, 1).contiguous().transpose(0, 1)
    assert not strided.is_contiguous()
    same(net(strided)[0], net(x)[0])


@every
def test_gradients_are_those_of_finite_differences(name):
    net = build(name, num_layers=1, hidden_size=3, input_size=2)
    x = inputs(4, 2, 2).requires_grad_(True)
    state = tuple(
        torch.rand_like(part).add_(0.1).requires_grad_(True) for part in parts(net.initial_state(2))
    )

    def run(x, *state):
        output, final = net(x, state if len(state) > 1 else state[0])
        return output, *parts(final)

    assert torch.autograd.gradcheck(run, (x, *state))


@every
def test_parameters_have_gradients_of_finite_differences(name):
    net = build(name, num_layers=2, hidden_size=3, input_size=2)
    x = inputs(4, 2, 2)
    names = [n for n, p in net.named_parameters() if p.requires_grad]
    # A little off the initial values, where relu networks sit exactly on their kink.
    values = tuple(
        (p.detach() + 0.1 * torch.randn_like(p)).requires_grad_(True)
        for p in (dict(net.named_parameters())[n] for n in names)
    )

    def run(*values):
        output, _ = torch.func.functional_call(net, dict(zip(names, values, strict=True)), (x,))
        return output

    assert torch.autograd.gradcheck(run, values)


@every
def test_weights_survive_a_state_dict(name):
    net = build(name)
    other = undamped.build(name, input_size=3, hidden_size=4, num_layers=2).double().eval()
    other.load_state_dict(net.state_dict())
    assert torch.equal(other(inputs())[0], net(inputs())[0])


@every
def test_the_same_seed_gives_the_same_network(name):
    one, two = build(name), build(name)
    assert torch.equal(one(inputs())[0], two(inputs())[0])


@every
def test_float32_and_float64_agree(name):
    net = build(name)
    single = copy.deepcopy(net).float()
    output = single(inputs().float())[0]
    assert output.dtype == torch.float32
    # Adam's filter divides by the root of a sum that starts at zero: rounding is magnified there.
    same(output.double(), net(inputs())[0], 1e-3 if name == "adam-lstm" else 1e-4)


def input_gradient(call, lengths, later=None):
    """Return the input's gradient; `later` is written over the lengths before the backward pass."""
    x = inputs(40).requires_grad_()
    output, _ = call(x, None, lengths)
    if later is not None:
        lengths.copy_(later)
    return torch.autograd.grad(output.square().sum(), x)[0]


@every
@pytest.mark.parametrize("block", ["none", "layer-norm"])
def test_lengths_may_be_overwritten_before_the_backward_pass(name, block, monkeypatch):
    if block != "none":
        if not models[name].cell_class.independent_units:
            return
        for limit in ("KEPT_BYTES", "WHOLE_BYTES"):
            monkeypatch.setattr(in_chunks, limit, 0)
    net = build(name, **({} if block == "none" else {"block": block}))
    for call in (net, net.last, net.mean):
        lengths = torch.tensor([40, 7, 20])
        expected = input_gradient(call, lengths.clone())
        assert torch.equal(expected, input_gradient(call, lengths, torch.tensor([3, 40, 40])))


@every
def test_dropout_has_one_mask_per_sequence(name):
    net = build(name, dropout=0.5, hidden_size=50).train()
    x = inputs(1).expand(5, 3, 3)
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
        net(inputs(size=5))
    with pytest.raises(ShapeError, match="at least one step"):
        net(torch.zeros(0, 3, 3).double())
    with pytest.raises(ShapeError, match="state"):
        net(inputs(), torch.zeros(1, 1, 1).double())
    for lengths in ([7, 1, 1], [0, 1, 1], [1, 1], [1.5, 1.0, 1.0]):
        with pytest.raises(ShapeError, match="lengths: expected 3 whole numbers from 1 to 6"):
            net(inputs(), None, torch.tensor(lengths))
    with pytest.raises(OptionError, match="bidirectional"):
        build(name, bidirectional=True).step(inputs()[0])


@every
def test_only_invertible_cells_run_backwards(name):
    net = build(name)
    cell = net.cell(0)
    x, state = cell.project(inputs()[0]), cell.initial_state(3, inputs())
    if cell.invertible:
        constants = cell.constants()
        same(cell.inverse(x, cell.advance(x, state, constants), constants), state)
    else:
        with pytest.raises(OptionError, match="invertible"):
            cell.inverse(x, state, cell.constants())


@every
def test_mixed_precision_stops_at_the_door(name):
    """What is carried a long way is not rounded to eight bits; gradients still flow."""
    net = build(name).float()
    before = torch.nn.Linear(3, 3)
    x = inputs().float()
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
    (found,) = torch.autograd.grad((gradient * direction).sum(), leaf)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


@every
def test_an_empty_batch_is_an_answer_of_size_zero(name):
    net = build(name)
    output, state = net(torch.zeros(6, 0, 3).double())
    assert output.shape == (6, 0, net.output_size)
    assert all(part.shape[1] == 0 for part in parts(state))
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
@pytest.mark.parametrize("batch_first", [False, True])
def test_the_end_of_packed_sequences(name, batch_first):
    net = build(name, bidirectional=True, batch_first=batch_first)
    x, lengths = inputs(), torch.tensor([2, 6, 4])
    packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
    last, state = net.last(packed)
    expected, expected_state = net.last(x.transpose(0, 1) if batch_first else x, None, lengths)
    same(last, expected)
    same(state, expected_state)


@every
def test_types_that_do_not_fit_are_refused(name):
    net, x = build(name), inputs()
    state = net.initial_state(3)
    single = tuple(part.float() for part in parts(state))
    single = single if isinstance(state, tuple) else single[0]
    for call in (lambda: net(x, single), lambda: net.step(x[0], single)):
        with pytest.raises(ShapeError, match=r"state: expected torch\.float64, .*float32"):
            call()
    for call in (lambda: net(x.float()), lambda: net.step(x[0].float())):
        with pytest.raises(ShapeError, match=r"input: expected torch\.float64, .*float32"):
            call()
    for call in (net, net.step, net.last):
        with pytest.raises(ShapeError, match=r"expected a tensor .* got numpy\.ndarray"):
            call(x.numpy())
    stream = net.stream()
    for sample, match in (
        (x[0, 0].numpy(), r"expected a tensor, got numpy\.ndarray"),
        (x[0, 0].float(), r"expected torch\.float64, .*float32"),
        (x[0, 0, :2], r"expected shape \(1, 3\), got \(2,\)"),
    ):
        with pytest.raises(ShapeError, match=match):
            stream.push(sample)
    packed = pack_padded_sequence(x, torch.tensor([6, 4, 2]))
    with pytest.raises(ShapeError, match=r"one sample .* got a PackedSequence"):
        net.step(packed)
    for call in (net, net.last):
        with pytest.raises(OptionError, match="which says its lengths itself"):
            call(packed, None, torch.tensor([6, 4, 2]))


@every
@torch.no_grad()
def test_outputs_may_be_changed_without_changing_the_state(name):
    net, x = build(name), inputs()
    for call in (net, net.last, lambda x: net.step(x[0])):
        output, state = call(x)
        before = [part.clone() for part in parts(state)]
        output.fill_(7.0)
        same(parts(state), before, 0)


@pytest.mark.parametrize("name", ["rnn", "irnn", "indrnn", "spectral", "scornn", "exprnn"])
def test_minus_infinity_is_zero_after_relu(name):
    options = {} if "ind" in name or name == "irnn" else {"nonlinearity": "relu"}
    net = build(name, num_layers=1, **options)
    with torch.no_grad():
        for key, parameter in net.named_parameters():
            if "weight_ih" in key or "input_weight" in key:
                parameter.fill_(1.0)
    x = inputs()
    x[2, 0] = -torch.inf
    output = net(x)[0]
    assert not output[2, 0].any() and output.isfinite().all()
    with undamped.plain_loops():
        same(net(x)[0], output)


@pytest.mark.parametrize("name", ["lstm", "indrnn", "relrnn", "sab", "linoss", "lru", "mingru"])
def test_second_derivatives_of_the_kernels_are_refused_with_a_remedy(name):
    net, x = build(name), inputs().requires_grad_()
    loss = net(x)[0].square().sum()
    with pytest.raises(OptionError, match="plain_loops"):
        torch.autograd.grad(loss, x, create_graph=True)
