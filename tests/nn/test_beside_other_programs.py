"""Values and gradients beside other people's programs, in double precision, over many steps.

`docs/checked-against.md` says what else was executed, and what differs on purpose.
"""

import pytest
import torch

import undamped

torchrecurrent = pytest.importorskip("torchrecurrent")
STEPS, BATCH, INPUTS, UNITS = 300, 3, 4, 6


def moved(module):
    """Off its start, so that nothing is zero or one by accident."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=0.3)
    return module.double()


def theirs(cell, x, doubled):
    """Walk their cell through time; the output is the first part of the state."""
    zeros = x.new_zeros(x.shape[1], UNITS)
    state, outputs = (zeros, zeros) if doubled else zeros, []
    for x_t in x:
        state = cell(x_t, state)
        outputs.append(state[0] if doubled else state)
    return torch.stack(outputs)


def compare(net, cell, doubled=False):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(STEPS, BATCH, INPUTS, generator=generator, dtype=torch.float64)
    one, two = x.clone().requires_grad_(), x.clone().requires_grad_()
    ours, other = net(one)[0], theirs(cell, two, doubled)
    torch.testing.assert_close(ours, other, rtol=1e-10, atol=1e-11)
    weight = torch.randn(ours.shape, generator=generator, dtype=torch.float64)
    (ours * weight).sum().backward()
    (other * weight).sum().backward()
    torch.testing.assert_close(one.grad, two.grad, rtol=1e-8, atol=1e-10)


def copy_(target, source):
    target.data.copy_(source.data)


def test_cornn():
    cell = moved(torchrecurrent.coRNNCell(INPUTS, UNITS, gamma=2.7, epsilon=4.7, dt=0.042))
    net = undamped.nn.coRNN(INPUTS, UNITS, dt=0.042, gamma=2.7, epsilon=4.7).double()
    copy_(net.cell(0).input_weight, cell.weight_ih)
    copy_(net.cell(0).weight_hh, torch.cat([cell.weight_hh, cell.weight_ch], dim=1))
    copy_(net.cell(0).bias, cell.bias_ih + cell.bias_hh + cell.bias_ch)
    compare(net, cell, doubled=True)


def test_unicornn():
    cell = moved(torchrecurrent.UnICORNNCell(INPUTS, UNITS, dt=0.19, alpha=30.65))
    net = undamped.nn.UnICORNN(INPUTS, UNITS, dt=0.19, alpha=30.65).double()
    copy_(net.cell(0).input_weight, cell.weight_ih)
    copy_(net.cell(0).weight, cell.weight_hh)
    copy_(net.cell(0).step_logit, cell.weight_ch)
    copy_(net.cell(0).bias, cell.bias_ih + cell.bias_hh)
    compare(net, cell, doubled=True)


def test_indrnn():
    cell = moved(torchrecurrent.IndRNNCell(INPUTS, UNITS, nonlinearity=torch.relu))
    net = undamped.nn.IndRNN(INPUTS, UNITS).double()
    copy_(net.cell(0).input_weight, cell.weight_ih)
    copy_(net.cell(0).weight, cell.vector_u.clamp(-1, 1))
    copy_(net.cell(0).bias, cell.bias_ih + cell.bias_hh)
    cell.vector_u.data.clamp_(-1, 1)
    compare(net, cell)


@pytest.mark.parametrize("gated", [False, True])
def test_antisymmetric(gated):
    name = "GatedAntisymmetricRNN" if gated else "AntisymmetricRNN"
    cell = moved(getattr(torchrecurrent, f"{name}Cell")(INPUTS, UNITS, epsilon=0.05, gamma=0.01))
    net = getattr(undamped.nn, name)(INPUTS, UNITS, step=0.05, diffusion=0.01).double()
    ours = net.cell(0)
    skew = cell.weight_hh - cell.weight_hh.T
    copy_(ours.parametrizations["weight"].original, skew.triu(1))
    if gated:  # the gate has its own half of the projection, the second half here
        gate, value = cell.weight_ih.chunk(2)
        gate_bias, value_bias = cell.bias_ih.chunk(2)
        cell.bias_hh.data.zero_()
        copy_(ours.input_weight, torch.cat([value, gate]))
        copy_(ours.bias, torch.cat([value_bias, gate_bias]))
    else:
        copy_(ours.input_weight, cell.weight_ih)
        copy_(ours.bias, cell.bias_ih + cell.bias_hh)
    compare(net, cell)


@pytest.mark.slow
def test_fastrnn():
    cell = moved(torchrecurrent.FastRNNCell(INPUTS, UNITS, nonlinearity=torch.tanh))
    net = undamped.nn.FastRNN(INPUTS, UNITS).double()
    ours = net.cell(0)
    copy_(ours.input_weight, cell.weight_ih)
    copy_(ours.weight_hh, cell.weight_hh)
    copy_(ours.bias, cell.bias_ih + cell.bias_hh)
    copy_(ours.new_logit, cell.alpha.reshape(ours.new_logit.shape))
    copy_(ours.old_logit, cell.beta.reshape(ours.old_logit.shape))
    compare(net, cell)


def test_fastgrnn():
    cell = moved(torchrecurrent.FastGRNNCell(INPUTS, UNITS, nonlinearity=torch.sigmoid))
    net = undamped.nn.FastGRNN(INPUTS, UNITS).double()
    ours = net.cell(0)
    gate, value = (cell.bias_ih + cell.bias_hh).chunk(2)
    copy_(ours.input_weight, cell.weight_ih)
    copy_(ours.weight_hh, cell.weight_hh)
    copy_(ours.gate_bias, gate)
    copy_(ours.bias, value)
    copy_(ours.closed_logit, cell.zeta.reshape(ours.closed_logit.shape))
    copy_(ours.always_logit, cell.nu.reshape(ours.always_logit.shape))
    compare(net, cell)
