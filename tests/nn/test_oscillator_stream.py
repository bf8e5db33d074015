"""Streams give the bits of a whole sequence."""

import copy
import pickle

import pytest
import torch

import undamped
from undamped._base.errors import OptionError, ShapeError


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("batch", [1, 3, 9])
@pytest.mark.parametrize("name, layers", [("unicornn", 2), ("residual-unicornn", 4)])
def test_streams_equal_the_batch_result(dtype, batch, name, layers):
    torch.manual_seed(0)
    net = undamped.build(name, input_size=6, hidden_size=24, num_layers=layers).to(dtype)
    x = torch.randn(75, batch, 6, dtype=dtype)
    with torch.no_grad():
        output, final = net(x)
    stream = net.stream(batch=batch)
    assert torch.equal(torch.stack([stream.push(sample) for sample in x]), output)
    assert all(torch.equal(a, b) for a, b in zip(stream.state, final, strict=True))
    for gradients in (False, True):
        with torch.set_grad_enabled(gradients):
            state, answers = None, []
            for sample in x[:20]:
                answer, state = net.step(sample, state)
                answers.append(answer.detach())
        assert torch.equal(torch.stack(answers), output[:20])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_odd_widths_agree_to_rounding(dtype):
    torch.manual_seed(0)
    net = undamped.nn.UnICORNN(6, 33, 2).to(dtype)
    x = torch.randn(75, 6, dtype=dtype)
    stream = net.stream()
    pushed = torch.stack([stream.push(sample) for sample in x])
    tolerance = 1e-5 if dtype == torch.float32 else 1e-13
    torch.testing.assert_close(pushed, net(x)[0].detach(), rtol=tolerance, atol=tolerance)


def test_a_stream_goes_on_from_a_state():
    torch.manual_seed(0)
    net = undamped.nn.UnICORNN(2, 8, 2)
    x = torch.randn(30, 2)
    with torch.no_grad():
        output, _ = net(x)
        _, state = net(x[:10])
    stream = net.stream(state)
    assert torch.equal(torch.stack([stream.push(sample) for sample in x[10:]]), output[10:])


def test_step_is_differentiable():
    net = undamped.nn.UnICORNN(2, 3, 2).double()
    x = torch.randn(2, dtype=torch.float64, requires_grad=True)

    def run(x):
        output, state = net.step(x)
        return net.step(2 * x, state)[0] + output

    assert torch.autograd.gradcheck(run, (x,))


def test_a_stream_keeps_the_weights_it_was_made_with():
    net = undamped.nn.UnICORNN(2, 3)
    one, two = net.stream(), net.stream()
    x = torch.ones(2)
    first = one.push(x)
    with torch.no_grad():
        net.cell(0).input_weight.add_(1)
    assert torch.equal(two.push(x), first)
    assert not torch.equal(net.stream().push(x), first)


def test_mistakes_are_explained():
    with pytest.raises(OptionError, match="one direction"):
        undamped.nn.UnICORNN(2, 3, bidirectional=True).stream()
    with pytest.raises(OptionError, match="one direction"):
        undamped.nn.UnICORNN(2, 3, bidirectional=True).step(torch.zeros(2))
    with pytest.raises(ShapeError, match="must have shape"):
        undamped.nn.UnICORNN(2, 3).stream().push(torch.zeros(4))


def test_steps_see_every_change_of_the_parameters():
    """What steps prepare is remembered only as long as it is true."""
    net = undamped.nn.UnICORNN(3, 8, num_layers=2).eval()
    other = undamped.nn.UnICORNN(3, 8, num_layers=2).eval()
    x = torch.randn(2, 3)
    with torch.no_grad():
        first = net.step(x)[0]
        assert torch.equal(net.step(x)[0], first)
        net.cell(1).bias.add_(1.0)
        assert torch.equal(net.step(x)[0], net(x.unsqueeze(0))[0][0])
        net.load_state_dict(other.state_dict())
        assert torch.equal(net.step(x)[0], other.step(x)[0])
        copied = pickle.loads(pickle.dumps(copy.deepcopy(net)))
        copied.cell(0).bias.add_(1.0)
        assert not torch.equal(copied.step(x)[0], net.step(x)[0])
        assert torch.equal(net.double().step(x.double())[0], net(x.double().unsqueeze(0))[0][0])
