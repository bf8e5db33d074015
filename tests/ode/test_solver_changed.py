"""A gradient that evaluates the field again notices when the field has become another one."""

import pytest
import torch
from torch import nn

import undamped
from undamped._base.errors import OptionError
from undamped._base.registry import solvers
from undamped.ode import solve
from undamped.ode.methods.explicit.runge_kutta import RungeKutta

D = torch.float64
EXPLICIT = [name for name in solvers if issubclass(solvers[name], RungeKutta)]
ADAPTIVE = [name for name in EXPLICIT if solvers[name]().adaptive]
REVERSIBLE = ["alf", "reversible-heun", "mccallum-foster", "tao"]
OTHERS = [name for name in solvers if name not in EXPLICIT and not solvers[name].rotates]
FIXED = {"options": {"step_size": 0.25}}
TIGHT = {"rtol": 1e-4, "atol": 1e-6}


def steps_of(method):
    solver = solvers[method]()
    if not solver.adaptive:
        return FIXED
    return TIGHT if solver.order > 3 else {"rtol": 1e-3, "atol": 1e-4}


def data(dtype=D):
    generator = torch.Generator().manual_seed(3)
    return torch.randn(4, 3, 2, generator=generator).to(dtype)


class WithAttribute(nn.Module):
    """A field that reads an attribute and a buffer."""

    drive: torch.Tensor

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Linear(2, 2).to(D)
        self.gain = 1.0
        self.register_buffer("drive", torch.zeros(3, 2, dtype=D))

    def forward(self, t, y):
        return self.gain * torch.tanh(self.net(y)) + self.drive


def late_binding(gradient, method, more):
    """Observations in a loop: the field reads the loop variable, which goes on."""
    torch.manual_seed(1)
    net, x = nn.Linear(4, 2).to(D), data()
    h = torch.zeros(3, 2, dtype=D)
    for i in range(3):
        field = lambda t, y: torch.tanh(net(torch.cat((y, x[i]), 1)))  # noqa: B023, E731
        h = solve(field, h, [0.0, 1.0], method=method, gradient=gradient, **more).final
    return h, net


def bound(gradient, method, more):
    torch.manual_seed(1)
    net, x = nn.Linear(4, 2).to(D), data()
    h = torch.zeros(3, 2, dtype=D)
    for i in range(3):
        field = lambda t, y, now=x[i]: torch.tanh(net(torch.cat((y, now), 1)))  # noqa: E731
        h = solve(field, h, [0.0, 1.0], method=method, gradient=gradient, **more).final
    return h, net


def of(h, net):
    return torch.autograd.grad(h.pow(2).sum(), list(net.parameters()))


@pytest.mark.slow
@pytest.mark.parametrize("gradient", ["checkpoint", "adjoint"])
@pytest.mark.parametrize(
    ("method", "steps"),
    [(m, "batch") for m in EXPLICIT] + [(m, "sample") for m in ADAPTIVE],
)
def test_a_late_binding_loop_variable(method, steps, gradient):
    more = {**steps_of(method), "steps": steps}
    with pytest.raises(OptionError, match=r"loop variable.*backprop"):
        of(*late_binding(gradient, method, more))
    truth = of(*late_binding("backprop", method, more))
    near = 1e-9 if gradient == "checkpoint" else 0.1 if method in ADAPTIVE else 0.5
    for result, expected in zip(of(*bound(gradient, method, more)), truth, strict=True):
        torch.testing.assert_close(result, expected, rtol=near, atol=near)


