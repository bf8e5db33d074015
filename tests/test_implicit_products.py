"""Derivatives in implicit solvers: with gradients, in threads, nested, without a forward mode."""

from __future__ import annotations

import math
import threading

import pytest
import torch

from undamped.solvers import solve

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
    found = solve(lambda t, y: field(y), y0, [0.0, 1.0], method=method, rtol=1e-5, atol=1e-7).final
    torch.testing.assert_close(found.detach(), ONE / math.sqrt(3), rtol=1e-4, atol=0)
    (pulled,) = torch.autograd.grad(found.sum(), y0)
    torch.testing.assert_close(pulled, ONE * 3**-1.5, rtol=1e-4, atol=0)


def test_threads_solve_at_once():
    def field(t, y):
        return -50 * (y - torch.cos(t)) * (1 + y**2)

    found, ready = {}, threading.Barrier(3)

    def work(number, method):
        ready.wait()
        found[number] = solve(field, ONE, [0.0, 0.5], method=method, rtol=1e-5, atol=1e-7).final

    threads = [
        threading.Thread(target=work, args=pair)
        for pair in enumerate(("radau5", "sdirk4", "radau5"))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wanted = solve(field, ONE, [0.0, 0.5], method="dopri8", rtol=1e-8, atol=1e-10).final
    for number in range(3):
        torch.testing.assert_close(found[number], wanted, rtol=1e-4, atol=0)


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("method", ["implicit-euler", "rk4"])
def test_a_solve_inside_the_field_of_an_implicit_solve(grad, method):
    def field(t, y):
        def inner(s, z):
            return -2 * (z - y) * (1 + z**2)

        options = {"step_size": 0.5 if method == "implicit-euler" else 0.1}
        return -3 * solve(inner, 2 * y, [0.0, 1.0], method=method, options=options).final

    with torch.set_grad_enabled(grad):
        wanted = solve(field, ONE, [0.0, 0.25], method="rk4", options={"step_size": 0.05}).final
        found = solve(field, ONE, [0.0, 0.25], method="radau5", options={"step_size": 0.25}).final
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=0)


@pytest.mark.parametrize("gradient", ["checkpoint", "adjoint", "backprop"])
@pytest.mark.parametrize(
    ("method", "steps"), [("radau5", "batch"), ("sdirk4", "batch"), ("dopri5", "sample")]
)
def test_no_samples_at_all(method, steps, gradient):
    y0 = torch.ones(0, 3, requires_grad=True)
    found = solve(lambda t, y: -y, y0, [0.0, 1.0], method=method, steps=steps, gradient=gradient)
    assert found.success and found.values.shape == (2, 0, 3)
    assert torch.autograd.grad(found.final.sum(), y0)[0].shape == (0, 3)
