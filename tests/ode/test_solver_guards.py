"""What could make a solve or its gradient silently wrong is right, or refused in a sentence."""

import pytest
import torch
from torch import nn
from torch.func import functional_call

import undamped
from undamped._base.errors import OptionError, ShapeError
from undamped.ode import Dopri5, NeuralODE, solve
from undamped.ode.fields import PerceptronField

D = torch.float64
TIMES = [0.0, 1.0]


def ones(*shape, **more):
    return torch.ones(*shape, dtype=D, **more)


@pytest.mark.parametrize("gradient", ["checkpoint", "adjoint"])
def test_a_tensor_used_only_later_is_an_error_not_a_missing_gradient(gradient):
    early, late = ones((), requires_grad=True), ones((), requires_grad=True)

    def field(t, y):
        return -(early if t < 0.5 else late) * y

    values = solve(
        field, ones(2), TIMES, method="rk4", options={"step_size": 0.1}, gradient=gradient
    ).final
    with pytest.raises(OptionError, match="later than at the start"):
        values.sum().backward()
    named = solve(
        field,
        ones(2),
        TIMES,
        method="rk4",
        options={"step_size": 0.1},
        gradient=gradient,
        parameters=[early, late],
    ).final
    result = torch.autograd.grad(named.sum(), (early, late))
    # y(1) = exp(−(early + late)/2), twice; stages at the jump belong to one side or the other.
    assert all(abs(float(part) + 0.37) < 0.05 for part in result)
    assert abs(float(sum(result)) + 0.7358) < 1e-4


def test_a_tensor_used_only_later_with_steps_of_samples():
    early, late = ones((), requires_grad=True), ones((), requires_grad=True)

    def field(t, y):
        return -(early if t.max() < 0.5 else late) * y

    values = solve(
        field, ones(2, 1), TIMES, steps="sample", gradient="adjoint", rtol=1e-3, atol=1e-3
    ).final
    with pytest.raises(OptionError, match="later than at the start"):
        values.sum().backward()


@pytest.mark.parametrize("gradient", ["checkpoint", "adjoint"])
def test_nothing_is_counted_twice(gradient):
    """A tensor that was computed from one of the field's own parameters."""

    class Twice(nn.Module):
        def __init__(self, direct):
            super().__init__()
            self.rate = nn.Parameter(torch.tensor(0.5, dtype=torch.float64))
            self.other, self.direct = self.rate + self.rate, direct

        def forward(self, t, y):
            return -(self.other + self.rate if self.direct else self.other) * y

    def slope(direct, **more):
        field = Twice(direct)
        end = solve(field, y, [0.0, 1.0], parameters=[field.other], **more).final
        return torch.autograd.grad(end.sum(), field.rate)[0]

    y = torch.ones(1, dtype=torch.float64)
    torch.testing.assert_close(slope(False, gradient=gradient), -2 * torch.exp(-y).squeeze())
    torch.testing.assert_close(slope(True, gradient="backprop"), -3 * torch.exp(-1.5 * y).squeeze())
    with pytest.raises(OptionError, match="tensors that do not depend on each other"):
        slope(True, gradient=gradient)


@pytest.mark.parametrize("gradient", ["checkpoint", "adjoint"])
def test_a_leaf_that_the_field_makes_for_itself_is_its_own(gradient):
    weight, start = ones((), requires_grad=True), ones(2, requires_grad=True)

    def field(t, y):
        inner = torch.zeros(2, dtype=D, requires_grad=True) if t > 0.5 else 0.0
        return -weight * y + inner

    (result,) = torch.autograd.grad(
        solve(field, start, TIMES, rtol=1e-8, atol=1e-8, gradient=gradient).final.sum(), start
    )
    torch.testing.assert_close(result, torch.full_like(start, 0.36788), rtol=1e-4, atol=0)