@pytest.mark.parametrize("method", REVERSIBLE)
def test_a_late_binding_loop_variable_of_reversible_methods(method):
    more = {"options": {"step_size": 0.25}}
    with pytest.raises(OptionError, match=r"loop variable.*backprop"):
        of(*late_binding("reversible", method, more))
    truth = of(*late_binding("backprop", method, more))
    for result, expected in zip(of(*bound("reversible", method, more)), truth, strict=True):
        torch.testing.assert_close(result, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("method", OTHERS)
def test_a_late_binding_loop_variable_of_other_methods(method):
    with pytest.raises(OptionError, match="loop variable"):
        of(*late_binding("checkpoint", method, FIXED))
    with pytest.raises(OptionError, match=r"loop variable|adjoint' needs (a|one) method"):
        of(*late_binding("adjoint", method, FIXED))
    # What back-propagation keeps is the graph of the forward pass, whatever a method solves in it.
    truth = of(*late_binding("backprop", method, FIXED))
    for result, expected in zip(of(*bound("checkpoint", method, FIXED)), truth, strict=True):
        torch.testing.assert_close(result, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("steps", ["batch", "sample"])
@pytest.mark.parametrize("gradient", ["checkpoint", "adjoint"])
@pytest.mark.parametrize("method", [m for m in OTHERS if solvers[m]().adaptive])
def test_a_change_below_the_tolerance_of_an_implicit_method(method, gradient, steps):
    field, start = WithAttribute(), torch.ones(3, 2, dtype=D, requires_grad=True)
    how = {"method": method, "gradient": gradient, "steps": steps, "rtol": 1e-2, "atol": 1e-2}
    try:
        values = solve(field, start, [0.0, 1.0], **how).final
    except OptionError:  # a way that this method does not go
        return
    field.gain = 1.001
    with pytest.raises(OptionError, match="an attribute"):
        values.sum().backward()


def change_attribute(field):
    field.gain = 1.01


def change_buffer(field):
    field.drive.fill_(0.01)


def replace_buffer(field):
    field.drive = torch.full((3, 2), 0.01, dtype=D)


@pytest.mark.parametrize("change", [change_attribute, change_buffer, replace_buffer])
@pytest.mark.parametrize("steps", ["batch", "sample"])
@pytest.mark.parametrize(
    ("gradient", "checkpoint_steps"), [("checkpoint", 1), ("checkpoint", 3), ("adjoint", 1)]
)
def test_attributes_and_buffers(gradient, steps, change, checkpoint_steps):
    field = WithAttribute()
    more = {"options": {"checkpoint_steps": checkpoint_steps}} if checkpoint_steps > 1 else {}
    start = torch.ones(3, 2, dtype=D, requires_grad=True)
    values = solve(field, start, [0.0, 1.0], gradient=gradient, steps=steps, **TIGHT, **more).final
    change(field)
    with pytest.raises(OptionError, match=r"a buffer filled in place"):
        values.sum().backward()


@pytest.mark.parametrize("steps", ["batch", "sample"])
def test_a_change_that_matters_late_only(steps):
    table = torch.zeros(10, dtype=D)
    start = torch.ones(3, 2, dtype=D, requires_grad=True)

    def field(t, y):
        place = (t.reshape(-1)[0] * 10).long().clamp(0, 9)
        return -y + table[place]

    more = {"method": "bosh3", "rtol": 1e-5, "atol": 1e-5}
    values = solve(field, start, [0.0, 1.0], steps=steps, **more).final
    table[7] = 1e-3
    with pytest.raises(OptionError, match="the values it had in the forward pass"):
        values.sum().backward()


class ObservedHeavyBall(nn.Module):
    """An ODE-RNN of heavy balls: a solve between observations, a cell at each, the field with both.

    The field is told how long the interval is by an attribute, as such programs have it.
    """

    def __init__(self, gradient):
        super().__init__()
        torch.manual_seed(2)
        self.pull, self.cell = nn.Linear(2, 2).to(D), nn.GRUCell(2, 4).to(D)
        self.damping, self.gradient, self.length = 0.3, gradient, 1.0

    def field(self, t, state):
        position, momentum = state
        slope = torch.tanh(self.pull(position)) - self.damping * momentum
        return self.length * momentum, self.length * slope

    def forward(self, x, gaps):
        state = torch.zeros(3, 4, dtype=D)
        for seen, gap in zip(x, gaps, strict=True):
            self.length = float(gap)
            halves = tuple(state.chunk(2, 1))
            moved = undamped.odeint(
                self.field, halves, torch.tensor([0.0, 1.0]), gradient=self.gradient, **TIGHT
            )
            state = self.cell(seen, torch.cat([part[-1] for part in moved], 1))
        return state


def test_heavy_balls_between_observations():
    x, gaps = data(), [0.5, 1.5, 0.7, 1.1]
    result = {}
    for gradient in ("checkpoint", "adjoint", "backprop"):
        model = ObservedHeavyBall(gradient)
        output = model(x, gaps)
        if gradient == "backprop":
            result = torch.autograd.grad(output.pow(2).sum(), list(model.parameters()))
        else:
            with pytest.raises(OptionError, match="an attribute"):
                output.pow(2).sum().backward()
    # Without a change there is nothing to refuse.
    model = ObservedHeavyBall("checkpoint")
    same = model(x, [1.0] * 4)
    other = ObservedHeavyBall("backprop")
    ours = torch.autograd.grad(same.pow(2).sum(), list(model.parameters()))
    theirs = torch.autograd.grad(other(x, [1.0] * 4).pow(2).sum(), list(other.parameters()))
    for one, two in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-10)
    model = ObservedHeavyBall("backprop")
    with torch.no_grad():
        model.pull.bias[0] += 1e-5
        ahead = model(x, gaps).pow(2).sum()
        model.pull.bias[0] -= 2e-5
        behind = model(x, gaps).pow(2).sum()
    assert abs(float((ahead - behind) / 2e-5 - result[1][0])) < 1e-6


def lorenz(t, y):
    a, b, c = y.unbind(-1)
    return torch.stack((10 * (b - a), a * (28 - c) - b, a * b - 8 / 3 * c), -1)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "checkpoint_steps"), [(torch.float32, 1), (D, 20)])
