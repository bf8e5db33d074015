"""Elman, LSTM, GRU and UnICORNN against their equations in NumPy, values and gradients."""

import numpy as np
import pytest
import torch

import oracles
import undamped
from undamped._base.errors import OptionError
from undamped.nn.bases.cell import reference_scan
from undamped.parametrizations import orthogonal_start, random_orthogonal
from undamped.parametrizations.initial import block_diagonal, henaff

T, B, D, H = 7, 3, 4, 5


def data(hidden=H):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(T, B, D, generator=generator, dtype=torch.float64)
    s = torch.randn(2, 1, B, hidden, generator=generator, dtype=torch.float64)
    return x, s[0], s[1]


def arrays(cell):
    return {name: p.detach().numpy() for name, p in cell.named_parameters()}


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
def test_elman(nonlinearity):
    net = undamped.nn.RNN(D, H, nonlinearity=nonlinearity).double()
    x, h, _ = data()
    output, final = net(x, h)
    p = arrays(net.cell(0))
    phi = np.tanh if nonlinearity == "tanh" else lambda a: np.maximum(a, 0)
    expected, last = oracles.elman(
        x.numpy(), h[0].numpy(), p["weight_ih"], p["weight_hh"], p["bias_ih"] + p["bias_hh"], phi
    )
    np.testing.assert_allclose(output.detach(), expected, atol=1e-12)
    np.testing.assert_allclose(final[0].detach(), last, atol=1e-12)


def test_lstm():
    net = undamped.nn.LSTM(D, H).double()
    x, h, c = data()
    output, (h_n, c_n) = net(x, (h, c))
    p = arrays(net.cell(0))
    expected, h_e, c_e = oracles.lstm(
        x.numpy(),
        h[0].numpy(),
        c[0].numpy(),
        p["weight_ih"],
        p["weight_hh"],
        p["bias_ih"] + p["bias_hh"],
    )
    np.testing.assert_allclose(output.detach(), expected, atol=1e-12)
    np.testing.assert_allclose(h_n[0].detach(), h_e, atol=1e-12)
    np.testing.assert_allclose(c_n[0].detach(), c_e, atol=1e-12)


def test_gru():
    net = undamped.nn.GRU(D, H).double()
    x, h, _ = data()
    output, final = net(x, h)
    p = arrays(net.cell(0))
    expected, last = oracles.gru(
        x.numpy(), h[0].numpy(), p["weight_ih"], p["weight_hh"], p["bias_ih"], p["bias_hh"]
    )
    np.testing.assert_allclose(output.detach(), expected, atol=1e-12)
    np.testing.assert_allclose(final[0].detach(), last, atol=1e-12)


@pytest.mark.parametrize("alpha", [0.0, 1.0, 30.0])
def test_unicornn_two_layers(alpha):
    net = undamped.nn.UnICORNN(D, H, num_layers=2, dt=[0.2, 0.05], alpha=alpha).double()
    for cell in net.cells:
        cell.bias.data.normal_()
    x, _, _ = data()
    state = tuple(torch.randn(2, B, H, dtype=torch.float64) for _ in range(2))
    output, (y_n, z_n) = net(x, state)
    u = x.numpy()
    for layer, dt in enumerate((0.2, 0.05)):
        p = arrays(net.cell(layer))
        u, y, z = oracles.unicornn_layer(
            u,
            state[0][layer].numpy(),
            state[1][layer].numpy(),
            p["weight"],
            p["input_weight"],
            p["bias"],
            p["step_logit"],
            dt,
            alpha,
        )
        np.testing.assert_allclose(y_n[layer].detach(), y, atol=1e-12)
        np.testing.assert_allclose(z_n[layer].detach(), z, atol=1e-12)
    np.testing.assert_allclose(output.detach(), u, atol=1e-12)


def test_residual_unicornn_stacks_as_the_paper_says():
    skip = 2
    net = undamped.nn.ResidualUnICORNN(D, H, num_layers=4, skip=skip, dt=0.3).double()
    x, _, _ = data()
    output, _ = net(x)
    layers = [x.numpy()]
    for number in range(1, 5):
        p = arrays(net.cell(number - 1))
        below = layers[number - 1]
        V = p["input_weight"][:, : below.shape[-1]]
        driven = below @ V.T
        if number > skip:
            Lambda = p["input_weight"][:, below.shape[-1] :]
            driven = driven + layers[number - skip - 1] @ Lambda.T
        zero = np.zeros((B, H))
        y, _, _ = oracles.unicornn_layer(
            driven,
            zero,
            zero,
            p["weight"],
            np.eye(H),
            p["bias"],
            p["step_logit"],
            0.3,
            1.0,
        )
        layers.append(y)
    np.testing.assert_allclose(output.detach(), layers[-1], atol=1e-12)


def test_unicornn_starts_as_the_authors_program_does():
    net = undamped.nn.UnICORNN(9, 2000)
    cell = net.cell(0)
    assert 0 <= cell.weight.min() < 0.01 < 0.99 < cell.weight.max() <= 1
    assert cell.step_logit.abs().max() <= 0.1
    assert cell.step_logit.std().item() == pytest.approx(0.2 / 12**0.5, rel=0.05)
    assert not cell.bias.any()
    bound = (6 / ((1 + 64) * 9)) ** 0.5  # Kaiming uniform with a = 8
    assert cell.input_weight.abs().max() <= bound
    assert cell.input_weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.05)