@pytest.mark.parametrize("gradient", ["checkpoint", "adjoint"])
def test_a_gradient_of_a_gradient_is_refused(gradient):
    start, weight = ones(1, requires_grad=True), ones((), requires_grad=True)
    values = solve(lambda t, y: -weight * y**2, start, TIMES, gradient=gradient).final
    (slope,) = torch.autograd.grad(values.sum(), start, create_graph=True)
    assert abs(float(slope.detach()) - 0.25) < 1e-4  # the gradient itself is there
    with pytest.raises(OptionError, match="backprop"):
        torch.autograd.grad(slope.pow(2).sum(), weight, allow_unused=True, retain_graph=True)
    with pytest.raises(OptionError, match="backprop"):
        slope.pow(2).sum().backward()


@pytest.mark.parametrize("method", ["radau5", "sdirk4"])
def test_a_gradient_of_a_gradient_of_an_implicit_method_is_refused(method):
    start, weight = ones(1, requires_grad=True), ones((), requires_grad=True)
    values = solve(
        lambda t, y: -weight * y**2, start, TIMES, method=method, gradient="backprop"
    ).final
    (slope,) = torch.autograd.grad(values.sum(), start, create_graph=True)
    assert abs(float(slope.detach()) - 0.25) < 1e-4
    with pytest.raises(OptionError, match="explicit method"):
        torch.autograd.grad(slope.pow(2).sum(), weight)


def test_a_gradient_of_a_gradient_by_backprop():
    start, weight = ones(1, requires_grad=True), ones((), requires_grad=True)
    values = solve(lambda t, y: -weight * y**2, start, TIMES, gradient="backprop").final
    (slope,) = torch.autograd.grad(values.sum(), start, create_graph=True)
    # y = 1/(1 + w t), dy/dy0 = y², its derivative by w: −2/(1 + w)³
    (second,) = torch.autograd.grad(slope.sum(), weight)
    assert abs(float(second) + 0.25) < 1e-6


def test_a_field_that_writes_over_its_answer_is_refused():
    buffer = torch.empty(3, dtype=D)

    def field(t, y):
        return torch.neg(y, out=buffer)

    with torch.no_grad(), pytest.raises(OptionError, match="written over"):
        undamped.odeint(field, ones(3), torch.tensor(TIMES))


def test_a_field_may_answer_with_one_constant():
    constant = torch.full((3,), 2.0, dtype=D)
    with torch.no_grad():
        values = undamped.odeint(lambda t, y: constant, ones(3), torch.tensor(TIMES))
    torch.testing.assert_close(values[-1], torch.full((3,), 3.0, dtype=D))


@pytest.mark.parametrize("method", ["symplectic-euler", "leapfrog", "yoshida4", "tao"])
def test_the_adjoint_has_no_phase_space(method):
    with pytest.raises(OptionError, match="checkpoint"):
        solve(
            lambda t, y: y.flip(-1),
            ones(1, 2, requires_grad=True),
            TIMES,
            method=method,
            options={"step_size": 0.1},
            gradient="adjoint",
        )


def test_phase_space_wants_a_momentum_for_every_position():
    with pytest.raises(ShapeError, match="equal shapes"):
        solve(
            lambda t, y: (-y[0], -y[1]),
            (ones(2, 3), ones(2, 1)),
            TIMES,
            method="leapfrog",
            options={"step_size": 0.1},
        )


@pytest.mark.parametrize("gradient", ["checkpoint", "adjoint"])
def test_chance_in_a_field_is_refused_where_it_is_evaluated_again(gradient):
    def field(t, y):
        return nn.functional.dropout(y, 0.5)

    start = ones(5, requires_grad=True)
    options = {"step_size": 0.25}
    with pytest.raises(OptionError, match="random numbers"):
        solve(field, start, TIMES, method="euler", options=options, gradient=gradient)
    kept = solve(field, start, TIMES, method="euler", options=options, gradient="backprop").final
    # The field is linear: its value is its gradient.
    torch.testing.assert_close(torch.autograd.grad(kept.sum(), start)[0], kept.detach())


