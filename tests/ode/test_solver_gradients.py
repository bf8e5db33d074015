"""The four ways to a gradient: exact where they say so, and none silently lost."""

import contextlib
import gc
from weakref import ref

import pytest
import torch
from torch import nn

from undamped._base.errors import OptionError
from undamped._base.registry import solvers
from undamped.ode import HyperSolver, McCallumFoster, Separable, solve

torch.manual_seed(0)
START = torch.randn(3, 2, dtype=torch.float64)
TIMES = [0.0, 0.4, 1.0]


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.weight = nn.Parameter(torch.randn(2, 2, dtype=torch.float64))
        self.bias = nn.Parameter(torch.randn(2, dtype=torch.float64))
        self.unused = nn.Parameter(torch.randn(5, dtype=torch.float64))

    def forward(self, t, y):
        return torch.tanh(y @ self.weight.T + self.bias * torch.sin(3 * t))


def gradients(
    method, gradient, *, options=None, steps="batch", compact=False, field=None, rtol=None
):
    field = field or Field()
    start = START.clone().requires_grad_()
    solution = solve(
        field,
        start,
        TIMES,
        method=method,
        gradient=gradient,
        options=options,
        rtol=rtol,
        atol=rtol,
        steps=steps,
        compact=compact,
    )
    loss = (solution.values.cos() * torch.tensor([1.0, -2.0, 3.0]).view(3, 1, 1)).sum()
    result = torch.autograd.grad(loss, [start, field.weight, field.bias])
    return result, solution


CASES = [
    ("dopri5", None),
    ("tsit5", {"checkpoint_steps": 3}),
    ("bosh3", {"step_size": 0.1}),
    ("rk4", {"step_size": 0.1, "checkpoint_steps": 2}),
    ("dopri8", None),
    ("radau5", {"step_size": 0.2}),
    ("sdirk4", {"step_size": 0.1}),
    ("alf", {"step_size": 0.05}),
    ("reversible-heun", {"step_size": 0.05}),
    ("mccallum-foster", {"step_size": 0.05}),
    ("tao", {"step_size": 0.05}),
]


@pytest.mark.parametrize(("method", "options"), CASES)
def test_checkpoints_give_the_gradient_of_back_propagation(method, options):
    plain = {k: v for k, v in (options or {}).items() if k != "checkpoint_steps"} or None
    expected, there = gradients(method, "backprop", options=plain)
    result, solution = gradients(method, "checkpoint", options=options)
    torch.testing.assert_close(solution.values, there.values, rtol=1e-9, atol=1e-9)
    tight = 1e-8 if method in ("radau5", "sdirk4") else 1e-12  # those solve equations
    for a, b in zip(result, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=tight, atol=tight)
    assert solution.evaluations_backward > 0


