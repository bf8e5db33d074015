"""The paper's bounds: where they hold, where they do not, and the ones that always do."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import undamped
from undamped._base.errors import OptionError
from undamped.analysis import (
    gradient_bound,
    inversion_error,
    long_term_gradient,
    phase_volume,
    state_bound,
)


def network(hidden=4, layers=1, **options):
    torch.manual_seed(0)
    return undamped.nn.UnICORNN(2, hidden, layers, **options).double()


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(
    steps=st.integers(1, 150),
    layers=st.integers(1, 3),
    dt=st.sampled_from([0.01, 0.1, 0.3, 0.6]),
    alpha=st.sampled_from([0.0, 0.01, 1.0, 9.0, 30.0]),
    size=st.sampled_from([0.1, 10.0]),
)
def test_corrected_bounds_always_hold(steps, layers, dt, alpha, size):
    net = network(layers=layers, dt=dt, alpha=alpha)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(2).sub_(0.5)
    x = size * torch.randn(steps, 1, 2, dtype=torch.float64)
    assert state_bound(net, x).corrected_holds
    assert gradient_bound(net, x, torch.randn(steps, 1, 4, dtype=torch.float64)).corrected_holds


def test_printed_bounds_hold_where_their_condition_does():
    net = network(dt=0.01, alpha=1.0)
    x = torch.randn(20, 1, 2, dtype=torch.float64)
    states = state_bound(net, x)
    assert states.condition_holds and states.printed_holds and states.corrected_holds
    gradients = gradient_bound(net, x[:5], torch.zeros(5, 1, 4, dtype=torch.float64))
    assert gradients.condition_holds and gradients.printed_holds
    assert gradients.printed > gradients.printed_appendix
    json.dumps([states.to_dict(), gradients.to_dict()])


def test_resonance_breaks_the_printed_state_bound():
    net = network(hidden=1, dt=0.1, alpha=1.0)
    with torch.no_grad():
        net.cell(0).weight.zero_()
        net.cell(0).step_logit.fill_(20.0)
        net.cell(0).input_weight.copy_(torch.tensor([[50.0, 0.0]]))
    # A force that changes its sign with the oscillator's own period, 2π.
    time = 0.1 * torch.arange(1500, dtype=torch.float64)
    x = torch.sin(time).sign().view(-1, 1, 1).expand(-1, 1, 2)
    result = state_bound(net, x)
    assert not result.condition_holds
    assert not result.printed_holds
    assert result.corrected_holds


def test_negative_weights_break_the_printed_gradient_bound():
    net = network(hidden=1, dt=0.3, alpha=0.1)
    with torch.no_grad():
        net.cell(0).weight.fill_(-4.0)
        net.cell(0).step_logit.fill_(20.0)
        net.cell(0).input_weight.zero_()
    x = torch.zeros(40, 1, 2, dtype=torch.float64)
    result = gradient_bound(net, x, torch.full((40, 1, 1), 1.0, dtype=torch.float64))
    assert not result.condition_holds
    assert not result.printed_holds
    assert result.corrected_holds


def test_long_term_gradient():
    net = network(hidden=2, dt=0.001, alpha=1.0)
    x = torch.randn(60, 1, 2, dtype=torch.float64)
    target = torch.ones(2, dtype=torch.float64)
    short = long_term_gradient(net, x, target, neuron=1)
    assert short.condition_holds
    assert short.error_of(short.corrected) < 1e-3
    assert short.error_of(short.printed) > 0.1  # t_n where t_n − t_(k−1) belongs
    # Against autograd, whose gradient is the sum over k.
    _, (position, _) = net(x)
    loss = 0.5 * ((position[0, 0] - target) ** 2).sum()
    (gradient,) = torch.autograd.grad(loss, [net.cell(0).weight])
    assert sum(short.measured) == pytest.approx(float(gradient[1]), rel=1e-9)

    long = long_term_gradient(network(hidden=2, dt=0.1, alpha=9.0), x, target)
    assert not long.condition_holds
    assert long.error_of(long.corrected) < 0.1 < long.error_of(long.printed)
    json.dumps(long.to_dict())


def test_volume_and_inverse():
    net, x = network(layers=2, dt=0.3, alpha=30.0), torch.randn(200, 2, 2, dtype=torch.float64)
    assert np.abs(phase_volume(net, x, steps=200).log_volume).max() < 1e-13
    errors = inversion_error(net, x, lengths=(1, 200)).errors
    assert errors[0] < 1e-14 and errors[1] < 1e-11


def test_only_for_the_network_of_the_paper():
    net = undamped.nn.ResidualUnICORNN(2, 3, 3)
    with pytest.raises(OptionError, match="unidirectional"):
        state_bound(net, torch.zeros(3, 1, 2))
    with pytest.raises(OptionError, match="num_layers=1"):
        long_term_gradient(network(layers=2), torch.zeros(3, 1, 2).double(), torch.zeros(4))
