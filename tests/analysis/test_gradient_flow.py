"""Gradient flow against closed forms and against plain autograd over the whole sequence."""

import numpy as np
import pytest
import torch
from torch import nn

import undamped
from undamped._base.errors import OptionError, ShapeError
from undamped.analysis import gradient_flow
from undamped.analysis.core.statistics import log_trend
from undamped.analysis.gradient_flow import judge, memory_horizon

STEPS = 70  # more than two chunks, and not a multiple of one


class LinearNetwork(nn.Module):
    """h' = W h + x, called as (x, state) -> (y, state)."""

    def __init__(self, W):
        super().__init__()
        self.W = nn.Parameter(W)

    def forward(self, x, state=None):
        state = torch.zeros_like(x[0]) if state is None else state
        outputs = []
        for x_t in x:
            state = state @ self.W.T + x_t
            outputs.append(state)
        return torch.stack(outputs), state


def linear_relu_rnn(W):
    """An nn.RNN that is linear as long as its states are positive."""
    n = len(W)
    net = nn.RNN(n, n, nonlinearity="relu", bias=False).double()
    with torch.no_grad():
        net.weight_ih_l0.copy_(torch.eye(n))
        net.weight_hh_l0.copy_(torch.as_tensor(W))
    return net


def test_linear_network_has_exactly_the_norms_of_its_powers():
    generator = torch.Generator().manual_seed(0)
    W = torch.rand(5, 5, generator=generator, dtype=torch.float64) * 0.4
    x = torch.rand(STEPS, 3, 5, generator=generator, dtype=torch.float64)
    g = torch.rand(5, generator=generator, dtype=torch.float64)
    result = gradient_flow(linear_relu_rnn(W), x, loss=lambda y: (y[-1] * g).sum())
    expected = [
        np.linalg.norm(np.linalg.matrix_power(W.numpy().T, STEPS - 1 - t) @ g.numpy())
        for t in range(STEPS)
    ]
    np.testing.assert_allclose(result.norms, expected, rtol=1e-10)
    assert result.through == "states"
    own = gradient_flow(LinearNetwork(W), x, loss=lambda y: (y[-1] * g).sum())
    assert own.through == "states"
    assert own.steps.tolist() == list(range(STEPS))
    np.testing.assert_allclose(own.norms, expected, rtol=1e-10)


class WithReadout(LinearNetwork):
    """Its output is not part of its state."""

    def forward(self, x, state=None):
        output, state = super().forward(x, state)
        return 2 * output, state


def test_an_output_that_is_no_state_shows_the_state_that_enters_a_step():
    W = 0.9 * torch.eye(3, dtype=torch.float64)
    x = torch.zeros(STEPS, 2, 3, dtype=torch.float64)
    result = gradient_flow(WithReadout(W), x)
    assert result.steps.tolist() == list(range(-1, STEPS - 1))
    np.testing.assert_allclose(result.norms, 2 * 0.9 ** np.arange(STEPS, 0, -1), rtol=1e-10)


