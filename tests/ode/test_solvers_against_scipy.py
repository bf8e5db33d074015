"""Values and gradients beside SciPy and torchdiffeq, on classical problems and neural fields."""

import numpy as np
import pytest
import scipy.integrate
import torch
from detest import EXACT, PROBLEMS
from torch import nn

import undamped.ode as ours

TIMES = [0.0, 1.3, 4.0, 10.0]
_REFERENCES = {}


def scipy_values(field, start, times, rtol=1e-12):
    def call(t, y):
        return field(torch.tensor(t, dtype=torch.float64), torch.from_numpy(np.array(y))).numpy()

    result = scipy.integrate.solve_ivp(
        call, (times[0], times[-1]), start, method="DOP853", t_eval=times, rtol=rtol, atol=1e-13
    )
    return torch.from_numpy(result.y.T)


def detest_values(name):
    """SciPy's solution to thirteen digits or so, once for all methods."""
    if name not in _REFERENCES:
        _REFERENCES[name] = scipy_values(*PROBLEMS[name], TIMES)
    return _REFERENCES[name]


def test_all_of_detest_is_there():
    assert sorted(PROBLEMS) == [f"{kind}{number}" for kind in "ABCDE" for number in range(1, 6)]


@pytest.mark.parametrize("name", EXACT)
def test_scipy_knows_the_closed_forms(name):
    expected = torch.tensor([EXACT[name](t) for t in TIMES], dtype=torch.float64)
    torch.testing.assert_close(detest_values(name), expected, rtol=1e-10, atol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("method", ["dopri5", "tsit5", "dopri8", "bosh3"])
def test_detest_problems_to_the_tolerance(name, method):
    field, start = PROBLEMS[name]
    tolerance = {"bosh3": 1e-4, "dopri8": 1e-7}.get(method, 1e-6)
    with torch.no_grad():
        values = ours.odeint(
            field,
            torch.tensor(start, dtype=torch.float64),
            torch.tensor(TIMES, dtype=torch.float64),
            method=method,
            rtol=tolerance,
            atol=tolerance,
        )
    reference = detest_values(name)
    # Errors grow along a solve: most on the orbits, whose phase drifts, the narrower the faster.
    growth = 1000 if name[0] == "D" else 200
    apart = float((values - reference).abs().max())
    assert apart < growth * tolerance * float(reference.abs().max())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["A4", "B4", "C5", "D3", "E5"])
def test_detest_gradients_agree_with_torchdiffeq(name):
    torchdiffeq = pytest.importorskip("torchdiffeq")
    field, start = PROBLEMS[name]
    times = torch.tensor([0.0, 1.0, 3.0], dtype=torch.float64)
    result = []
    for solver, more in (
        (torchdiffeq.odeint, {"rtol": 1e-10, "atol": 1e-12}),
        (ours.odeint, {"rtol": 1e-9, "atol": 1e-11}),
    ):
        y0 = torch.tensor(start, dtype=torch.float64, requires_grad=True)
        values = solver(field, y0, times, **more)
        result.append((values.detach(), torch.autograd.grad(values[1:].sin().sum(), y0)[0]))
    for expected, ours_found in zip(*result, strict=True):
        torch.testing.assert_close(ours_found, expected, rtol=1e-6, atol=1e-7)


def van_der_pol(stiffness):
    def field(t, y):
        q, p = y[..., 0], y[..., 1]
        return torch.stack((p, stiffness * ((1 - q**2) * p - q)), dim=-1)

    return field


@pytest.mark.parametrize("method", ["sdirk4", "radau5"])
def test_stiff_van_der_pol_by_implicit_methods(method):
    field = van_der_pol(1000.0)
    start = torch.tensor([[2.0, 0.0], [1.8, 0.0]], dtype=torch.float64)
    with torch.no_grad():
        solution = ours.solve(field, start, [0.0, 0.1], method=method, rtol=1e-4, atol=1e-5)
    for row, value in zip(start, solution.final, strict=True):
        reference = scipy.integrate.solve_ivp(
            lambda t, y: field(t, torch.from_numpy(np.array(y))).numpy(),
            (0, 0.1),
            row.numpy(),
            method="Radau",
            rtol=1e-8,
            atol=1e-10,
        ).y[:, -1]
        assert abs(float(value[0]) - reference[0]) < 1e-3
    assert solution.accepted < 100


class NeuralField(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 16)
        self.second = nn.Linear(16, 3)

    def forward(self, t, y):
        time = torch.zeros_like(y[..., :1]) + t
        return self.second(torch.tanh(self.first(torch.cat((y, time), dim=-1))))


def neural_problem():
    torch.manual_seed(3)
    return NeuralField().double(), torch.randn(5, 3, dtype=torch.float64)


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("gradient", ["checkpoint", "backprop", "adjoint"])
def test_neural_fields_agree_with_torchdiffeq(gradient, backwards):
    torchdiffeq = pytest.importorskip("torchdiffeq")
    field, start = neural_problem()
    times = torch.tensor([0.0, 0.4, 1.5], dtype=torch.float64)
    times = times.flip(0) if backwards else times
    results = []
    for solver, more in (
        (torchdiffeq.odeint, {"rtol": 1e-10, "atol": 1e-12}),
        (ours.odeint, {"rtol": 1e-9, "atol": 1e-10, "gradient": gradient}),
    ):
        y0 = start.clone().requires_grad_()
        values = solver(field, y0, times, **more)
        loss = (values.sin() * torch.tensor([1.0, 2.0, 3.0]).view(3, 1, 1)).sum()
        results.append((values.detach(), torch.autograd.grad(loss, [y0, *field.parameters()])))
    (reference, expected), (values, result) = results
    assert float((values - reference).abs().max()) < 1e-7
    for a, b in zip(result, expected, strict=True):
        assert float((a - b).abs().max()) < 1e-6


# Not rk4: torchdiffeq's is the 3/8 rule, another method of the same order.
@pytest.mark.parametrize("name", ["euler", "midpoint"])
def test_fixed_steps_agree_with_torchdiffeq_to_rounding(name):
    torchdiffeq = pytest.importorskip("torchdiffeq")
    field, start = neural_problem()
    times = torch.linspace(0, 1, 11, dtype=torch.float64)
    with torch.no_grad():
        reference = torchdiffeq.odeint(field, start, times, method=name)
        values = ours.odeint(field, start, times, method=name)
    assert float((values - reference).abs().max()) < 1e-13


def test_tuples_of_any_shapes():
    def field(t, state):
        a, b = state
        return -a * b.sum(), torch.cos(t) * torch.ones_like(b)

    start = (torch.ones(2, 3, dtype=torch.float64), torch.zeros(4, dtype=torch.float64))
    a, b = ours.odeint(field, start, torch.tensor([0.0, 1.0], dtype=torch.float64))
    assert a.shape == (2, 2, 3) and b.shape == (2, 4)
    # b = sin t, and a = exp(−∫ 4 sin t dt)
    assert float((b[-1] - np.sin(1.0)).abs().max()) < 1e-7
    assert float((a[-1] - np.exp(-4 * (1 - np.cos(1.0)))).abs().max()) < 1e-6