@pytest.mark.parametrize("steps", ["batch", "sample"])
@pytest.mark.parametrize("method", ADAPTIVE)
def test_no_false_alarm_where_rounding_is_magnified(method, steps, checkpoint_steps, dtype):
    generator = torch.Generator().manual_seed(0)
    sizes = torch.tensor([[1.0], [1e-3], [10.0], [1e-8]])
    start = (torch.randn(4, 3, generator=generator) * sizes).to(dtype).requires_grad_()
    # Fehlberg's estimate is so hopeful that its steps are unstable at a looser tolerance.
    loose = 1e-3 if method == "fehlberg2" else 1e-2
    tolerance = TIGHT if solvers[method]().order > 3 else {"rtol": loose, "atol": loose}
    values = solve(
        lorenz,
        start,
        [0.0, 1.0],
        method=method,
        steps=steps,
        options={"checkpoint_steps": checkpoint_steps},
        **tolerance,
    )
    values.final.sum().backward()
    assert start.grad is not None and torch.isfinite(start.grad).all()


@pytest.mark.parametrize("gradient", ["checkpoint", "adjoint"])
def test_no_false_alarm_at_zero_and_in_mixed_precision(gradient):
    torch.manual_seed(0)
    layer = nn.Linear(4, 4)
    start = torch.zeros(8, 4, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        values = solve(
            lambda t, y: torch.tanh(layer(y)).float() * torch.cos(3 * t),
            start,
            [0.0, 1.0, 2.0],
            method="rk4",
            options={"step_size": 0.1},
            gradient=gradient,
        ).final
    values.sum().backward()
    assert start.grad is not None


def test_undoing_steps_that_leads_elsewhere_is_refused():
    # Undoing n steps magnifies rounding by coupling^(−n).
    method = undamped.ode.McCallumFoster("midpoint", coupling=0.5)
    start = torch.ones(2, 2, requires_grad=True)
    options = {"step_size": 0.01}
    values = solve(
        lambda t, y: torch.sin(y),
        start,
        [0.0, 1.0],
        method=method,
        gradient="reversible",
        options=options,
    ).final
    with pytest.raises(OptionError, match=r"lead back to the start.*checkpoint"):
        values.sum().backward()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad, torch.inference_mode])
@pytest.mark.parametrize("gradient", ["checkpoint", "backprop"])
def test_a_field_that_changes_its_input_is_refused(mode, gradient):
    def field(t, y):
        with torch.no_grad():
            y.mul_(0.5)
        return -y

    def pair(t, y):
        with torch.no_grad():
            y[0].mul_(0.5)
        return (-y[0], -y[1])

    with mode():
        one = torch.ones(3, dtype=D)
        for changing in (field, lambda t, y: -y.mul_(0.5)):
            with pytest.raises(OptionError, match=r"read only.*in place"):
                solve(changing, one, [0.0, 1.0], gradient=gradient)
        # With a graph through the members, torch itself notices.
        with pytest.raises((OptionError, RuntimeError), match=r"in ?place"):
            solve(pair, (torch.ones(3, 2, dtype=D), one), [0.0, 1.0], gradient=gradient)


@pytest.mark.parametrize("method", [m for m in solvers if not solvers[m].rotates])
def test_a_field_that_changes_its_input_late_is_refused(method):
    def field(t, y):
        return -y.mul_(0.5) if t > 0.2 else -y

    with torch.no_grad(), pytest.raises(OptionError, match="read only"):
        solve(field, torch.ones(3, 2, dtype=D), [0.0, 1.0], method=method, **FIXED)
