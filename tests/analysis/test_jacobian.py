"""Jacobians, their products and Lyapunov exponents against closed forms and the literature."""

import json

import numpy as np
import pytest
import torch
from torch import nn

import undamped
from undamped._base.errors import OptionError, ShapeError
from undamped.analysis import (
    jacobian_of,
    jacobian_product,
    lyapunov_exponents,
    spectrum,
    step_jacobians,
)


def test_jacobian_of_a_plain_function():
    W = torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    state = torch.linspace(-1, 1, 4, dtype=torch.float64)
    result = jacobian_of(lambda h: torch.tanh(h @ W.T), state)
    slope = 1 - torch.tanh(W @ state) ** 2
    torch.testing.assert_close(result, slope[:, None] * W)


def test_step_jacobians_of_an_elman_network():
    torch.manual_seed(0)
    net = nn.RNN(2, 5).double()
    x = torch.randn(7, 3, 2, dtype=torch.float64)
    result = step_jacobians(net, x)
    h, _ = net(x)
    W = net.weight_hh_l0.detach().numpy()
    for t in range(7):
        slope = 1 - h[t, 0].detach().numpy() ** 2
        np.testing.assert_allclose(result[t], slope[:, None] * W, rtol=1e-10)
    np.testing.assert_allclose(step_jacobians(net, x, at=[4])[0], result[4])


def test_step_jacobian_of_stacked_oscillators_keeps_volume():
    torch.manual_seed(0)
    net = undamped.nn.UnICORNN(3, 4, num_layers=2, dt=0.3).double()
    result = step_jacobians(net, torch.randn(5, 1, 3, dtype=torch.float64))
    assert result.shape == (5, 16, 16)
    np.testing.assert_allclose(np.abs(np.linalg.det(result)), 1.0, rtol=1e-10)


def test_spectrum_and_product_of_a_known_matrix():
    W = np.array([[0.5, 10.0], [0.0, 0.25]])
    actual = spectrum(W)
    np.testing.assert_allclose(sorted(actual.eigenvalues.real), [0.25, 0.5])
    assert actual.radius == pytest.approx(0.5)
    assert actual.norm == pytest.approx(np.linalg.norm(W, 2))
    product = jacobian_product(np.stack([W] * 300))
    expected = np.linalg.svd(np.linalg.matrix_power(W, 20), compute_uv=False)
    np.testing.assert_allclose(product.log_singular_values[19], np.log(expected), rtol=1e-7)
    # Far beyond what a float can hold: det W³⁰⁰ = 0.125³⁰⁰, the largest one like 40 · 0.5³⁰⁰.
    assert product.log_singular_values[299, 0] == pytest.approx(
        300 * np.log(0.5) + np.log(np.hypot(1, 40)), rel=1e-6
    )
    assert (np.diff(product.log_condition[5:]) > 0).all()
    for result in (actual, product):
        json.dumps(result.to_dict(), allow_nan=False)
        assert result.plot().data


def test_lyapunov_exponents_of_a_linear_map():
    rng = np.random.default_rng(0)
    q, _ = np.linalg.qr(rng.standard_normal((3, 3)))
    W = torch.from_numpy(q @ np.diag([2.0, 1.0, 0.25]) @ q.T)
    result = lyapunov_exponents(lambda h: h @ W.T, torch.zeros(3), 1500, step_time=0.5)
    np.testing.assert_allclose(result.exponents, 2 * np.log([2, 1, 0.25]), atol=0.02)
    # (log 2 + 0) / |log 1/4| = 1/2 beyond the first two.
    assert result.dimension == pytest.approx(2.5, abs=0.02)


def lorenz96(forcing, step_time):
    def field(x):
        ahead, back, far = x.roll(-1, 1), x.roll(1, 1), x.roll(2, 1)
        return (ahead - far) * back - x + forcing

    def step(x):
        k1 = field(x)
        k2 = field(x + step_time / 2 * k1)
        k3 = field(x + step_time / 2 * k2)
        k4 = field(x + step_time * k3)
        return x + step_time / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

    return step


@pytest.mark.slow
def test_lyapunov_exponents_of_lorenz_96():
    # Lorenz and Emanuel (1998), 40 variables and F = 8: errors double in 2.1 days of 0.2 units
    # each, so the largest exponent is ln 2 / 0.42 = 1.65; 13 are positive; the attractor has
    # dimension 27.1. The divergence of the field is −40, which the sum has to be.
    start = 8 + torch.randn(40, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    result = lyapunov_exponents(lorenz96(8.0, 0.05), start, 3000, step_time=0.05, warmup=500)
    assert result.exponents[0] == pytest.approx(np.log(2) / 0.42, rel=0.05)
    assert abs(int((result.exponents > 0.02).sum()) - 13) <= 1
    assert result.dimension == pytest.approx(27.1, rel=0.05)
    assert result.exponents.sum() == pytest.approx(-40, rel=0.001)
    assert result.plot().data


def test_refuses_what_has_no_state():
    layer = nn.TransformerEncoderLayer(4, 1, 8)
    with pytest.raises(OptionError, match="accessible state"):
        step_jacobians(layer, torch.randn(5, 1, 4))
    with pytest.raises(ShapeError, match="square"):
        spectrum(np.ones((2, 3)))
