"""Derivatives in implicit solvers: with gradients, in threads, nested, without a forward mode."""

from __future__ import annotations

import math
import threading

import pytest
import torch

from undamped._base.registry import solvers
from undamped.ode import solve
from undamped.ode.methods.implicit.linear_solvers import SMALL, FullFactors, Inverses
from undamped.ode.methods.implicit.local_field import LocalField

ONE = torch.ones(2, 1, dtype=torch.float64)


class Cubed(torch.autograd.Function):
    """−x³, which cannot be differentiated forwards."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return -(x**3)

    @staticmethod
    def backward(ctx, pull):
        return -3 * ctx.saved_tensors[0] ** 2 * pull


class CubedOnce(Cubed):
    """The same, which can be differentiated once only."""

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, pull):
        return Cubed.backward(ctx, pull)


@pytest.mark.parametrize("gradient", ["checkpoint", "adjoint", "backprop"])
def test_newton_knows_the_derivative_when_gradients_are_wanted(gradient):
    def field(t, y):
        return -2 * (y - 1) * (1 + y**2)

    options = {"step_size": 0.5}
    with torch.no_grad():
        plain = solve(field, 2 * ONE, [0.0, 1.0], method="implicit-euler", options=options)
    y0 = (2 * ONE).requires_grad_()
    with_graph = solve(
        field, y0, [0.0, 1.0], method="implicit-euler", options=options, gradient=gradient
    )
    torch.testing.assert_close(with_graph.final.detach(), plain.final, rtol=1e-12, atol=0)
    assert with_graph.evaluations <= plain.evaluations + 2


@pytest.mark.parametrize("field", [Cubed.apply, CubedOnce.apply])
@pytest.mark.parametrize("method", ["radau5", "sdirk4"])
def test_fields_without_a_forward_derivative(field, method):
    y0 = ONE.clone().requires_grad_()
    result = solve(lambda t, y: field(y), y0, [0.0, 1.0], method=method, rtol=1e-5, atol=1e-7).final
    torch.testing.assert_close(result.detach(), ONE / math.sqrt(3), rtol=1e-4, atol=0)
    (pulled,) = torch.autograd.grad(result.sum(), y0)
    torch.testing.assert_close(pulled, ONE * 3**-1.5, rtol=1e-4, atol=0)


def test_threads_solve_at_once():
    def field(t, y):
        return -50 * (y - torch.cos(t)) * (1 + y**2)

    result, ready = {}, threading.Barrier(3)

    def work(number, method):
        ready.wait()
        result[number] = solve(field, ONE, [0.0, 0.5], method=method, rtol=1e-5, atol=1e-7).final

    threads = [
        threading.Thread(target=work, args=pair)
        for pair in enumerate(("radau5", "sdirk4", "radau5"))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = solve(field, ONE, [0.0, 0.5], method="dopri8", rtol=1e-8, atol=1e-10).final
    for number in range(3):
        torch.testing.assert_close(result[number], expected, rtol=1e-4, atol=0)


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("method", ["implicit-euler", "rk4"])
def test_a_solve_inside_the_field_of_an_implicit_solve(grad, method):
    def field(t, y):
        def inner(s, z):
            return -2 * (z - y) * (1 + z**2)

        options = {"step_size": 0.5 if method == "implicit-euler" else 0.1}
        return -3 * solve(inner, 2 * y, [0.0, 1.0], method=method, options=options).final

    with torch.set_grad_enabled(grad):
        expected = solve(field, ONE, [0.0, 0.25], method="rk4", options={"step_size": 0.05}).final
        result = solve(field, ONE, [0.0, 0.25], method="radau5", options={"step_size": 0.25}).final
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=0)


@pytest.mark.parametrize("gradient", ["checkpoint", "adjoint", "backprop"])
@pytest.mark.parametrize(
    ("method", "steps"), [("radau5", "batch"), ("sdirk4", "batch"), ("dopri5", "sample")]
)
def test_no_samples_at_all(method, steps, gradient):
    y0 = torch.ones(0, 3, requires_grad=True)
    result = solve(lambda t, y: -y, y0, [0.0, 1.0], method=method, steps=steps, gradient=gradient)
    assert result.success and result.values.shape == (2, 0, 3)
    assert torch.autograd.grad(result.final.sum(), y0)[0].shape == (0, 3)


def nodes_between(value, y):
    """Return the number of autograd nodes that lead from a value to y and no further."""
    waiting, seen = [value.grad_fn], {y.grad_fn}
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting += [before for before, _ in node.next_functions]
    return len(seen)


@pytest.mark.parametrize(
    "method", [name for name in solvers if solvers[name].implicit and not solvers[name].switches]
)
def test_back_propagation_through_a_step_visits_that_step_only(method, monkeypatch):
    torch.manual_seed(0)
    weight = (torch.randn(3, 3, dtype=torch.float64) - 5 * torch.eye(3)).requires_grad_()
    y0 = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    visits, vjp = [], LocalField.vjp

    def counted(self, *arguments, **more):
        if self.value.requires_grad:
            visits.append(nodes_between(self.value, self.y))
        return vjp(self, *arguments, **more)

    monkeypatch.setattr(LocalField, "vjp", counted)

    def gradients(gradient, steps):
        solution = solve(
            lambda t, y: torch.tanh(y @ weight),
            y0,
            [0.0, 0.5],
            method=method,
            gradient=gradient,
            options={"step_size": 0.5 / steps},
        )
        visits.clear()
        return torch.autograd.grad(solution.final.pow(2).sum(), (y0, weight))

    exact = gradients("checkpoint", 12)
    largest = []
    for steps in (3, 12):
        result = gradients("backprop", steps)
        largest.append(max(visits, default=0))
    assert largest[0] == largest[1]
    torch.testing.assert_close(result, exact, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", [1, 4])
def test_inverses_solve_what_factors_solve(count, dtype):
    torch.manual_seed(0)
    scaled, shifts = 10 * torch.randn(count, 3, 3, dtype=dtype), (3.6, complex(2.7, 3.1))
    right = torch.randn(3, count, 3, dtype=dtype)
    factors, inverses = FullFactors(), Inverses()
    for choice in (None, torch.tensor([count - 1])):
        part = scaled if choice is None else 2 * scaled[choice]
        factors.renew(part, shifts, choice)
        inverses.renew(part, shifts, choice)
    pair = factors.solve(1, torch.complex(right[1], right[2]))
    expected = torch.stack((factors.solve(0, right[0]), pair.real, pair.imag))
    torch.testing.assert_close(inverses.solve_all(right), expected)
    torch.testing.assert_close(inverses.solve(0, right[0]), expected[0])


def test_a_singular_system_has_no_finite_inverse():
    inverses = Inverses()
    inverses.renew(torch.tensor([[[-2.0, 1.0], [0.0, 5.0]]]), (2.0,), None)
    assert not inverses.solve(0, torch.ones(1, 2)).isfinite().all()


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("steps", ["batch", "sample"])
@pytest.mark.parametrize("method", ["radau5", "sdirk4"])
def test_small_systems_take_the_same_steps_as_large_ones(method, steps):
    """Many copies of a system are one large system with the same norm of its errors."""

    def van_der_pol(t, y):
        x, v = y.unflatten(-1, (-1, 2)).unbind(-1)
        return torch.stack((v, 50 * ((1 - x * x) * v - x)), dim=-1).flatten(-2)

    start = torch.tensor([[2.0, 0.0], [1.5, 0.1]], dtype=torch.float64)
    options = {"method": method, "steps": steps, "rtol": 1e-5}
    small = solve(van_der_pol, start, [0.0, 2.0], **options)
    copies = SMALL // 2 + 1
    large = solve(van_der_pol, start.repeat(1, copies), [0.0, 2.0], **options)
    assert small.evaluations == large.evaluations
    torch.testing.assert_close(large.final, small.final.repeat(1, copies), rtol=1e-9, atol=1e-9)
