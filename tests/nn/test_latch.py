"""The networks latch and latch-gru: closed gates hold a state exactly, for any time."""

import pytest
import torch

import undamped
from undamped.kernels import kernel_limits
from undamped.nn import in_chunks


def closed(net):
    """Close all gates for inputs below zero, and open them for inputs above one."""
    with torch.no_grad():
        for layer in range(net.num_layers):
            cell = net.cell(layer)
            cell.input_weight[: cell.hidden_size] = 0.0
            cell.input_weight[: cell.hidden_size, -1] = 8.0
            cell.bias[: cell.hidden_size] = -4.0
            if hasattr(cell, "weight_hh"):
                cell.weight_hh[: cell.hidden_size] = 0.0
    return net


@pytest.mark.parametrize("network", [undamped.nn.Latch, undamped.nn.LatchGRU])
def test_a_closed_gate_holds_the_state_to_the_last_bit(network):
    torch.manual_seed(0)
    net = closed(network(3, 16, num_layers=2 if network is undamped.nn.Latch else 1))
    x = torch.randn(20_001, 2, 3)
    x[..., -1] = 0.0
    x[0, :, -1] = 1.0
    output, state = net(x)
    assert torch.equal(output[0], output[-1])
    first, _ = net(x[:1])
    torch.testing.assert_close(output[-1], first[0])  # products of other sizes round otherwise
    assert output[-1].abs().max() > 0.5 and state.shape == (net.num_layers, 2, 16)


def test_the_gradient_through_closed_gates_is_one():
    torch.manual_seed(0)
    net = closed(undamped.nn.Latch(3, 4).double())
    state = torch.randn(1, 1, 4, dtype=torch.float64, requires_grad=True)
    x = torch.zeros(5_000, 1, 3, dtype=torch.float64)
    _, final = net(x, state)
    (gradient,) = torch.autograd.grad(final.sum(), state)
    assert torch.equal(gradient, torch.ones_like(gradient))


def test_slow_gates_are_at_most_half_open_and_have_a_slope_of_one():
    torch.manual_seed(0)
    cell, zero = undamped.nn.Latch(3, 64, slow_gates=True).cell(0), torch.zeros(1, 3)
    opening = 1 - cell.parts(zero)[0][0]
    assert 0 <= opening.min() < 0.05 and 0.4 < opening.max() <= 0.5
    torch.testing.assert_close(opening, 0.5 + cell.bias[:64])
    closing = undamped.nn.Latch(3, 64).cell(0).parts(zero)[0]
    assert closing.min() < 0.5 < closing.max()


def test_later_layers_read_the_input_too():
    net = undamped.nn.Latch(3, 16, num_layers=3)
    assert [net.cell(layer).input_size for layer in range(3)] == [3, 19, 19]


@pytest.mark.parametrize(("dtype", "error"), [(torch.float64, 1e-12), (torch.float32, 1e-4)])
def test_chunks_of_time_change_nothing(dtype, error):
    torch.manual_seed(0)
    net = undamped.nn.Latch(5, 16, num_layers=3).to(dtype)
    x, lengths = torch.randn(3_000, 4, 5, dtype=dtype), torch.tensor([3_000, 17, 1, 2_000])

    def gradients():
        output, _ = net.last(x, lengths=lengths)
        return torch.autograd.grad(output.square().sum(), list(net.parameters()))

    complete = gradients()
    with kernel_limits(saved_bytes=6):
        assert in_chunks.should_chunk(net, x)
        in_parts = gradients()
    for gradient, expected in zip(in_parts, complete, strict=True):
        assert (gradient - expected).abs().max() <= error * expected.abs().max() + error
