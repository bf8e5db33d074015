"""`auto`: explicit while a field is mild, implicit while it is stiff, and the gradients of both."""

from __future__ import annotations

import math

import pytest
import torch

from undamped._base.errors import OptionError
from undamped.ode import Auto, solve
from undamped.ode.methods.implicit.auto import AutoStepper

START = torch.tensor([[2.0, 0.0]], dtype=torch.float64)
TOLERANCE = {"rtol": 1e-5, "atol": 1e-7}


def van_der_pol(rate):
    def field(t, y):
        x, v = y.unbind(-1)
        return torch.stack((v, rate * ((1 - x**2) * v - x)), dim=-1)

    return field


@pytest.fixture
def switched(monkeypatch):
    result = []
    usual = AutoStepper._switch

    def switch(self, solver, t):
        result.append(solver.name)
        usual(self, solver, t)

    monkeypatch.setattr(AutoStepper, "_switch", switch)
    return result


@torch.no_grad()
def test_a_stiff_field_is_handed_over(switched):
    field = van_der_pol(1e4)
    result = solve(field, START, [0.0, 0.5], method="auto", **TOLERANCE)
    expected = solve(field, START, [0.0, 0.5], method="radau5", rtol=1e-7, atol=1e-9)
    assert switched[0] == "radau5" and result.evaluations < 4000
    torch.testing.assert_close(result.final, expected.final, rtol=1e-3, atol=1e-3)


@torch.no_grad()
def test_a_mild_field_stays_explicit(switched):
    result = solve(van_der_pol(1.0), START, [0.0, 10.0], method="auto", **TOLERANCE)
    plain = solve(van_der_pol(1.0), START, [0.0, 10.0], method="tsit5", **TOLERANCE)
    assert not switched
    torch.testing.assert_close(result.final, plain.final, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@torch.no_grad()
def test_a_field_that_calms_down_is_handed_back(switched):
    def field(t, y):
        rate = 3000.0 * torch.exp(-10 * t) + 1
        return -rate * (y - torch.cos(5 * t))

    start = torch.ones(2, 1, dtype=torch.float64)
    result = solve(field, start, [0.0, 6.0], method="auto", **TOLERANCE)
    expected = solve(field, start, [0.0, 6.0], method="radau5", rtol=1e-9, atol=1e-11)
    assert switched[:2] == ["radau5", "tsit5"]
    torch.testing.assert_close(result.final, expected.final, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("gradient", ["checkpoint", "backprop"])
def test_gradients_go_through_both_kinds_of_steps(gradient, switched):
    rate = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)

    def field(t, y):
        return -3e4 * (y**3 - rate * torch.cos(t))

    start = torch.full((1, 2), 1.5, dtype=torch.float64)
    final = solve(field, start, [0.0, 1.0], method="auto", gradient=gradient, **TOLERANCE).final
    (result,) = torch.autograd.grad(final.sum(), rate)
    assert "radau5" in switched
    # The state follows y³ = rate · cos t, but for a lag of 1/3e4.
    assert float(result) == pytest.approx(2 / 3 * math.cos(1.0) ** (1 / 3), rel=1e-3)


def test_what_does_not_fit_is_said():
    with pytest.raises(OptionError, match="detects stiffness"):
        Auto(explicit="rk4")
    with pytest.raises(OptionError, match="one method for all steps"):
        y0 = START.clone().requires_grad_()
        solve(van_der_pol(1.0), y0, [0.0, 1.0], method="auto", gradient="adjoint")