@pytest.mark.parametrize("gradient", ["checkpoint", "adjoint", "backprop"])
def test_lent_parameters_get_their_gradient(gradient):
    torch.manual_seed(0)
    model = NeuralODE(PerceptronField(2, 4), gradient=gradient, rtol=1e-7, atol=1e-8).double()
    scale = torch.tensor(1.1, dtype=D, requires_grad=True)
    lent = {name: parameter * scale for name, parameter in model.named_parameters()}
    functional_call(model, lent, (ones(3, 2),)).sum().backward()
    result = scale.grad
    step = 1e-5
    sides = []
    for moved in (1.1 + step, 1.1 - step):
        with torch.no_grad():
            lent = {name: parameter * moved for name, parameter in model.named_parameters()}
            sides.append(functional_call(model, lent, (ones(3, 2),)).sum())
    assert result is not None
    assert abs(float(result - (sides[0] - sides[1]) / (2 * step))) < 1e-3


def test_changing_a_parameter_before_the_way_back_is_noticed():
    weight = nn.Parameter(ones(1))
    values = solve(lambda t, y: -weight * y, ones(1), TIMES).final
    with torch.no_grad():
        weight.mul_(3)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        values.sum().backward()


def test_mixed_precision_is_that_of_the_way_there():
    torch.manual_seed(0)
    layer = nn.Linear(4, 4)
    start = torch.randn(8, 4)
    result = {}
    for gradient in ("backprop", "checkpoint"):
        layer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            values = solve(
                lambda t, y: torch.tanh(layer(y)),
                start,
                TIMES,
                method="rk4",
                options={"step_size": 0.1},
                gradient=gradient,
            ).final
        values.float().sum().backward()
        assert layer.weight.grad is not None
        result[gradient] = layer.weight.grad.clone()
    torch.testing.assert_close(result["checkpoint"], result["backprop"], rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize(
    ("field", "named"),
    [
        (lambda t, y: (-y).long(), "int64"),
        (lambda t, y: (-y).float(), "float32"),
        (lambda t, y: (-y) * 1j, "complex128"),
        (lambda t, y: -y if t < 0.3 else -y[:1], "shape of the state"),
        (lambda t, y: -y if t < 0.3 else (-y).expand(2, 3), "shape of the state"),
        (lambda t, y: 1.0, "a float"),
    ],
)
@pytest.mark.parametrize("gradient", ["checkpoint", "backprop"])
def test_slopes_are_like_the_state(field, named, gradient):
    with pytest.raises(ShapeError, match=named):
        solve(field, ones(3, requires_grad=True), TIMES, gradient=gradient)


@pytest.mark.parametrize(
    ("start", "named"),
    [
        (torch.ones(3, dtype=torch.int64), "int64"),
        (1.0, "a float"),
        ((), "empty"),
        ((torch.ones(2), 1.0), "a float"),
    ],
)
def test_starts_are_real_tensors(start, named):
    with pytest.raises(ShapeError, match=named):
        solve(lambda t, y: y, start, TIMES)


def test_members_without_dimensions():
    values = undamped.odeint(
        lambda t, y: (-y[0], -y[1]), (ones(2, 3), ones(())), torch.tensor(TIMES)
    )
    assert [tuple(member.shape) for member in values] == [(2, 2, 3), (2,)]
    with pytest.raises(ShapeError, match="shape of the state"):
        solve(lambda t, y: (-y[0], 1.0), (ones(2, 3), ones(())), TIMES)


def test_a_start_from_inference_mode():
    with torch.inference_mode():
        start = ones(2)
    assert solve(lambda t, y: -y, start, TIMES).final.shape == (2,)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"method": Dopri5}, r"Write Dopri5\(\)"),
        ({"method": None}, "method"),
        ({"options": [1]}, "options must be a dict"),
        ({"rtol": -1.0}, "rtol"),
        ({"on_failure": "ignore"}, "on_failure"),
        ({"gradient": "adjoint", "options": {"checkpoint_steps": 4}}, "checkpoint_steps"),
        ({"options": {"step_size": 0.1}, "rtol": 1e-3}, "Leave out step_size"),
    ],
)
def test_settings_that_cannot_be_meant(settings, named):
    with pytest.raises(OptionError, match=named):
        solve(lambda t, y: -y, ones(2), TIMES, **settings)


@pytest.mark.parametrize("times", [None, ["soon", "later"], [[0.0], [1.0, 2.0]], [0j, 1j], 1.0])
def test_times_are_real_numbers(times):
    with pytest.raises((OptionError, ShapeError), match="times"):
        solve(lambda t, y: -y, ones(2), times)