def test_a_fixed_step_is_not_trained():
    net = undamped.nn.UnICORNN(D, H, train_step=False)
    net(torch.randn(T, B, D))[0].sum().backward()
    assert net.cell(0).step_logit.grad is None
    assert net.cell(0).weight.grad is not None


def test_irnn_adds_up_its_inputs_at_the_start():
    net = undamped.nn.IRNN(D, H, input_std=1.0).double()
    x, _, _ = data()
    W = net.cell(0).weight_ih.detach()
    positive = torch.relu(x @ W.T)  # inputs that keep every unit active
    net.cell(0).weight_ih.data.copy_(torch.eye(H, D))
    summed, _ = net(torch.relu(x))
    assert torch.allclose(summed[-1, :, :D], torch.relu(x).sum(0))
    assert positive.shape == (T, B, H)


@pytest.mark.parametrize("kind", ["random", "henaff", "cayley"])
@pytest.mark.parametrize("size", [1, 2, 7, 64])
def test_orthogonal_starts_are_rotations(kind, size):
    W = orthogonal_start(kind, size).double()
    assert torch.allclose(W.T @ W, torch.eye(size).double(), atol=1e-6)
    assert torch.linalg.det(W).item() == pytest.approx(1, abs=1e-5)


def test_cayley_start_is_the_cayley_transform_of_its_blocks():
    generator = torch.Generator().manual_seed(3)
    s = torch.rand(4, generator=torch.Generator().manual_seed(3), dtype=torch.float64) * np.pi / 2
    A = np.zeros((8, 8))
    for k, a in enumerate(-np.tan(s.numpy() / 2)):
        A[2 * k, 2 * k + 1], A[2 * k + 1, 2 * k] = -a, a
    W = np.linalg.solve(np.eye(8) + A, np.eye(8) - A)
    start = orthogonal_start("cayley", 8, generator=generator, dtype=torch.float64)
    np.testing.assert_allclose(start, W, atol=1e-12)


def test_henaff_angles_fill_their_range():
    W = henaff(4000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    angles = torch.atan2(W[1::2, ::2].diagonal(), W[::2, ::2].diagonal())
    assert angles.min() < -3.1 and angles.max() > 3.1
    assert angles.mean().abs() < 0.1
    assert torch.equal(
        block_diagonal(torch.ones(3).double(), torch.zeros(2).double(), 5), torch.eye(5).double()
    )


def test_haar_rotations_have_no_preferred_entry():
    generator = torch.Generator().manual_seed(0)
    mean = sum(random_orthogonal(3, generator=generator) for _ in range(2000)) / 2000
    assert mean.abs().max() < 0.06


@pytest.mark.parametrize("name", ["rnn", "irnn", "rnn-orth", "lstm", "gru"])
def test_torch_kernels_agree_with_the_plain_loop(name):
    net = undamped.build(name, input_size=D, hidden_size=H).double()
    x, _, _ = data()
    cell = net.cell(0)
    lengths = torch.tensor([7, 2, 5])
    state = cell.initial_state(B, x)
    fast, fast_state = cell.scan(x, state, lengths)
    slow, slow_state = reference_scan(cell, x, state, lengths)
    assert torch.allclose(fast, slow, atol=1e-12)
    for a, b in zip(fast_state, slow_state, strict=True):
        assert torch.allclose(a, b, atol=1e-12)


@pytest.mark.parametrize("name", ["rnn", "lstm", "gru"])
def test_weights_can_be_exchanged_with_torch(name):
    kind = {"rnn": torch.nn.RNN, "lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[name]
    theirs = kind(D, H, 2, bidirectional=True).double()
    ours = undamped.build(
        name, input_size=D, hidden_size=H, num_layers=2, bidirectional=True
    ).double()
    for layer in range(2):
        for direction, suffix in enumerate(("", "_reverse")):
            cell = ours.cell(layer, direction)
            for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                getattr(cell, part).data.copy_(getattr(theirs, f"{part}_l{layer}{suffix}"))
    x, _, _ = data()
    expected, expected_state = theirs(x)
    output, state = ours(x)
    assert torch.allclose(output, expected, atol=1e-12)
    pairs = zip(state, expected_state, strict=True) if name == "lstm" else [(state, expected_state)]
    for a, b in pairs:
        assert torch.allclose(a, b, atol=1e-12)


def test_a_gru_that_begins_by_remembering():
    torch.manual_seed(0)
    net = undamped.nn.GRU(30, 40, input_std=1.0, update_bias=5.0)
    cell = net.cell(0)
    assert cell.weight_ih.std().item() == pytest.approx(1.0, rel=0.05)
    assert cell.bias_ih[40:80].eq(5).all() and not cell.bias_ih[:40].any()
    state = torch.randn(1, 2, 40)
    _, after = net(torch.zeros(3, 2, 30), state)
    _, plain = undamped.nn.GRU(30, 40)(torch.zeros(3, 2, 30), state)
    assert (after - state).norm() < 0.1 * (plain - state).norm()
    with pytest.raises(OptionError, match="update_bias"):
        undamped.nn.GRU(3, 4, bias=False, update_bias=1.0)
