"""Gradient flow in depth against closed forms."""

import numpy as np
import pytest
import torch
from torch import nn

import undamped
from undamped._base.errors import OptionError
from undamped.analysis import depth_flow, gradient_preservation
from undamped.analysis.gradient_flow import flows_in_depth
from undamped.models import PointModel
from undamped.ode import NeuralODE


class LinearField(nn.Module):
    def __init__(self, matrix):
        super().__init__()
        self.matrix = nn.Parameter(matrix)

    def forward(self, t, h):
        return h @ self.matrix.T


@pytest.mark.slow
@pytest.mark.parametrize("rate", [-3.0, 0.0])
def test_a_linear_ode_has_the_adjoint_of_its_exponential(rate):
    # ḣ = A h with A = rate·I + rotation: ‖∂L/∂h(s)‖ = e^(rate (1 − s)) for ‖∂L/∂h(1)‖ = 1.
    matrix = torch.tensor([[rate, -2.0], [2.0, rate]], dtype=torch.float64)
    flow = NeuralODE(LinearField(matrix), rtol=1e-9, atol=1e-10)
    result = depth_flow(flow, torch.randn(4, 2, dtype=torch.float64), points=10)
    expected = np.exp(rate * (1 - np.linspace(0, 1, 11)))
    np.testing.assert_allclose(result.norms, expected, rtol=1e-6)
    assert result.trend.rate == pytest.approx(-rate / 10, abs=1e-6)
    assert "solve" not in flow.__dict__


def test_blocks_of_a_residual_network():
    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(nn.Linear(3, 3, bias=False) for _ in range(4))
            for block in self.blocks:
                nn.init.eye_(block.weight)

        def forward(self, x):
            for block in self.blocks:
                x = x + block(x)
            return x

    result = depth_flow(Residual(), torch.randn(2, 3))
    np.testing.assert_allclose(result.norms, [16, 8, 4, 2], rtol=1e-5)


def test_refuses_what_has_no_depth():
    with pytest.raises(OptionError, match="residual blocks"):
        depth_flow(nn.Linear(2, 2), torch.randn(3, 2))


def test_a_normalising_flow_is_cut_into_pieces_too():
    torch.manual_seed(0)
    model = PointModel("ffjord", 2, 0, hidden_size=8, tolerance=1e-7).double().eval()
    x = torch.randn(1, 2, dtype=torch.float64)
    assert flows_in_depth(model)
    actual = depth_flow(model, x, points=6, loss=lambda answer: answer.sum())
    assert len(actual.norms) == 7 and "integrate" not in model.network.__dict__
    # At the first point the state is the data, whose gradient is known without pieces; at the
    # last it is a point of the normal distribution, whose log-density has the gradient −z.
    leaf = x.clone().requires_grad_()
    result = model.network(leaf)
    (expected,) = torch.autograd.grad(result.log_prob.sum(), leaf)
    assert actual.norms[0] == pytest.approx(float(expected.norm()), rel=1e-5)
    assert actual.norms[-1] == pytest.approx(float(result.base.detach().norm()), rel=1e-5)


class Turning(nn.Module):
    """ḣ = ω Jh + r h: gradients turn by ωT and grow by rT on the way back, whatever the state."""

    def __init__(self, omega, rate):
        super().__init__()
        self.rates = nn.Parameter(torch.tensor([rate, omega], dtype=torch.float64))

    def forward(self, t, h):
        turned = torch.stack((-h[..., 1], h[..., 0]), dim=-1)
        return self.rates[0] * h + self.rates[1] * turned


def test_what_depth_does_to_gradients_in_closed_form():
    field = Turning(0.5, -0.3)
    flow = NeuralODE(field, times=(0.0, 4.0), rtol=1e-9, atol=1e-10)
    x = torch.randn(5, 2, dtype=torch.float64)
    result = gradient_preservation(flow, x, points=50)
    left = 4.0 - result.times
    np.testing.assert_allclose(result.norms, np.exp(-0.3 * left), rtol=1e-6)
    np.testing.assert_allclose(result.high, result.low, rtol=1e-6)
    quantiles = np.quantile(np.exp(-0.3 * left), [0.05, 0.95])
    assert result.spread == pytest.approx(quantiles[1] / quantiles[0], rel=1e-6)
    # Both parts of the field commute with it: the parameters' share is the same all along.
    assert result.contribution_spread == pytest.approx(1.0, abs=1e-6)
    assert result.coherence == pytest.approx(1.0, abs=1e-9)
    np.testing.assert_allclose(result.cosines, 1.0, atol=1e-9)
    assert all(parameter.requires_grad for parameter in flow.parameters())
    with pytest.raises(OptionError, match="no ODE of this library with parameters"):
        gradient_preservation(nn.Linear(2, 2), torch.randn(3, 2))


@pytest.mark.slow
def test_pieces_with_fields_of_their_own_are_one_depth():
    model = undamped.models.DepthVariantNODE(2, 2, basis="stacked", terms=3, depth=6.0)
    result = gradient_preservation(model, torch.randn(4, 2), points=9)
    np.testing.assert_allclose(result.times, np.linspace(0, 6, 10), atol=1e-6)
    assert result.norms[-1] == 1.0 and model.evaluations > 0
