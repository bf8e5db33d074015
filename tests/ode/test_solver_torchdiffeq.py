"""A program written for torchdiffeq runs with the import changed, and means the same.

The source distribution of torchdiffeq carries no tests; the cases of its suite are stated here
again: accuracy of every method on three problems in both directions and precisions, tuples, single
times, events, step locations, norms, callbacks, adjoint arguments, complex states, SciPy's methods.
Its own files (of the state with implicit methods and complex states), run on this library by
`python tests/support/torchdiffeq_suite.py FOLDER`, pass 1244 of 1293 subtests. The other 49:

- `test_wrong_callback`, 18: it wants a warning for `callback_accept_step` beside fixed steps, which
  here is called, and for `callback_reject_step` of radauIIA5 and trbdf2, which here choose their
  steps;
- `test_odeint_perturb` with perturb=False, 18: it wants evaluations at both ends of every step,
  where methods of Gauss (implicit_midpoint, gl4, gl6) have no stage;
- `test_adjoint_norm`, 12: it reads `grad_fn.adjoint_options`, which is how torchdiffeq is made;
- `test_min_max_step`, 1: SciPy's LSODA passes over min_step, there too.

Beyond its suite two things are otherwise on purpose: an unknown option is an error that names the
nearest one, not a warning; and `adjoint_params` that leave out a tensor the field was computed from
are an error, not a gradient that is silently missing.
"""

import math

import numpy as np
import pytest
import scipy.linalg
import torch
import torchdiffeq
from torch import nn

import undamped
from undamped._base.errors import OptionError

D = torch.float64
TYPES = [torch.float32, D]
EXPLICIT = ["euler", "midpoint", "heun2", "heun3", "rk4", "explicit_adams", "implicit_adams"]
IMPLICIT = ["implicit_euler", "implicit_midpoint", "trapezoid", "radauIIA3", "gl4", "gl6", "sdirk2"]
FIXED, FIXED_TOO = EXPLICIT + IMPLICIT, ["fixed_adams"]
CHOOSING = ["radauIIA5", "trbdf2"]
"""Theirs have fixed steps; ours choose them unless they are given a size."""
ADAPTIVE = ["dopri5", "bosh3", "adaptive_heun", "fehlberg2", "dopri8"]
SLOW = ("adaptive_heun", "fehlberg2", "bosh3")
SCIPY = ["RK45", "RK23", "DOP853", "Radau", "BDF", "LSODA"]


