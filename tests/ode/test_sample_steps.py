"""Samples with steps of their own: dense output, events and the adjoint."""

import math

import pytest
import torch
from torch import nn

from undamped._base.errors import OptionError, ShapeError
from undamped._base.registry import solvers
from undamped.ode import Status, solve

RATES = torch.tensor([[1.0], [4.0], [0.3]], dtype=torch.float64)


def turning(t, y):
    """Three turns at speeds of their own; the speed rides in the state."""
    q, p, speed = y[:, :1], y[:, 1:2], y[:, 2:]
    return torch.cat((speed * p, -speed * q, torch.zeros_like(q)), dim=1)


def start():
    nought = torch.zeros_like(RATES)
    return torch.cat((nought + 1, nought, RATES), dim=1)


def turned(t):
    angle = RATES.squeeze(1) * t
    return torch.stack((torch.cos(angle), -torch.sin(angle), RATES.squeeze(1)), dim=1)


@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("method", ["dopri5", "tsit5", "bosh3", "dopri8"])
@pytest.mark.parametrize("direction", [1, -1])
def test_dense_output_of_every_sample(method, direction, compact):
    more = {"method": method, "rtol": 1e-6, "atol": 1e-6, "compact": compact}
    with torch.no_grad():
        solution = solve(
            turning, start(), [0.0, 3.0 * direction], steps="sample", dense=True, **more
        )
    assert solution.dense is not None
    for k in range(13):
        t = direction * k / 4
        assert float((solution.dense(t) - turned(t)).abs().max()) < 1e-4
    with pytest.raises(OptionError, match=r"sample 0.*Solve further"):
        solution.dense(direction * 3.1)


def test_dense_output_at_times_of_their_own():
    ends = torch.tensor([1.0, 2.0, 0.0], dtype=torch.float64)
    times = torch.stack((torch.zeros(3, dtype=torch.float64), ends))
    solution = solve(turning, start(), times, dense=True, rtol=1e-7, atol=1e-7)
    assert solution.dense is not None
    result = solution.dense(ends / 2)
    torch.testing.assert_close(result, turned(ends / 2), rtol=1e-5, atol=1e-5)
    with pytest.raises(OptionError, match="sample 2"):
        solution.dense(0.5)


@pytest.mark.parametrize("compact", [False, True])
def test_every_sample_ends_at_its_own_event(compact):
    # q falls through zero at a quarter of a turn: the slowest does not get there.
    solution = solve(
        turning,
        start(),
        [0.0, 0.2, 3.0],
        event=lambda t, y: y[:, 0],
        steps="sample",
        compact=compact,
        rtol=1e-8,
        atol=1e-8,
    )
    assert solution.status == (Status.EVENT, Status.EVENT, Status.DONE) and solution.success
    expected = math.pi / 2 / RATES.squeeze(1)
    torch.testing.assert_close(solution.event_time[:2], expected[:2], rtol=1e-6, atol=1e-6)
    assert torch.isnan(solution.event_time[2]) and torch.isnan(solution.event_state[2]).all()
    assert float((solution.event_state[:2, 1] + 1).abs().max()) < 1e-6
    assert torch.isnan(solution.values[2, :2]).all()
    torch.testing.assert_close(solution.values[1], turned(0.2), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(solution.values[2, 2], turned(3.0)[2], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("gradient", ["checkpoint", "backprop", "adjoint"])
def test_event_times_have_gradients(gradient):
    rates = RATES.clone().requires_grad_()

    def field(t, y):
        return torch.stack((y[:, 1], -y[:, 0]), dim=1) * rates

    begin = torch.tensor([[1.0, 0.0]] * 3, dtype=torch.float64, requires_grad=True)
    solution = solve(
        field, begin, [0.0, 3.0], event=lambda t, y: y[:, 0], steps="sample", gradient=gradient
    )
    (result,) = torch.autograd.grad(solution.event_time[:2].sum(), rates, retain_graph=True)
    # T = π / 2 rate
    expected = torch.where(RATES < 0.5, torch.zeros_like(RATES), -math.pi / 2 / RATES**2)
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)
    (result,) = torch.autograd.grad(solution.values[-1, 2, 0], rates)
    expected = torch.tensor([[0.0], [0.0], [-3 * math.sin(0.9)]], dtype=torch.float64)
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)


