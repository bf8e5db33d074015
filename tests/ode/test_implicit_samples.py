"""Implicit methods with a step size for every sample."""

from __future__ import annotations

import pytest
import torch

from undamped._base.errors import OptionError
from undamped.ode import solve

METHODS = ["radau5", "sdirk4", "trbdf2"]


def oscillators(t, y):
    x, v, mu = y.unbind(-1)
    return torch.stack((v, mu * ((1 - x**2) * v - x), torch.zeros_like(mu)), dim=-1)


def starts():
    mu = torch.tensor([1.0, 30.0, 1000.0, 5.0], dtype=torch.float64)
    return torch.stack((torch.full_like(mu, 2.0), torch.zeros_like(mu), mu), dim=1)


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("method", METHODS)
def test_every_sample_goes_its_own_way(method):
    tolerance = {"rtol": 1e-4, "atol": 1e-6}
    times = torch.tensor([0.0, 0.3, 1.0], dtype=torch.float64)
    result = solve(oscillators, starts(), times, method=method, steps="sample", **tolerance)
    assert result.success
    for row, start in enumerate(starts()):
        separate = solve(oscillators, start, times, method="radau5", rtol=1e-7, atol=1e-9)
        apart = (result.values[:, row] - separate.values).abs().amax(0)
        scale = separate.values.abs().amax(0) + 1e-2
        assert float((apart / scale)[0]) < (2e-2 if method == "trbdf2" else 1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("gradient", ["checkpoint", "backprop"])
def test_gradients_are_those_of_finite_differences(method, gradient):
    times = torch.tensor([[0.0, 0.0, 0.0], [0.012, 0.004, 0.008]], dtype=torch.float64)
    rate = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)

    def final(rate):
        def field(t, y):
            return -rate * (1 + 40 * y**2) * (y - torch.cos(3 * t))

        how = {"rtol": 1e-8, "atol": 1e-10} if method != "trbdf2" else {"rtol": 1e-5, "atol": 1e-7}
        y0 = torch.tensor([[0.2], [1.0], [1.7]], dtype=torch.float64)
        return solve(field, y0, times, method=method, gradient=gradient, parameters=[rate], **how)

    (result,) = torch.autograd.grad(final(rate).final.sum(), rate)
    with torch.no_grad():
        up, down = (final(rate + sign * 1e-4).final.sum() for sign in (1, -1))
    expected = float(up - down) / 2e-4
    assert float(result) == pytest.approx(expected, rel=1e-2 if method == "trbdf2" else 1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_states_in_single_precision_stay_so(method):
    torch.manual_seed(0)
    weight, y0 = torch.randn(3, 3) - 3 * torch.eye(3), torch.randn(4, 3)
    result = []
    for dtype, gradient in (
        (torch.float64, "checkpoint"),
        (torch.float32, "checkpoint"),
        (torch.float32, "backprop"),
    ):
        leaves = [part.to(dtype).requires_grad_() for part in (y0, weight)]
        solution = solve(
            lambda t, y, w=leaves[1]: torch.tanh(y @ w) + torch.sin(3 * t),
            leaves[0],
            [0.0, 0.5, 1.0],
            method=method,
            steps="sample",
            gradient=gradient,
            rtol=1e-4,
            atol=1e-4,
        )
        assert solution.values.dtype == dtype
        result.append(torch.autograd.grad(solution.values.pow(2).sum(), leaves))
        assert all(part.dtype == dtype for part in result[-1])
    for single in result[1:]:
        torch.testing.assert_close(
            [part.double() for part in single], list(result[0]), rtol=1e-2, atol=1e-2
        )


@torch.no_grad()
def test_a_batch_of_numbers():
    y0 = torch.linspace(0.5, 2.0, 5, dtype=torch.float64)
    result = solve(lambda t, y: -(y**3), y0, [0.0, 1.0], method="radau5", steps="sample").final
    torch.testing.assert_close(result, y0 / (1 + 2 * y0**2).sqrt(), rtol=1e-6, atol=0)


def test_coupled_samples_cannot_have_steps_of_their_own():
    y0 = torch.rand(3, 2, dtype=torch.float64)
    with pytest.raises(OptionError, match="depend on each other"):
        solve(lambda t, y: y.mean(0) - y, y0, [0.0, 1.0], method="radau5", steps="sample")


@pytest.mark.parametrize("more", [{"compact": True}, {"dense": True}, {"gradient": "adjoint"}])
def test_what_cannot_be_had_is_said(more):
    y0 = torch.rand(3, 2, dtype=torch.float64)
    with pytest.raises(OptionError, match="'radau5' with a step size per sample"):
        solve(lambda t, y: -y, y0, [0.0, 1.0], method="radau5", steps="sample", **more)


def test_a_sample_that_fails_leaves_the_others_alone():
    def field(t, y):
        return torch.where(y > 1.5, y**2 * 100, -y)

    y0 = torch.tensor([[1.0], [2.0]], dtype=torch.float64)
    result = solve(
        field, y0, [0.0, 1.0], method="radau5", steps="sample", rtol=1e-5, on_failure="return"
    )
    assert not result.success
    assert float(result.final[0]) == pytest.approx(0.36788, rel=1e-3)