@pytest.mark.slow
def test_orthogonal_recurrence_is_flat_over_ten_thousand_steps():
    angle = 0.3
    W = torch.tensor([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    result = gradient_flow(LinearNetwork(W), torch.zeros(10_000, 1, 2, dtype=torch.float64))
    np.testing.assert_allclose(result.norms, 1.0, rtol=1e-9)
    assert result.verdict == "steady"
    assert result.horizon == 10_000
    assert abs(result.trend.rate) < 1e-9


@pytest.mark.parametrize(("factor", "verdict"), [(0.9, "vanish"), (1.1, "explode")])
def test_rate_horizon_and_verdict_of_a_scaled_identity(factor, verdict):
    x = torch.zeros(200, 2, 3, dtype=torch.float64)
    result = gradient_flow(LinearNetwork(factor * torch.eye(3).double()), x)
    assert result.verdict == verdict
    assert result.trend.rate == pytest.approx(-np.log(factor), rel=1e-9)
    assert result.trend.low <= result.trend.rate <= result.trend.high
    if verdict == "vanish":
        # 0.9ᵏ ≥ 0.01 holds for k ≤ 43: 44 steps, counting the last one.
        assert result.horizon == 44
        assert "44 of 200 steps" in result.sentence


def test_gradients_far_below_the_smallest_float_are_measured():
    result = gradient_flow(LinearNetwork(0.5 * torch.eye(2)), torch.zeros(400, 1, 2))
    np.testing.assert_allclose(result.norms[0], 0.5**399, rtol=1e-3)


def whole_graph(network, x, loss):
    """∂L/∂h_t of every layer by plain autograd over the whole sequence, layer by layer."""
    source, layers = x, []
    for layer in range(network.num_layers):
        cell = network.cell(layer)
        projected, constants = cell.project(source), cell.constants()
        state, states = cell.initial_state(x.shape[1], x), []
        for p in projected:
            state = tuple(part.clone() for part in cell.advance(p, state, constants))
            states.append(state)
        layers.append(states)
        source = torch.stack([cell.output(s) for s in states])
    parts = [p for states in layers for state in states for p in state]
    gradients = iter(torch.autograd.grad(loss(source), parts, allow_unused=True))
    return np.array(
        [
            [
                np.sqrt(sum(0 if g is None else g.square().sum(1).numpy() for g in result))
                for result in [[next(gradients) for _ in state] for state in states]
            ]
            for states in layers
        ]
    )


@pytest.mark.parametrize("name", ["rnn", "lstm", "gru", "unicornn", "rnn-orth"])
@pytest.mark.parametrize("everywhere", [False, True])
def test_chunks_agree_with_the_whole_graph(name, everywhere):
    torch.manual_seed(0)
    net = undamped.build(name, input_size=3, hidden_size=6, num_layers=2).double()
    x = torch.randn(STEPS, 2, 3, dtype=torch.float64)

    def loss(y):
        return y.sin().sum() if everywhere else y[-1].sin().sum()

    result = gradient_flow(net, x, loss=loss)
    expected = whole_graph(net, x, loss)
    np.testing.assert_allclose(result.per_layer, expected.mean(2), rtol=1e-8)
    np.testing.assert_allclose(result.norms, np.sqrt((expected**2).sum(0)).mean(1), rtol=1e-8)


@pytest.mark.parametrize(
    "net",
    [
        nn.RNN(3, 5, 2),
        nn.RNN(3, 5, nonlinearity="relu", bias=False),
        nn.LSTM(3, 5, 2),
        nn.LSTM(3, 5, proj_size=2),
        nn.GRU(3, 5, 2, batch_first=True),
    ],
    ids=lambda net: repr(net),
)
def test_torch_networks_match_their_own_autograd(net):
    torch.manual_seed(0)
    net = net.double()
    x = torch.randn(STEPS, 2, 3, dtype=torch.float64)
    result = gradient_flow(net, x.transpose(0, 1) if net.batch_first else x)
    # The gradient of the state before step t + 1 is the one of the state after step t, apart
    # from what leaves through the layers above in the same step; one layer shows it exactly.
    if net.num_layers == 1:
        t = 40
        with torch.no_grad():
            _, state = net(x[: t + 1])
        parts = [p.detach().requires_grad_() for p in (state if net.mode == "LSTM" else (state,))]
        y, _ = net(x[t + 1 :], tuple(parts) if net.mode == "LSTM" else parts[0])
        generator = torch.Generator().manual_seed(0)
        direction = torch.randn(y.shape[-1], generator=generator, dtype=torch.float64)
        gradients = torch.autograd.grad((y[-1] @ (direction / direction.norm())).sum(), parts)
        expected = torch.sqrt(sum(g.square().sum((0, 2)) for g in gradients)).mean()
        assert result.norms[t] == pytest.approx(float(expected), rel=1e-8)
    assert result.per_layer.shape == (net.num_layers, STEPS)
    assert result.verdict == "vanish"


def test_whole_models_are_read_with_their_readout():
    torch.manual_seed(0)
    x = torch.randn(30, 4, 3)
    for readout in ("last", "mean", "every"):
        model = undamped.models.SequenceModel("lstm", 3, 2, readout=readout, hidden_size=6)
        result = gradient_flow(model, x)
        assert result.through == "states"
        assert result.norms.shape == (30,)
    symbols = undamped.models.SequenceModel("gru", 5, 5, input_kind="symbols", readout="every",
                                     hidden_size=6)  # fmt: skip
    assert gradient_flow(symbols, torch.randint(5, (30, 4))).through == "states"


def encoder(batch_first=False):
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=batch_first)
    return nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)