class Constant(nn.Module):
    """y = at + b solves it, and nothing near it is stable."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Parameter(torch.tensor(0.2)), nn.Parameter(torch.tensor(3.0))

    def forward(self, t, y):
        return self.a + (y - (self.a * t + self.b)) ** 5

    def exact(self, t):
        return self.a * t + self.b


class Sine(nn.Module):
    """A linear equation with a known solution."""

    def forward(self, t, y):
        return 2 * y / t + t**4 * torch.sin(2 * t) - t**2 + 4 * t**3

    def exact(self, t):
        wave = -(t**4) * torch.cos(2 * t) / 2 + t**3 * torch.sin(2 * t) / 2
        wave = wave + t**2 * torch.cos(2 * t) / 4
        return wave - t**3 + 2 * t**4 + (math.pi - 0.25) * t**2


class Linear(nn.Module):
    """A rotation in ten dimensions."""

    def __init__(self):
        super().__init__()
        half = torch.randn(10, 10, generator=torch.Generator().manual_seed(0)) * 0.1
        self.matrix = nn.Parameter(half - half.T)

    def forward(self, t, y):
        return self.matrix @ y

    def exact(self, t):
        matrix, times = self.matrix.detach().double().numpy(), t.detach().double().numpy()
        rows = [scipy.linalg.expm(matrix * time) @ np.ones(10) for time in times]
        return torch.tensor(np.array(rows)).to(t)


PROBLEMS = {"constant": Constant, "sine": Sine, "linear": Linear}


def problem(name="constant", dtype=D, reverse=False, points=10):
    field = PROBLEMS[name]().to(dtype)
    t = torch.linspace(1, 8, points, dtype=D)
    truth = field.double().exact(t).detach().to(dtype)
    field.to(dtype)
    t = t.to(dtype)
    if reverse:
        t, truth = t.flip(0), truth.flip(0)
    return field, truth[0].clone().requires_grad_(), t.clone().requires_grad_(), truth


def off(truth, found):
    return float((truth - found.detach()).abs().max() / truth.abs().max())


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "reverse"), [(D, False), (D, True), (torch.float32, True)])
@pytest.mark.parametrize(
    ("method", "name"),
    [(m, n) for m in ADAPTIVE for n in PROBLEMS]
    + [(m, "constant") for m in FIXED + FIXED_TOO + CHOOSING],
)
def test_values(method, name, dtype, reverse):
    field, y0, t, truth = problem(name, dtype, reverse)
    more = {"rtol": 1e-6, "atol": 1e-6} if method in SLOW else {}
    if dtype == torch.float32 and not more:
        more = {"rtol": 1e-6, "atol": 1e-6}
    with torch.no_grad():
        result = undamped.odeint(field, y0, t, method=method, **more)
    allowed = 4e-3 if method in SLOW else 1e-4 if name != "linear" else 2e-3
    assert result.dtype == dtype and off(truth, result) < allowed


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", PROBLEMS)
def test_values_of_the_adjoint(name, dtype, reverse):
    field, y0, t, truth = problem(name, dtype, reverse)
    more = {} if dtype == D else {"rtol": 1e-6, "atol": 1e-6}
    assert off(truth, undamped.odeint_adjoint(field, y0, t, **more)) < 2e-3


@pytest.mark.parametrize("solver", SCIPY)
@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("reverse", [False, True])
def test_methods_of_scipy(solver, name, reverse):
    field, y0, t, truth = problem(name, reverse=reverse)
    with torch.no_grad():
        result = undamped.odeint(
            field, y0, t, method="scipy_solver", options={"solver": solver}, rtol=1e-6, atol=1e-8
        )
    assert result.shape == truth.shape and off(truth, result) < 1e-3


def test_the_gradient_of_a_method_of_scipy_is_refused():
    field, y0, t, truth = problem()
    result = undamped.odeint(field, y0, t, method="scipy_solver")
    assert off(truth, result) < 1e-4
    with pytest.raises(OptionError, match="SciPy has no gradients"):
        result.sum().backward()


@pytest.mark.parametrize("method", [None, *FIXED, *ADAPTIVE])
@pytest.mark.parametrize("interface", [undamped.odeint, undamped.odeint_adjoint])
def test_a_single_time(method, interface):
    field, y0, t, truth = problem()
    result = interface(field, y0, t[:1], method=method)
    assert result.shape == truth[:1].shape
    torch.testing.assert_close(result, truth[:1])
    pair = interface(lambda t, y: (y[0], y[1]), (y0, y0), t[:1], method=method)
    assert [part.shape for part in pair] == [truth[:1].shape] * 2


@pytest.mark.parametrize("method", [*ADAPTIVE, *FIXED])
def test_tuples(method):
    field, y0, t, truth = problem()
    more = {"rtol": 1e-5, "atol": 1e-5} if method in SLOW else {}

    def pair(t, y):
        return field(t, y[0]), field(t, y[1])

    for part in undamped.odeint(pair, (y0, y0), t, method=method, **more):
        assert off(truth, part) < 1e-3


@pytest.mark.parametrize(
    ("method", "interface"),
    [
        *((method, undamped.odeint) for method in ("midpoint", "rk4", "implicit_adams", *IMPLICIT)),
        # The adjoint of fixed steps is the gradient of the truth, not of the steps.
        *((m, i) for m in ("dopri5", "dopri8") for i in (undamped.odeint, undamped.odeint_adjoint)),
    ],
)
def test_gradients_of_start_and_times(method, interface):
    field, y0, t, _ = problem(points=4)

    def values(y0, t):
        return interface(field, y0, t, method=method)

    near = (y0 * 1.001).detach().requires_grad_()
    assert torch.autograd.gradcheck(values, (near, t), rtol=1e-3, atol=1e-4)


class Spiral(nn.Module):
    """With a part that is never used."""

    def __init__(self):
        super().__init__()
        self.matrix = nn.Parameter(torch.tensor([[-0.1, 2.0], [-2.0, -0.1]], dtype=D))
        self.unused = nn.Linear(2, 5).to(D)

    def forward(self, t, y):
        return torch.mm(y**3, self.matrix)


@pytest.mark.parametrize("method", ["dopri5", "bosh3"])
def test_the_adjoint_beside_theirs(method):
    start = torch.tensor([[2.0, 0.0]], dtype=D)
    times = torch.linspace(0.0, 1.5, 4, dtype=D)
    weights = torch.rand(4, 1, 2, generator=torch.Generator().manual_seed(0), dtype=D)
    result = []
    tolerance = 1e-8 if method == "dopri5" else 1e-5
    for library in (undamped, torchdiffeq):
        field = Spiral()
        y0, t = start.clone().requires_grad_(), times.clone().requires_grad_()
        values = library.odeint_adjoint(field, y0, t, method=method, rtol=tolerance, atol=tolerance)
        (values * weights).sum().backward()
        assert float(field.unused.weight.grad.abs().max()) == 0
        result.append((y0.grad, t.grad, field.matrix.grad))
    for ours, theirs in zip(*result, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=5e-3, atol=5e-3)


@pytest.mark.parametrize(
    "more",
    [
        {"adjoint_rtol": 1e-9, "adjoint_atol": 1e-9},
        {"adjoint_method": "dopri8"},
        {"adjoint_method": "rk4", "adjoint_options": {"step_size": 0.01}},
        {"adjoint_options": {"norm": "seminorm"}},
        {"adjoint_options": {"norm": lambda parts: max(p.abs().max() for p in parts)}},
        {"adjoint_params": ()},
        {"options": {"norm": lambda y: y.abs().max()}},
    ],
)
def test_arguments_of_the_adjoint(more):
    weight = nn.Parameter(torch.tensor(0.7, dtype=D))
    y0 = torch.ones(2, 3, dtype=D, requires_grad=True)
    if "adjoint_params" not in more:
        more = {**more, "adjoint_params": (weight,)}
    t = torch.linspace(0, 1, 3, dtype=D)
    values = undamped.odeint_adjoint(lambda t, y: -weight * y, y0, t, **more)
    (result,) = torch.autograd.grad(values[-1].sum(), weight)
    assert abs(float(result) + 6 * math.exp(-0.7)) < 1e-5
    other = undamped.odeint_adjoint(
        lambda t, y: tuple(-weight * part for part in y), (y0, y0[0]), t, adjoint_params=(weight,)
    )
    (result,) = torch.autograd.grad(other[1][-1].sum(), weight)
    assert abs(float(result) + 3 * math.exp(-0.7)) < 1e-5


def test_another_adjoint_method_wants_its_options():
    with pytest.raises(OptionError, match="adjoint_options"):
        undamped.odeint_adjoint(
            nn.Linear(2, 2),
            torch.ones(2),
            torch.tensor([0.0, 1.0]),
            method="rk4",
            options={"step_size": 0.1},
            adjoint_method="euler",
        )


@pytest.mark.slow
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("method", "name", "interface"),
    [
        *((m, n, undamped.odeint) for m in ADAPTIVE + EXPLICIT for n in ("constant", "sine")),
        *((method, "constant", undamped.odeint) for method in IMPLICIT),
        ("dopri5", "constant", undamped.odeint_adjoint),
    ],
)
def test_events(method, name, reverse, interface):
    field, y0, t, truth = problem(name, reverse=reverse)
    size = 0.2 if method in IMPLICIT else 0.05
    options = {"step_size": size, "interp": "cubic"} if method in FIXED else {}
    more = {"rtol": 1e-5, "atol": 1e-5} if method in SLOW else {}
    when, values = interface(
        field,
        y0,
        t[:2],
        event_fn=lambda t, y: torch.sum(y - truth[2]),
        method=method,
        options=options,
        **more,
    )
    allowed = 2e-1 if method == "euler" else 1e-3
    assert values.shape == (2, *y0.shape)
    assert off(truth[2], values[-1]) < allowed and off(t[2].detach(), when) < allowed
    (when + values[-1].sum()).backward()
    assert y0.grad is not None


def test_an_event_of_several_numbers_is_the_first_of_them():
    def event(t, y):
        return torch.stack((y[0] - 0.5, y[0] - 0.8, t - 3))

    when, _ = undamped.odeint(
        lambda t, y: -y, torch.ones(1, dtype=D), torch.tensor([0.0, 1.0], dtype=D), event_fn=event
    )
    assert abs(float(when) + math.log(0.8)) < 1e-7


@pytest.mark.parametrize("interface", [undamped.odeint, undamped.odeint_adjoint])
def test_a_bouncing_ball(interface):
    """Its programs: events in a row, with gradients through all of them."""

    class Ball(nn.Module):
        def __init__(self):
            super().__init__()
            self.gravity = nn.Parameter(torch.tensor([9.8], dtype=D))
            self.height = nn.Parameter(torch.tensor([10.0], dtype=D))
            self.t0 = nn.Parameter(torch.tensor([0.0], dtype=D))

        def forward(self, t, state):
            return state[1], -self.gravity.expand_as(state[0])

        def bounces(self, count):
            state, t0 = (self.height, torch.zeros(1, dtype=D)), self.t0
            for _ in range(count):
                t0, solution = undamped.ode.odeint_event(
                    self,
                    state,
                    t0,
                    event_fn=lambda t, s: s[0] - 0.2,
                    atol=1e-8,
                    rtol=1e-8,
                    odeint_interface=interface,
                )
                position, velocity = (part[-1] for part in solution)
                state = (position + 1e-7, -velocity * 0.8)
            return t0

    ball = Ball()
    when = ball.bounces(3)
    result = torch.autograd.grad(when.sum(), list(ball.parameters()))
    for parameter, gradient in zip(ball.parameters(), result, strict=True):
        sides = []
        for step in (1e-4, -1e-4):
            with torch.no_grad():
                parameter += step
                sides.append(float(ball.bounces(3)))
                parameter -= step
        assert abs(float(gradient) - (sides[0] - sides[1]) / 2e-4) < 1e-4
    back, _ = undamped.ode.odeint_event(
        lambda t, y: torch.ones_like(y),
        torch.ones(1, dtype=D),
        torch.tensor(2.0, dtype=D),
        event_fn=lambda t, y: y,
        reverse_time=True,
    )
    assert abs(float(back) - 1.0) < 1e-8


@pytest.mark.parametrize("name", ["jump_t", "step_t", "grid_points", "jump_locations"])
@pytest.mark.parametrize("method", [m for m in ADAPTIVE if m not in SLOW[:2]])
@pytest.mark.parametrize("direction", [1, -1])
def test_steps_end_where_the_field_jumps(method, name, direction):
    counts, seen = [], []

    def field(t, y):
        seen.append(float(t))
        return -0.5 * y if t < 0.5 else y**2

    times = torch.tensor([0.0, 1.0] if direction > 0 else [1.0, 0.0], dtype=D)
    values = []
    for options in ({name: torch.tensor([0.5])}, {}):
        seen.clear()
        start = torch.tensor([0.3, 0.6], dtype=D)
        with torch.no_grad():
            values.append(
                undamped.odeint(
                    field, start, times, method=method, options=options, rtol=1e-7, atol=1e-9
                )
            )
        counts.append(len(seen))
        if options and name != "step_t":
            assert 0.5 not in seen  # each side is evaluated on its own side
    # A step that ends at a jump still meets both sides of it, unless it is known for one.
    assert counts[0] < counts[1] or name == "step_t"
    torch.testing.assert_close(values[0], values[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("gradient", ["checkpoint", "adjoint", "backprop"])
def test_gradients_across_a_jump(gradient):
    rate = torch.tensor(0.5, dtype=D, requires_grad=True)

    def field(t, y):
        return -rate * y if t < 0.5 else rate * y**0

    values = undamped.odeint(
        field,
        torch.ones(1, dtype=D),
        torch.tensor([0.0, 1.0], dtype=D),
        options={"jump_t": torch.tensor([0.5])},
        gradient=gradient,
    )
    assert abs(float(values[-1].detach()) - (math.exp(-0.25) + 0.25)) < 1e-8
    (result,) = torch.autograd.grad(values[-1].sum(), rate)
    assert abs(float(result) - (0.5 - 0.5 * math.exp(-0.25))) < 1e-6


@pytest.mark.parametrize("method", ["euler", "midpoint", "rk4", "trapezoid"])
@pytest.mark.parametrize("direction", [1, -1])
def test_fixed_steps_evaluate_inside_of_them(method, direction):
    seen = []

    def field(t, y):
        seen.append(float(t))
        return -y

    times = torch.linspace(0, 1, 5) if direction > 0 else torch.linspace(1, 0, 5)
    start = torch.ones(1, dtype=D, requires_grad=True)
    for perturb in (True, False):
        seen.clear()
        result = undamped.odeint_adjoint(
            field, start, times.to(D), method=method, options={"perturb": perturb}
        )
        result[-1].sum().backward()
        assert any(time in times.tolist() for time in seen) == (not perturb)


def test_grids():
    seen = []

    def field(t, y):
        seen.append(float(t))
        return -y

    def grid(func, y0, t):
        return torch.linspace(float(t[0]), float(t[-1]), 9)

    t = torch.tensor([0.0, 1.0], dtype=D)
    with torch.no_grad():
        result = undamped.odeint(
            field, torch.ones(1, dtype=D), t, method="euler", options={"grid_constructor": grid}
        )
    assert abs(float(result[-1]) - (1 - 1 / 8) ** 8) < 1e-12 and len(seen) == 8


def test_smallest_steps_and_other_names_of_options():
    def field(t, y):
        return torch.cos(1000 * t) * y

    start, t = torch.ones(1, dtype=D), torch.tensor([0.0, 1.0], dtype=D)
    sizes = []

    class Counting(nn.Module):
        def forward(self, t, y):
            return field(t, y)

        def callback_accept_step(self, t0, y0, dt):
            sizes.append(float(dt))

    options = {
        "min_step": 0.01,
        "max_num_steps": 1000,
        "first_step": 0.05,
        "safety": 0.8,
        "ifactor": 5.0,
        "dfactor": 0.3,
        "dtype": torch.float64,
    }
    undamped.odeint(Counting(), start, t, options=options)
    assert min(sizes[:-1]) >= 0.01 - 1e-12
    with pytest.raises(LookupError, match="min_step"):
        undamped.odeint(field, start, t, options={"min_stepp": 1.0})


@pytest.mark.parametrize("method", [*FIXED, "scipy_solver"])
def test_callbacks_that_will_never_be_heard_are_said(method):
    field = nn.Linear(2, 2)
    field.forward = lambda t, y: -y  # type: ignore[method-assign]
    field.callback_reject_step = lambda t0, y0, dt: None  # type: ignore[method-assign]
    with pytest.warns(UserWarning, match=r"callback_reject_step.*dopri5"):
        undamped.odeint(field, torch.ones(2), torch.tensor([0.0, 0.1]), method=method)


@pytest.mark.parametrize("adjoint", [False, True])
@pytest.mark.parametrize("method", ["dopri5", "rk4", "radauIIA5", "implicit_midpoint"])
def test_callbacks(method, adjoint):
    fixed = method in FIXED

    class Talking(nn.Module):
        def __init__(self):
            super().__init__()
            self.heard = []
            self.weight = nn.Parameter(torch.ones(1, dtype=D))

        def forward(self, t, y):
            return -self.weight * y[0], -y[1]

        def callback_step(self, t0, y0, dt):
            assert isinstance(y0, tuple) and dt > 0 and t0.dim() == 0
            self.heard.append("try")

        def callback_accept_step(self, t0, y0, dt):
            self.heard.append("accept")

        def callback_step_adjoint(self, t0, y0, dt):
            self.heard.append("adjoint")

    field = Talking()
    field.callback_reject_step = None if fixed else lambda t0, y0, dt: field.heard.append("reject")
    interface = undamped.odeint_adjoint if adjoint else undamped.odeint
    y0 = (torch.ones(2, dtype=D), torch.ones(3, dtype=D))
    values = interface(field, y0, torch.linspace(0, 1, 3, dtype=D), method=method)
    output = field.heard
    assert output.count("try") == output.count("accept") + output.count("reject") > 0
    values[0][-1].sum().backward()
    assert ("adjoint" in field.heard) == adjoint


@pytest.mark.parametrize("method", ["euler", "implicit_adams", "gl4"])
def test_tolerances_beside_fixed_steps_are_passed_over(method):
    field, y0, t, truth = problem()
    result = undamped.odeint(field, y0, t, method=method, rtol=1e-3, atol=torch.tensor(1e-3))
    assert off(truth, result) < 1e-4


@pytest.mark.parametrize("method", ["dopri5", "rk4", "radauIIA5", "implicit_adams"])
@pytest.mark.parametrize("interface", [undamped.odeint, undamped.odeint_adjoint])
def test_complex_states(method, interface):
    y0 = torch.tensor([1.0 + 0j, 2j], dtype=torch.complex128, requires_grad=True)
    t = torch.linspace(0, 1, 21, dtype=D)
    field = nn.Module()
    field.forward = lambda t, y: 1j * y  # type: ignore[method-assign]
    result = interface(field, y0, t, method=method)
    torch.testing.assert_close(result[-1], y0 * np.exp(1j), rtol=1e-5, atol=1e-5)
    result[-1].abs().sum().backward()
    assert y0.grad is not None


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("adaptive_heun", "heun"),
        ("fixed_adams", "implicit-adams"),
        ("implicit_euler", "implicit-euler"),
        ("radauIIA5", "radau5"),
        ("radauIIA3", "radau3"),
        ("gl4", "gauss4"),
        ("gl6", "gauss6"),
        ("symplectic_euler", "symplectic-euler"),
    ],
)
def test_names_of_methods(theirs, ours):
    from undamped.ode.settings import choose_solver

    assert choose_solver(theirs).name == ours
    with pytest.raises(LookupError, match="dopri"):
        choose_solver("dopri6")


def test_fields_of_which_checkpoints_cannot_be_had():
    """There every gradient is by back-propagation, and asks nothing of the field."""
    base = torch.ones(2, dtype=D, requires_grad=True)
    early, t = base * 2.0, torch.tensor([0.0, 1.0], dtype=D)
    start = torch.ones(2, dtype=D, requires_grad=True)
    values = undamped.odeint(lambda t, y: -early * y, start, t)
    (result,) = torch.autograd.grad(values[-1].sum(), base, retain_graph=True)
    torch.testing.assert_close(result, torch.full_like(base, -2 * math.exp(-2)))
    with pytest.raises(OptionError, match="parameters"):
        undamped.odeint(lambda t, y: -early * y, start, t, gradient="checkpoint")
    named = undamped.odeint(
        lambda t, y: -early * y, start, t, gradient="checkpoint", parameters=[early]
    )
    (result,) = torch.autograd.grad(named[-1].sum(), base)
    torch.testing.assert_close(result, torch.full_like(base, -2 * math.exp(-2)))
    noisy = undamped.odeint(
        lambda t, y: nn.functional.dropout(y, 0.5),
        start,
        t,
        method="euler",
        options={"step_size": 0.25},
    )
    assert noisy.requires_grad


def test_a_solution_as_a_function_of_time():
    rate = torch.tensor(0.7, dtype=D, requires_grad=True)
    y0 = torch.tensor([1.0, 2.0], dtype=D, requires_grad=True)
    ends = torch.tensor([0.0, 2.0], dtype=D)
    result = []
    for library in (undamped.ode, torchdiffeq):
        when = torch.tensor(1.3, dtype=D, requires_grad=True)
        solution = library.odeint_dense(lambda t, y: -rate * y + torch.sin(t), y0, *ends)
        value = solution(when)
        result.append((value, *torch.autograd.grad(value.sum(), (rate, y0, when))))
    for ours, theirs in zip(*result, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    fixed = undamped.ode.odeint_dense(
        lambda t, y: -y, y0, 0.0, 2.0, method="rk4", options={"step_size": 0.1}
    )
    torch.testing.assert_close(fixed(1.3), y0 * math.exp(-1.3), rtol=1e-5, atol=1e-6)