@pytest.mark.parametrize("method", ["alf", "reversible-heun", "tao", McCallumFoster("rk4")])
def test_reversing_gives_the_gradient_of_back_propagation(method):
    options = {"step_size": 0.04}
    expected, _ = gradients(method, "backprop", options=options)
    result, _ = gradients(method, "reversible", options=options)
    for a, b in zip(result, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("method", ["symplectic-euler", "leapfrog", "yoshida4"])
def test_symplectic_methods_reverse_on_separable_fields(method):
    scale = nn.Parameter(torch.tensor(1.3, dtype=torch.float64))
    field = Separable(lambda t, p: p, lambda t, q: -scale * torch.sin(q))
    results = []
    for gradient in ("backprop", "reversible"):
        start = START.clone().requires_grad_()
        solution = solve(
            field, start, TIMES, method=method, gradient=gradient, options={"step_size": 0.02}
        )
        results.append(torch.autograd.grad(solution.values.sin().sum(), [start, scale]))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("method", ["dopri5", "heun"])
def test_steps_of_their_own_give_exact_gradients_too(method, compact):
    options = {"first_step": 0.05}
    field = Field()
    more = {"options": options, "steps": "sample", "field": field, "rtol": 1e-4}
    expected, _ = gradients(method, "backprop", **more)
    result, _ = gradients(method, "checkpoint", compact=compact, **more)
    for a, b in zip(result, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_the_adjoint_is_right_to_the_tolerance():
    expected, _ = gradients("dopri5", "backprop")
    result, solution = gradients("dopri5", "adjoint")
    for a, b in zip(result, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    assert solution.evaluations_backward > 0


@pytest.mark.parametrize("gradient", ["checkpoint", "backprop"])
@pytest.mark.parametrize("method", ["rk4", "dopri5"])
def test_gradcheck(method, gradient):
    weight = torch.randn(2, 2, dtype=torch.float64, requires_grad=True)
    start = START.clone().requires_grad_()

    def run(start, weight):
        return solve(
            lambda t, y: torch.tanh(y @ weight.T),
            start,
            [0.0, 0.7],
            method=method,
            gradient=gradient,
            options={"step_size": 0.175},
        ).final

    assert torch.autograd.gradcheck(run, (start, weight))


def test_double_backward_through_back_propagation():
    weight = torch.randn(2, 2, dtype=torch.float64, requires_grad=True)

    def run(start, weight):
        return solve(
            lambda t, y: torch.tanh(y @ weight.T),
            start,
            [0.0, 0.5],
            method="dopri5",
            gradient="backprop",
            options={"step_size": 0.25},
        ).final

    assert torch.autograd.gradgradcheck(run, (START.clone().requires_grad_(), weight))


@pytest.mark.parametrize("gradient", ["checkpoint", "adjoint"])
def test_tensors_in_a_closure_get_their_gradient(gradient):
    rate = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    y = torch.ones(2, dtype=torch.float64)
    end = solve(lambda t, y: -rate * y, y, [0.0, 1.0], gradient=gradient).final
    (result,) = torch.autograd.grad(end.sum(), rate)
    torch.testing.assert_close(result, -2 * torch.exp(-rate), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("gradient", ["checkpoint", "adjoint"])
def test_a_computed_tensor_must_be_named_and_then_works(gradient):
    raw = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    rate = raw.exp()
    y = torch.ones(2, dtype=torch.float64)

    def field(t, y):
        return -rate * y

    with pytest.raises(OptionError, match="parameters"):
        solve(field, y, [0.0, 1.0], gradient=gradient)
    end = solve(field, y, [0.0, 1.0], gradient=gradient, parameters=[rate]).final
    (result,) = torch.autograd.grad(end.sum(), raw)
    torch.testing.assert_close(result, -2 * rate * torch.exp(-rate), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("gradient", ["checkpoint", "backprop", "adjoint"])
def test_gradients_reach_the_times(gradient):
    times = torch.tensor([0.2, 0.5, 1.1], dtype=torch.float64, requires_grad=True)
    start = torch.tensor([1.5], dtype=torch.float64)

    def field(t, y):  # y = y₀ (1 + t)² / (1 + t₀)²
        return 2 * y / (1 + t)

    values = solve(field, start, times, gradient=gradient).values
    weights = torch.tensor([[1.0], [2.0], [3.0]], dtype=torch.float64)
    (result,) = torch.autograd.grad((weights * values).sum(), times)
    t = times.detach().clone().requires_grad_()
    closed = start * ((1 + t) / (1 + t[0])) ** 2
    closed = (weights.squeeze(1) * closed).sum()
    (expected,) = torch.autograd.grad(closed, t)
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("gradient", ["checkpoint", "backprop", "adjoint"])
def test_an_event_has_a_gradient(gradient):
    # A stone falls from height h with g = 9.81: it lands at √(2h/g).
    height = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    start = torch.stack((height, torch.zeros_like(height)))

    def field(t, y):
        return torch.stack((y[1], torch.full_like(y[1], -9.81)))

    solution = solve(field, start, [0.0, 0.3, 5.0], event=lambda t, y: y[0], gradient=gradient)
    closed = (2 * height / 9.81).sqrt()
    torch.testing.assert_close(solution.event_time, closed, rtol=1e-8, atol=1e-8)
    (result,) = torch.autograd.grad(solution.event_time, height, retain_graph=True)
    torch.testing.assert_close(result, torch.autograd.grad(closed, height)[0], rtol=1e-6, atol=1e-8)
    # Speed on landing: −√(2gh)
    (speed,) = torch.autograd.grad(solution.event_state[1], height)
    expected = -0.5 * (2 * 9.81 / height.detach()) ** 0.5
    torch.testing.assert_close(speed, expected, rtol=1e-6, atol=1e-8)


def test_the_correction_of_a_hypersolver_gets_its_gradient():
    scale = nn.Parameter(torch.tensor(0.5, dtype=torch.float64))

    class Correction(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = scale

        def forward(self, t, y, slope, h):
            return self.scale * y

    start = torch.ones(1, dtype=torch.float64)
    method = HyperSolver("euler", Correction())
    end = solve(lambda t, y: -y, start, [0.0, 0.1], method=method).final
    (result,) = torch.autograd.grad(end.sum(), scale)
    torch.testing.assert_close(result, torch.tensor(0.01, dtype=torch.float64))


def test_without_gradients_nothing_is_kept():
    field = Field()
    with torch.no_grad():
        solution = solve(field, START, TIMES)
    assert not solution.values.requires_grad


@pytest.mark.parametrize("gradient", ["checkpoint", "backprop", "adjoint"])
@pytest.mark.parametrize("method", list(solvers))
def test_what_a_solve_evaluated_is_gone_with_its_solution(method, gradient):
    """No cycle keeps graphs or stages until the collector comes."""
    weight, seen = torch.ones((), dtype=torch.float64, requires_grad=True), []

    def field(t, y):
        value = -weight * y
        seen.append(ref(value))
        return value

    how = {"rtol": 1e-2, "atol": 1e-2} if solvers[method]().adaptive else {}
    gc.disable()
    try:
        with contextlib.suppress(OptionError):  # a way that this method does not go
            final = solve(field, START, [0.0, 0.5], method=method, gradient=gradient, **how).final
            torch.autograd.grad(final.sum(), weight)
        final = None
        assert not any(value() is not None for value in seen)
    finally:
        gc.enable()


@pytest.mark.parametrize("closed_over", [True, False])
@pytest.mark.parametrize("gradient", ["checkpoint", "adjoint", "backprop", "reversible"])
def test_running_statistics_are_those_of_the_forward_pass(gradient, closed_over):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2)).double()

    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, t, y):
            return self.net(y)

    field = (lambda t, y: net(y)) if closed_over else Module()
    method = "reversible-heun" if gradient == "reversible" else "dopri5"
    options = {"step_size": 0.05} if gradient == "reversible" else {}
    start = torch.randn(8, 2, dtype=torch.float64, requires_grad=True)
    result = solve(field, start, [0.0, 0.5], method=method, gradient=gradient, options=options)
    norm = net[1]
    before = [buffer.clone() for buffer in norm.buffers()]
    kept = list(norm.buffers())
    assert before[-1] >= result.evaluations
    result.final.sum().backward()
    assert all(torch.equal(*pair) for pair in zip(before, norm.buffers(), strict=True))
    assert all(old is new for old, new in zip(kept, norm.buffers(), strict=True))


def test_a_compiled_field_is_not_warned_about():
    net = nn.Linear(2, 2)
    compiled = torch.compile(net, backend="eager")
    start = torch.randn(3, 2, requires_grad=True)
    solve(lambda t, y: compiled(y), start, [0.0, 1.0]).final.sum().backward()
    assert net.weight.grad is not None