def test_an_event_of_the_whole_batch_is_refused():
    with pytest.raises(ShapeError, match="one number for each of the 3 samples"):
        solve(turning, start(), [0.0, 3.0], event=lambda t, y: y.min(), steps="sample")


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.first, self.second = nn.Linear(3, 8), nn.Linear(8, 2)

    def forward(self, t, y):
        time = torch.zeros_like(y[..., :1]) + t
        return self.second(torch.tanh(self.first(torch.cat((y, time), dim=-1))))


@pytest.mark.parametrize("method", ["dopri5", "tsit5", "dopri8", "heun"])
@pytest.mark.parametrize("own_times", [False, True])
def test_the_adjoint_of_every_sample_is_right_to_the_tolerance(method, own_times):
    field = Field().double()
    begin = torch.randn(4, 2, dtype=torch.float64)
    times = torch.tensor([0.0, 0.4, 1.0], dtype=torch.float64)
    if own_times:
        times = times.unsqueeze(1) * torch.tensor([1.0, 0.5, -1.0, 0.0], dtype=torch.float64)
    tolerance = 1e-5 if method == "heun" else 1e-9
    results = []
    for gradient in ("backprop", "adjoint"):
        y0 = begin.clone().requires_grad_()
        solution = solve(
            field, y0, times, steps="sample", gradient=gradient, method=method,
            rtol=tolerance, atol=tolerance,
        )  # fmt: skip
        loss = (solution.values.sin() * torch.tensor([1.0, 2.0, -1.0]).view(3, 1, 1)).sum()
        results.append(torch.autograd.grad(loss, [y0, *field.parameters()]))
    assert solution.evaluations_backward > 0
    for expected, result in zip(*results, strict=True):
        torch.testing.assert_close(result, expected, rtol=300 * tolerance, atol=300 * tolerance)


def test_pictures_have_adjoints_of_their_own_too():
    weight = nn.Parameter(torch.tensor(0.7, dtype=torch.float64))
    begin = torch.rand(2, 3, 2, 2, dtype=torch.float64, requires_grad=True)
    end = solve(
        lambda t, y: -weight * y * (1 + t), begin, [0.0, 1.0], steps="sample", gradient="adjoint"
    ).final
    result = torch.autograd.grad(end.sum(), [begin, weight])
    shrunk = math.exp(-0.7 * 1.5)
    torch.testing.assert_close(result[0], torch.full_like(begin, shrunk), rtol=1e-6, atol=1e-7)
    expected = -1.5 * shrunk * begin.detach().sum()
    torch.testing.assert_close(result[1], expected, rtol=1e-6, atol=1e-7)


def van_der_pol(t, y):
    q, p = y[..., :1], y[..., 1:]
    return torch.cat((p, 20 * (1 - q * q) * p - q), -1)


@pytest.mark.slow
@pytest.mark.parametrize("method", [name for name in solvers if solvers[name].per_sample])
@pytest.mark.parametrize("more", [{}, {"options": {"first_step": 0.1, "max_step": 0.2}}])
def test_steps_of_a_sample_are_those_of_a_batch_of_one(method, more):
    if not solvers[method]().adaptive:
        pytest.skip("fixed steps")
    # Fehlberg's estimate is so small that stability sets the steps, and rounding decides a few.
    tolerance = {"heun": 1e-3, "fehlberg2": 1e-6}.get(method, 1e-5)
    begin = torch.tensor([[2.0, 0.0]], dtype=torch.float64)
    result = []
    for steps in ("batch", "sample"):
        solution = solve(
            van_der_pol,
            begin,
            [0.0, 15.0],
            method=method,
            steps=steps,
            rtol=tolerance,
            atol=tolerance,
            dense=not solvers[method].implicit,
            **more,
        )
        result.append((solution.accepted, solution.rejected, solution.final))
    assert result[0][1] > 0 or solvers[method].implicit
    allowed, close = (4, 1e-4) if method == "fehlberg2" else (0, 1e-6)
    assert all(
        abs(one - other) <= allowed for one, other in zip(*(f[:2] for f in result), strict=True)
    )
    torch.testing.assert_close(result[0][2], result[1][2], rtol=close, atol=close)
