"""LSTM and GRU with layer normalisation, zoneout and recurrent dropout."""

import numpy as np
import pytest
import torch

import undamped
from undamped.kernels.coupled.projections import Normalised
from undamped.nn.bases.cell import reference_scan
from undamped.nn.layer_norm import LayerNormGRUCell, LayerNormLSTMCell

CELLS = {"lstm": LayerNormLSTMCell, "gru": LayerNormGRUCell}
OPTIONS = {
    "normalised": {},
    "zoneout": {"layer_norm": False, "zoneout": 0.3},
    "dropout": {"recurrent_dropout": 0.4},
    "all": {"zoneout": 0.3, "recurrent_dropout": 0.4},
}


def cell_of(name, options):
    torch.manual_seed(0)
    memory = {"zoneout_memory": 0.5} if name == "lstm" and options == "all" else {}
    cell = CELLS[name](3, 5, **OPTIONS[options], **memory).double()
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return cell


def same_masks(cell):
    """Return the function that gives a plain loop the masks of the kernel."""

    def masks(x):
        seed = torch.randint(2**62, (1,))
        sizes = tuple(count * cell.hidden_size for count in cell.parts)
        plan = Normalised(cell.hidden_size, sizes, cell.rates, cell.recurrent_dropout, seed)
        columns = x.new_empty(*x.shape[:2], (len(cell.rates) + 1) * cell.hidden_size)
        plan.fill_masks(columns, 0, 0)
        return columns.split(cell.hidden_size, -1)

    return masks


def one_pass(scan, cell, x, state, lengths=None):
    """Return values and gradients of a scan of a cell."""
    leaves = [tensor.clone().requires_grad_() for tensor in (x, *state)]
    torch.manual_seed(1)
    output, final = scan(cell, leaves[0], tuple(leaves[1:]), lengths)
    weights = torch.cos(torch.arange(output.numel(), dtype=torch.float64)).view_as(output)
    loss = (output * weights.to(x)).sum() + sum(part.pow(2).sum() for part in final)
    return [output, *final, *torch.autograd.grad(loss, [*leaves, *cell.parameters()])]


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", CELLS)
def test_the_kernel_is_the_equation(name, options, training, ragged, monkeypatch):
    cell = cell_of(name, options)
    cell.train(training)
    if training and cell.rates:
        monkeypatch.setattr(cell, "_masks", same_masks(cell))
    x = torch.randn(40, 4, 3, dtype=torch.float64)
    state = tuple(torch.randn(4, 5, dtype=torch.float64) for _ in cell.state_names)
    lengths = torch.tensor([40, 0, 17, 39]) if ragged else None
    kernels, plains = (
        one_pass(scan, cell, x, state, lengths) for scan in (type(cell).scan, reference_scan)
    )
    for kernel, plain in zip(kernels, plains, strict=True):
        torch.testing.assert_close(kernel, plain, rtol=1e-9, atol=1e-10)


def test_gradcheck():
    for name in CELLS:
        cell = cell_of(name, "normalised")
        state = tuple(torch.randn(2, 5, dtype=torch.float64) for _ in cell.state_names)
        x = torch.randn(4, 2, 3, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(lambda x, c=cell, s=state: c.scan(x, s)[0], x)


@pytest.mark.parametrize("options", ["normalised", "all"])
@pytest.mark.parametrize("name", CELLS)
def test_second_derivatives_are_those_of_the_same_masks(name, options):
    cell = cell_of(name, options)
    state = tuple(torch.randn(2, 5, dtype=torch.float64) for _ in cell.state_names)
    x = torch.randn(4, 2, 3, dtype=torch.float64, requires_grad=True)

    def output(x):
        torch.manual_seed(2)
        return cell.scan(x, state)[0]

    assert torch.autograd.gradgradcheck(output, x)


def test_threads_and_compilation_do_not_change_the_masks():
    torch.manual_seed(0)
    options = {"zoneout": 0.3, "recurrent_dropout": 0.4}
    net = undamped.nn.LayerNormLSTM(3, 16, **options)
    x, threads, results = torch.randn(100, 32, 3), torch.get_num_threads(), []
    try:
        for call, count in ((net, 1), (net, 2), (torch.compile(net, backend="eager"), 2)):
            torch.set_num_threads(count)
            torch.manual_seed(1)
            output = call(x)[0]
            gradients = torch.autograd.grad(output.sum(), list(net.parameters()))
            results.append([output, gradients])
    finally:
        torch.set_num_threads(threads)
    for output, gradients in results[1:]:
        assert torch.equal(output, results[0][0])
        torch.testing.assert_close(gradients, results[0][1], rtol=1e-4, atol=1e-4)


def test_rates_of_the_masks():
    seed = torch.tensor([7])
    plan = Normalised(50, (200,), (0.2, 0.7), 0.25, seed)
    columns = torch.empty(60, 40, 150, dtype=torch.float64)
    plan.fill_masks(columns, 0, 0)
    memory, hidden, factor = columns.split(50, -1)
    assert abs(memory.mean() - 0.2) < 0.005 and abs(hidden.mean() - 0.7) < 0.005
    assert abs((factor == 0).double().mean() - 0.25) < 0.03
    assert torch.equal(factor, factor[:1].expand_as(factor)) and abs(factor.max() - 4 / 3) < 1e-12
    part = torch.empty(10, 5, 150, dtype=torch.float64)
    plan.fill_masks(part, 30, 20)
    assert torch.equal(part, columns[30:40, 20:25])
    flat = memory.reshape(60, -1).numpy() - 0.2
    correlation = np.corrcoef(flat[:-1].ravel(), flat[1:].ravel())[0, 1]
    assert abs(correlation) < 0.01


def test_masks_change_from_call_to_call_and_not_in_evaluation():
    net = undamped.nn.LayerNormLSTM(3, 8, zoneout=0.5)
    x = torch.randn(20, 2, 3)
    assert not torch.equal(net(x)[0], net(x)[0])
    net.eval()
    assert torch.equal(net(x)[0], net(x)[0])
    torch.testing.assert_close(net(x)[0][-1], steps_of(net, x))


def steps_of(net, x):
    state = None
    for x_t in x:
        y, state = net.step(x_t, state)
    return y


def test_without_options_it_is_an_lstm():
    net = undamped.nn.LayerNormLSTM(3, 6, layer_norm=False)
    other = torch.nn.LSTM(3, 6)
    cell = net.cells[0]
    with torch.no_grad():
        other.weight_ih_l0.copy_(cell.input_weight)
        other.weight_hh_l0.copy_(cell.weight_hh)
        other.bias_ih_l0.copy_(cell.bias)
        other.bias_hh_l0.zero_()
    x = torch.randn(30, 4, 3)
    torch.testing.assert_close(net(x)[0], other(x)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("options", ["normalised", "all"])
@pytest.mark.parametrize("name", CELLS)
def test_single_precision_over_a_thousand_steps(name, options):
    cell = cell_of(name, options)
    with torch.no_grad():
        # With a gain this small the network forgets, so that rounding errors do not grow.
        cell.hidden_gain.mul_(0.1)
    x = torch.randn(1000, 4, 3, dtype=torch.float64)
    state = tuple(torch.randn(4, 5, dtype=torch.float64) for _ in cell.state_names)
    exact = one_pass(type(cell).scan, cell, x, state)
    cell.float()
    rounded = one_pass(type(cell).scan, cell, x.float(), tuple(part.float() for part in state))
    for value, reference in zip(rounded, exact, strict=True):
        assert (value.double() - reference).norm() < 5e-6 * reference.norm()