@pytest.mark.parametrize("batch_first", [False, True])
def test_a_transformer_is_read_through_its_inputs(batch_first):
    torch.manual_seed(0)
    shape = (2, 50, 4) if batch_first else (50, 2, 4)
    result = gradient_flow(encoder(batch_first), torch.randn(shape))
    assert result.through == "inputs"
    assert result.norms.shape == (50,)
    assert result.verdict == "steady"


class WithEmbedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.lstm = nn.LSTM(4, 4, bidirectional=True)

    def forward(self, x):
        return self.lstm(self.embedding(x))[0]


def test_symbols_are_followed_to_their_embedding():
    torch.manual_seed(0)
    result = gradient_flow(WithEmbedding(), torch.randint(7, (20, 3)))
    assert result.through == "inputs"
    assert result.norms.shape == (20,)
    assert (result.norms > 0).all()


def test_module_is_left_as_it_was():
    net = undamped.build("lstm", input_size=3, hidden_size=4, num_layers=2, dropout=0.5).train()
    before = {name: p.clone() for name, p in net.named_parameters()}
    gradient_flow(net, torch.randn(20, 2, 3))
    assert net.training
    for name, parameter in net.named_parameters():
        assert parameter.requires_grad
        assert parameter.grad is None
        assert torch.equal(parameter, before[name])


def test_horizon_and_verdict_of_plain_numbers():
    assert memory_horizon(np.array([1.0, 0.001, 1.0, 1.0]), 0.01) == 2
    assert memory_horizon(np.array([1.0, 1.0]), 0.01) == 2
    assert memory_horizon(np.array([1.0, 0.0]), 0.01) == 0
    assert judge(np.array([1e-3, 1.0]), 0.01) == "vanish"
    assert judge(np.array([1e3, 1.0]), 0.01) == "explode"
    assert judge(np.array([np.inf, 1.0]), 0.01) == "explode"
    assert judge(np.array([0.5, 1.0]), 0.01) == "steady"


def test_confidence_interval_covers_the_true_slope():
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(200):
        noise = rng.standard_normal(200)
        for t in range(1, 200):  # residuals that resemble their neighbours
            noise[t] += 0.6 * noise[t - 1]
        trend = log_trend(np.exp(0.01 * np.arange(200) + 0.3 * noise))
        covered += trend.low <= 0.01 <= trend.high
    assert 180 <= covered <= 200


def test_errors_say_what_to_do():
    net = nn.LSTM(3, 4)
    with pytest.raises(ShapeError, match="two steps"):
        gradient_flow(net, torch.randn(1, 2, 3))
    with pytest.raises(OptionError, match="between 0 and 1"):
        gradient_flow(net, torch.randn(9, 2, 3), fraction=2.0)
    with pytest.raises(ShapeError, match="scalar"):
        gradient_flow(net, torch.randn(9, 2, 3), loss=lambda y: y)


def test_a_notebook_shows_sentence_and_figure():
    page = gradient_flow(nn.LSTM(3, 4), torch.randn(9, 2, 3))._repr_html_()
    assert page.startswith("<p>Gradients") and "<svg" in page and "<script" not in page
