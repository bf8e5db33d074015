"""Transforms of `torch.func` and forward differentiation: right, or refused in a sentence."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import forward_ad
from torch.autograd.functional import jacobian
from torch.func import functional_call, grad, jacfwd, jacrev, jvp, vmap

import undamped
from undamped._base.errors import OptionError
from undamped._base.registry import solvers
from undamped.ode import NeuralODE, solve
from undamped.ode.fields import PerceptronField

# Torch warns of its own insides when it first loads forward differentiation.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
D = torch.float64
WEIGHT = torch.tensor([[-0.3, 1.0], [-1.0, -0.3]], dtype=D)
Y0, DIRECTION = torch.tensor([1.0, 2.0], dtype=D), torch.tensor([0.3, -1.0], dtype=D)
MANY = torch.randn(2, 2, dtype=D, generator=torch.Generator().manual_seed(0))
METHODS = [name for name in solvers if not solvers[name].rotates]
EXPLICIT = [m for m in METHODS if not solvers[m].implicit or solvers[m].switches]
IMPLICIT = [m for m in METHODS if m not in EXPLICIT]
FIXED = {"step_size": 0.5}


def field(t, y):
    return torch.tanh(y @ WEIGHT) * torch.cos(t)


def final(method, gradient=None, options=FIXED):
    t = torch.tensor([0.0, 1.0], dtype=D)
    return lambda y: undamped.odeint(
        field, y, t, method=method, options=options, gradient=gradient
    )[-1]


@pytest.mark.parametrize("gradient", [None, "backprop"])
@pytest.mark.parametrize("method", EXPLICIT)
def test_fixed_steps_are_seen_through(method, gradient):
    end = final(method, gradient)
    expected = jacobian(end, Y0)
    torch.testing.assert_close(jacrev(end)(Y0), expected)
    torch.testing.assert_close(jacfwd(end)(Y0), expected)
    torch.testing.assert_close(grad(lambda y: end(y).sum())(Y0), expected.sum(0))
    torch.testing.assert_close(vmap(end)(MANY), torch.stack([end(y) for y in MANY]))
    each = torch.stack([jacobian(end, y) for y in MANY])
    torch.testing.assert_close(vmap(jacrev(end))(MANY), each)


@pytest.mark.parametrize("gradient", [None, "backprop"])
def test_chosen_steps_are_seen_through(gradient):
    end = final("dopri5", gradient, options={})
    expected = jacobian(end, Y0)
    torch.testing.assert_close(jacrev(end)(Y0), expected)
    torch.testing.assert_close(jvp(end, (Y0,), (DIRECTION,))[1], expected @ DIRECTION)
    with pytest.raises(OptionError, match=r"vmap.*steps='sample'"):
        vmap(end)(MANY)

    def by_rate(rate):
        return undamped.odeint(lambda t, y: -rate * y, Y0, torch.tensor([0.0, 1.0], dtype=D))

    with pytest.raises(OptionError, match=r"vmap.*steps='sample'"):
        vmap(by_rate)(torch.rand(3, dtype=D))


def test_a_map_that_learns_its_step_is_seen_through():
    model, start = undamped.models.SympNet(1), torch.tensor([[0.3, -0.2]])
    result = jacrev(lambda y: model.trajectory(y, [0.1, 0.2])[-1])(start)
    torch.testing.assert_close(
        result, jacobian(lambda y: model.trajectory(y, [0.1, 0.2])[-1], start)
    )
    assert model.step.item() == pytest.approx(0.1)


@pytest.mark.parametrize("gradient", ["checkpoint", "backprop", "adjoint"])
def test_a_neural_ode_is_seen_through(gradient):
    torch.manual_seed(0)
    model, x = NeuralODE(PerceptronField(2, 4).to(D), gradient=gradient, rtol=1e-5), MANY
    parameters = dict(model.named_parameters())

    def loss(parameters):
        return functional_call(model, parameters, (x,)).pow(2).sum()

    if gradient == "adjoint":
        with pytest.raises(OptionError, match=r"adjoint.*backprop"):
            grad(loss)(parameters)
        return
    expected = torch.autograd.grad(loss(parameters), list(parameters.values()))
    for result, other in zip(grad(loss)(parameters).values(), expected, strict=True):
        torch.testing.assert_close(result, other)


@pytest.mark.parametrize("method", IMPLICIT)
def test_equations_are_not_seen_through_and_that_is_said(method):
    end = final(method)
    for transform, start in ((grad(lambda y: end(y).sum()), Y0), (vmap(end), MANY)):
        with pytest.raises(OptionError, match=r"torch\.func.*torch\.autograd"):
            transform(start)


@pytest.mark.slow
@pytest.mark.parametrize("steps", ["batch", "sample"])
@pytest.mark.parametrize("gradient", ["checkpoint", "backprop", "adjoint"])
@pytest.mark.parametrize("method", METHODS)
def test_tangents_are_right_or_refused(method, gradient, steps):
    solver = solvers[method]()
    how = {"method": method, "gradient": gradient, "steps": steps}
    how |= {"rtol": 1e-3, "atol": 1e-3} if solver.adaptive else {"options": FIXED}
    scale = torch.ones((), dtype=D)

    def ends(start, factor):
        return solve(lambda t, y: factor * field(t, y), start, [0.0, 1.0], **how).final

    try:
        plain = ends(MANY, scale)
    except OptionError:  # a way that this method does not go
        return
    eps = 1e-6
    for start, factor in ((MANY.flip(0), torch.zeros((), dtype=D)), (0 * MANY, scale)):
        sides = [ends(MANY + s * eps * start, scale + s * eps * factor) for s in (1, -1)]
        try:
            with forward_ad.dual_level():
                moved = forward_ad.make_dual(MANY, start) if start.any() else MANY
                tuned = forward_ad.make_dual(scale, factor) if factor else scale
                value = forward_ad.unpack_dual(ends(moved, tuned))
        except OptionError as error:
            assert "torch.func" in str(error)
            continue
        torch.testing.assert_close(value.primal, plain)
        # Step sizes follow the state too, which tangents do not.
        expected = (sides[0] - sides[1]) / (2 * eps)
        torch.testing.assert_close(value.tangent, expected, rtol=2e-2, atol=2e-2)
