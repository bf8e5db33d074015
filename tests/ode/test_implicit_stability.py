"""What implicit methods promise on linear fields, and Rodas5P inside its steps."""

from __future__ import annotations

import math

import pytest
import torch

from undamped._base.registry import solvers
from undamped.ode import Rodas5P, solve

IMPLICIT = [n for n in solvers if solvers[n].implicit and not solvers[n].switches]
# A symmetric method keeps fast modes: |R(∞)| = 1.
L_STABLE = [name for name in IMPLICIT if not solvers[name].symmetric]


def stability(method, z):
    """R(z): what one step makes of y' = z y, by its two real parts."""
    turn = torch.tensor([[z.real, -z.imag], [z.imag, z.real]], dtype=torch.float64)
    start = torch.tensor([1.0, 0.0], dtype=torch.float64)
    (y,), _ = solvers[method]().step(lambda t, y: turn @ y, 0.0, 1.0, (start,))
    return complex(*y.tolist())


@pytest.mark.parametrize("method", L_STABLE)
def test_fast_modes_are_gone_after_a_step(method):
    assert abs(stability(method, -1e7 + 0j)) < 1e-5
    assert abs(stability(method, complex(-1e6, 1e7))) < 1e-4


@pytest.mark.parametrize("method", IMPLICIT)
def test_no_decaying_mode_grows(method):
    for size in (0.3, 3.0, 30.0, 300.0):
        for angle in (0.51, 0.6, 0.75, 1.0):
            z = size * complex(math.cos(angle * math.pi), math.sin(angle * math.pi))
            assert abs(stability(method, z)) <= 1 + 1e-9, (method, z)


@pytest.mark.parametrize("method", IMPLICIT)
def test_small_steps_follow_the_exponential(method):
    order = solvers[method]().order
    z = 0.1 * complex(-1.0, 1.0)
    exact = complex(math.e) ** z
    assert abs(stability(method, z) - exact) < 2 * abs(z) ** (order + 1)


@torch.no_grad()
def test_the_polynomial_inside_a_step_of_rodas5p_has_order_four():
    def field(t, y):
        return torch.stack((y[1], -torch.sin(y[0]) * (1 + 0.3 * torch.sin(t))))

    start = torch.tensor([0.9, 0.3], dtype=torch.float64)
    errors = []
    for h in (0.2, 0.1):
        stepper = Rodas5P().stepper(field, 0.0, start, None)
        stepper.attempt(0.0, h)
        expected = solve(field, start, [0.0, 0.37 * h], method="dopri8", rtol=1e-12, atol=1e-14)
        errors.append(float((stepper.inside(h, 0.37) - expected.final).abs().max()))
    assert math.log2(errors[0] / errors[1]) > 4.7


def test_rodas5p_can_be_differentiated_twice():
    def field(t, y):
        return -(y**3) * torch.cos(t)

    def final(y0):
        how = {"method": "rodas5p", "gradient": "backprop", "options": {"step_size": 0.25}}
        return solve(field, y0, [0.0, 0.5], **how).final

    y0 = torch.tensor([[0.8], [1.3]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(final, y0)
    assert torch.autograd.gradgradcheck(final, y0)
