"""Antisymmetric NODE and ODEtoODE: their equations in NumPy, what they keep, what is shared."""

import copy

import numpy as np
import pytest
import scipy.integrate
import torch

import undamped
from undamped._base.errors import OptionError, SolveError
from undamped.models import AntisymmetricNODE
from undamped.models.continuous.moving_fields import (
    GatedOrthogonalField,
    IsospectralAntisymmetricField,
    IsospectralOrthogonalField,
)
from undamped.models.continuous.shared_flow import (
    AlongPath,
    RotationPath,
    SharedFlow,
    rotation_logarithms,
)
from undamped.ode import solve
from undamped.ode.flows.depth_gradients import adjoints, sizes
from undamped.ode.flows.solving import Waypoints

N, T = 4, 1.5
KINDS = [
    *[("antisymmetric-node", {"motion": m}) for m in ("constant", "bounded", "isospectral")],
    *[("linear-antisymmetric-node", {"motion": m}) for m in ("constant", "bounded", "isospectral")],
    ("linear-antisymmetric-node", {"motion": "bounded", "method": "cayley", "step_size": 1e-3}),
    ("odetoode", {"form": "gated", "activation": "softplus"}),
    ("odetoode", {"form": "isospectral"}),
]


@pytest.fixture(autouse=True)
def double():
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def build(name, options, **more):
    """A small model, solved finely, whose biases are not nought."""
    fine = {"step_size": 0.02} if name.startswith("linear") else {"tolerance": 1e-9}
    sizes = {"input_size": 3, "output_size": 2, "hidden_size": N}
    model = undamped.build(name, **sizes, **{"depth": T, **fine, **options, **more})
    for key, value in model.named_parameters():
        if key.endswith(("field.bias", "free")):
            torch.nn.init.normal_(value, std=0.5)
    if model.shared is not None:
        model.shared.tolerance = 1e-9
    return model


def skew(m):
    return m - m.T


def bracket(a, b):
    return a @ b - b @ a


def numpy_motion(name, options, field):
    """θ(0), dθ/dt and dx/dt once more, from the equations; θ flat."""
    w = {key: value.detach().numpy() for key, value in field.named_parameters()}
    motion, act = options.get("motion"), options.get("activation", "tanh")
    if name == "odetoode":
        base, free = field.base.numpy(), w["free"]
        start = base @ scipy.linalg.expm(skew(free))

        def b(t, W):
            if options["form"] == "isospectral":
                q, n = (w[key] + w[key].T for key in ("form", "target"))
                return bracket(W.T @ (q / 2) @ W, n / 2)
            seen = np.tanh(w["inner.weight"] @ np.append(W.ravel(), t) + w["inner.bias"])
            gates, units, _ = w["outer"].shape
            total = np.zeros((N, N))
            for gate in range(gates):
                c = seen[gate * units : (gate + 1) * units] @ w["outer"][gate]
                total += w["gates"][gate] * skew(c.reshape(N, N))
            return total

        def f(u):
            return np.log1p(np.exp(u)) if act == "softplus" else np.tanh(u)

        return start, lambda t, W: W @ b(t, W), lambda W, x: f(W @ x + w["bias"])
    linear = name.startswith("linear")
    bias = np.zeros(N) if linear else w["bias"]
    start = np.column_stack((w["weight"], bias))
    if motion == "isospectral":
        start = np.column_stack((skew(w["weight"]), bias))

    def moved(t, p):
        A, b = p[:, :N], p[:, N]
        if motion == "constant":
            return 0 * p
        if motion == "isospectral":
            inner = bracket(A, skew(w["target"]))
            return np.column_stack((bracket(A, inner), -inner @ b))
        change = np.tanh(w["left"] @ A @ w["right"] + w["shift"])
        own = 0 * b if linear else np.tanh(w["bias_weight"] @ b + w["bias_shift"])
        return np.column_stack((change, own)) / np.sqrt(N)

    def slope(p, x):
        A, b = p[:, :N], p[:, N]
        S = A if motion == "isospectral" else skew(A)
        return S @ x if linear else np.tanh(S @ x + b)

    return start, moved, slope


@pytest.mark.parametrize(("name", "options"), KINDS)
def test_a_model_is_its_equation(name, options):
    """Parameters and one sample in one state, solved by SciPy."""
    model, x = build(name, options), torch.randn(3, 3)
    start, moved, slope = numpy_motion(name, options, model.field)
    layers = {key: value.detach().numpy() for key, value in model.state_dict().items()}
    result = model(x).detach().numpy()

    def both(t, state):
        p = state[:-N].reshape(start.shape)
        return np.concatenate((moved(t, p).ravel(), slope(p, state[-N:])))

    for row, got in zip(x.numpy(), result, strict=True):
        begin = layers["start.weight"] @ row + layers["start.bias"]
        state = np.concatenate((start.ravel(), begin))
        end = scipy.integrate.solve_ivp(both, (0, T), state, rtol=1e-11, atol=1e-12).y[-N:, -1]
        expected = layers["head.weight"] @ end + layers["head.bias"]
        np.testing.assert_allclose(got, expected, atol=2e-6)


class Joint(torch.nn.Module):
    """Parameters and samples in one state: what the shared flow is there to avoid."""

    def __init__(self, field):
        super().__init__()
        self.field = field

    def forward(self, t, state):
        value, x = state
        change = self.field.motion(t, value)
        change = value @ change if self.field.turns else change
        return change, self.field.move(x, *self.field.read(value, *self.field.constants()))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), [k for k in KINDS if "cayley" not in k[1].values()])
@pytest.mark.parametrize("gradient", ["checkpoint", "adjoint"])
def test_gradients_are_those_of_parameters_and_samples_in_one_state(name, options, gradient):
    if gradient == "adjoint" and name.startswith("linear"):
        gradient = "reversible"
    model, x = build(name, options, gradient=gradient), torch.randn(3, 3)
    parameters = list(model.parameters())
    target = torch.randn(3, 2)
    result = torch.autograd.grad((model(x) - target).square().sum(), parameters)
    begin = model.field.beginning(), model.start(x)
    end = solve(Joint(model.field), begin, [0.0, T], rtol=1e-10, atol=1e-11, gradient="backprop")
    expected = torch.autograd.grad((model.head(end.final[1]) - target).square().sum(), parameters)
    for (key, _), a, b in zip(model.named_parameters(), result, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=2e-6, msg=key)


def test_energy_and_form_are_kept_over_a_depth_of_twenty():
    model = build("antisymmetric-node", {"tolerance": 1e-10}, depth=20.0)
    start = 2 * torch.randn(5, N)
    with torch.no_grad():
        drift = model.conserved(model.carry(start)) - model.conserved(start)
    assert drift.abs().max() < 1e-8
    u = (start @ model.field.skew().detach().T + model.field.bias.detach()).numpy()
    np.testing.assert_allclose(model.conserved(start).detach(), np.log(np.cosh(u)).sum(1))
    # Implicit midpoint keeps the form at any step size, and not the energy.
    how = {"method": "implicit-midpoint", "step_size": 0.5, "gradient": "backprop"}
    steps = undamped.models.AntisymmetricNODE(3, 2, hidden_size=N, depth=20.0, **how)
    steps.load_state_dict(model.state_dict())
    jacobian = torch.autograd.functional.jacobian(steps.carry, start[:1]).reshape(N, N)
    form = steps.preserved_form().detach()
    assert (jacobian.T @ form @ jacobian - form).abs().max() < 1e-10
    spread = torch.linalg.svdvals(jacobian)
    assert spread[0] > 1.5 and spread[-1] < 0.7  # gradients grow in one direction, fade in another
    with torch.no_grad():
        assert (steps.conserved(steps.carry(start)) - steps.conserved(start)).abs().max() > 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("method", ["magnus4", "cayley", "lie-euler", "rkmk4"])
def test_the_linear_model_keeps_norms_exactly(method):
    options = {"motion": "bounded", "method": method, "step_size": 0.25, "depth": 20.0}
    model = build("linear-antisymmetric-node", options)
    start = torch.randn(5, N, requires_grad=True)
    end = model.carry(start)
    torch.testing.assert_close(end.norm(dim=1), start.norm(dim=1), rtol=1e-12, atol=0)
    pull = torch.randn(5, N)
    (back,) = torch.autograd.grad(end, start, pull)
    torch.testing.assert_close(back.norm(dim=1), pull.norm(dim=1), rtol=1e-12, atol=0)
    with torch.no_grad():  # linear in where it starts, as notes (17) have it
        both = model.carry(start[:1] + 2 * start[1:2])
        torch.testing.assert_close(both, end[:1] + 2 * end[1:2], rtol=1e-10, atol=1e-12)


def adjoint_norms(model, pieces=4):
    met = Waypoints(pieces)
    with model.flow.passing_through(met):
        end = model.carry(torch.randn(3, model.head.in_features).requires_grad_())
    result = sizes(adjoints((end * torch.randn_like(end)).sum(), met, create_graph=False))
    return torch.tensor([float(w.time) for w in met]), result.log()


def broken(model):
    return {m.promise.kind.value for m in undamped.analysis.measure(model) if not m.holds}


@pytest.mark.parametrize(
    ("model", "wrong", "lost"),
    [
        (AntisymmetricNODE, lambda f, x: f + 0.05 * x, {"volume-rate"}),
        (undamped.models.ODEtoODE, lambda f, x: 3 * f, {"bounded-adjoint"}),
    ],
)
def test_a_field_that_does_otherwise_would_not_pass(model, wrong, lost, monkeypatch):
    built = model(2, 2, hidden_size=N)
    assert not broken(copy.deepcopy(built))
    plain = type(built.field).move
    monkeypatch.setattr(type(built.field), "move", lambda self, x, *p: wrong(plain(self, x, *p), x))
    assert broken(built) == lost


def test_only_methods_that_rotate_keep_norms_exactly():
    """The others keep them up to their error."""
    how = {"method": "dopri5", "step_size": None}
    model = undamped.models.LinearAntisymmetricNODE(2, 2, hidden_size=N, **how)
    start = torch.randn(5, N)
    with torch.no_grad():
        change = model.carry(start).norm(dim=1) / start.norm(dim=1) - 1
    assert 1e-12 < change.abs().max() < 1e-2


@pytest.mark.parametrize(("form", "method"), [("gated", "rkmk4"), ("isospectral", "cayley")])
def test_weights_of_odetoode_are_orthogonal_at_every_depth(form, method):
    options = {"form": form, "matrix_method": method, "hidden_size": N}
    model = undamped.models.ODEtoODE(2, 2, **options)
    with torch.no_grad():
        weights = model.weights_at(torch.linspace(0, model.end_of_depth, 23))
    assert (weights.mT @ weights - torch.eye(N)).abs().max() < 1e-12


@pytest.mark.parametrize("push", [0.0, 0.05])
def test_energy_and_form_of_a_field_that_does_otherwise(push, monkeypatch):
    model = undamped.models.AntisymmetricNODE(2, 2, hidden_size=N, tolerance=1e-8)
    plain = type(model.field).move
    wrong = lambda self, x, *p: plain(self, x, *p) + push * x  # noqa: E731
    monkeypatch.setattr(type(model.field), "move", wrong)
    start = torch.randn(4, N)
    with torch.no_grad():
        before, after = model.conserved(start), model.conserved(model.carry(start))
    matrix = torch.autograd.functional.jacobian(model.carry, start[:1]).reshape(N, N)
    form = model.preserved_form().detach()
    drift = ((after - before).abs() / before.abs().clamp_min(1.0)).max()
    errors = (drift, (matrix.mT @ form @ matrix - form).abs().max())
    assert all((error < 1e-4) == (push == 0) for error in errors), errors


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["odetoode", "antisymmetric-node"])
def test_gradients_stay_inside_their_bounds_on_a_hundred_random_networks(kind):
    """exp(±L(T − t)) of ODEtoODE with L = 1, exp(±½‖S‖(T − t)) of a constant skew matrix."""
    closest, T = torch.inf, 2.0
    for seed in range(100):
        torch.manual_seed(seed)
        if kind == "odetoode":
            options = {"form": ("gated", "isospectral")[seed % 2], "matrix_steps": 5}
            options["activation"] = ("tanh", "abs", "relu")[seed % 3]
        else:
            options = {}
        model = undamped.build(kind, input_size=2, output_size=2, hidden_size=4, depth=T,
                               method="rk4", step_size=0.2, **options)  # fmt: skip
        if kind == "antisymmetric-node":
            model.field.weight.data.mul_(1 + seed / 25)
        times, norms = adjoint_norms(model)
        rate = (
            1.0 if kind == "odetoode" else torch.linalg.matrix_norm(model.preserved_form(), 2) / 2
        )
        left = (rate * (T - times))[:, None] - (norms - norms[-1]).abs()
        assert left.min() > -1e-6, seed
        torch.testing.assert_close(
            rate * (T - times), model.adjoint_exponents(times), rtol=1e-6, atol=1e-9
        )
        closest = min(closest, float((left[0] / (rate * T)).min().detach()))
    assert closest < 0.75  # and the bound says something: some networks come near it


@pytest.mark.parametrize(
    "field", [GatedOrthogonalField, IsospectralOrthogonalField, IsospectralAntisymmetricField]
)
def test_a_path_stays_orthogonal_and_is_as_exact_as_asked(field):
    moving = field(5)
    path = SharedFlow(moving, depth=3.0, tolerance=1e-6).path()
    assert isinstance(path, RotationPath)
    times = [0.0, 0.1234, 1.5, 2.9999, 3.0]
    turning = undamped.ode.Rotating(moving.motion)
    with torch.no_grad():
        exact = solve(turning, moving.beginning(), times, rtol=1e-10, atol=1e-11).values
        result = torch.stack([path.at(t) for t in times])
        assert (result - exact).abs().max() < 1e-6
        assert (result.mT @ result - torch.eye(5)).abs().max() < 1e-13
        together = path.at(torch.tensor(times)[:, None])  # times of their own, sample by sample
        torch.testing.assert_close(together, result, rtol=0, atol=1e-12)
        many = AlongPath(moving, path)(torch.tensor(times)[:, None], torch.ones(5, 5))
        separate = [AlongPath(moving, path)(t, torch.ones(1, 5)) for t in times]
        torch.testing.assert_close(many, torch.cat(separate))


@pytest.mark.parametrize(("name", "options"), [KINDS[1], KINDS[2], KINDS[8]])
def test_one_time_is_read_as_several_are(name, options):
    sizes = {"input_size": 3, "output_size": 2, "hidden_size": N, "depth": T, "matrix_steps": 4}
    model, times = undamped.build(name, **sizes, **options), torch.tensor([0.3, 0.7 * T, T])
    for way in ("skew_at", "path_at", "weights_at", "adjoint_exponents"):
        if hasattr(model, way):
            apart = [getattr(model, way)(time[None]) for time in times]
            torch.testing.assert_close(getattr(model, way)(times), torch.cat(apart))


def test_double_bracket_flows_keep_their_spectrum_and_climb():
    field = IsospectralOrthogonalField(5)
    path = SharedFlow(field, depth=6.0).path()
    form, target = (p.detach() + p.detach().T for p in (field.form, field.target))
    with torch.no_grad():
        turned = [path.at(t).mT @ form @ path.at(t) for t in np.linspace(0, 6, 13)]
    climbed = torch.stack([(h @ target).trace() for h in turned])
    assert (climbed.diff() > -1e-9).all() and climbed[-1] > climbed[0] + 0.5
    values = torch.stack([torch.linalg.eigvalsh(h) for h in turned])
    torch.testing.assert_close(values[-1], values[0], rtol=1e-10, atol=1e-11)


def test_logarithms_of_rotations():
    free = torch.randn(7, 5, 5)
    omega = 0.2 * (free - free.mT)
    torch.testing.assert_close(
        rotation_logarithms(torch.matrix_exp(omega)), omega, atol=1e-13, rtol=0
    )
    with pytest.raises(OptionError, match="matrix_steps"):
        rotation_logarithms(torch.matrix_exp(8 * omega))


@pytest.mark.parametrize(("name", "options"), [KINDS[1], KINDS[7]])
def test_parameters_are_solved_once_whatever_the_samples_ask_for(name, options, monkeypatch):
    counts = {}
    for batch, tolerance in ((1, 1e-3), (50, 1e-6)):
        torch.manual_seed(0)
        model = build(name, options)
        if not name.startswith("linear"):
            model.flow.rtol = model.flow.atol = tolerance
        plain, calls = model.field.motion, []
        monkeypatch.setattr(
            model.field, "motion", lambda t, v, f=plain, n=calls: n.append(1) or f(t, v)
        )
        model(100 * torch.randn(batch, 3)).sum().backward()
        counts[batch, tolerance] = len(calls)
    assert len(set(counts.values())) == 1


def test_samples_take_their_own_steps_however_fast_the_parameters_move():
    """A W that turns fast where no sample looks costs the samples nothing."""
    torch.manual_seed(1)
    counts = []
    for rate in (1e-6, 30.0):
        model = undamped.models.ODEtoODE(3, 2, hidden_size=N, form="isospectral", depth=1.0)
        model.field.target.data.mul_(rate)
        model.field.bias.data.fill_(-50.0)
        model.field.activation = "relu"  # nothing reaches a sample
        model(torch.randn(5, 3))
        counts.append(model.evaluations)
    assert counts[0] == counts[1]


def test_a_flow_that_is_too_fast_says_so():
    model = undamped.models.ODEtoODE(2, 2, hidden_size=4, form="isospectral", depth=2.0)
    model.field.form.data.mul_(3e3)
    with pytest.raises(SolveError, match="change too fast"):
        model(torch.randn(2, 2))
    few = undamped.models.ODEtoODE(
        2, 2, hidden_size=4, form="isospectral", depth=20.0, matrix_steps=1
    )
    with pytest.raises(OptionError, match="matrix_steps is too small"):
        few(torch.randn(2, 2))


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("antisymmetric-node", {"rate": 2.0}, "rate=2 has no effect"),
        ("antisymmetric-node", {"matrix_steps": 8}, "matrix_steps=8 has no effect"),
        ("odetoode", {"form": "isospectral", "gates": 2}, "gates=2 has no effect"),
        ("odetoode", {"matrix_method": "dopri5"}, "matrix_method"),
        ("odetoode", {"method": "magnus4", "step_size": 0.1}, "LinearRotating"),
        ("linear-antisymmetric-node", {"gradient": "adjoint"}, "adjoint"),
        ("linear-antisymmetric-node", {"tolerance": 1e-5}, "has no effect with step_size"),
    ],
)
def test_options_that_do_not_fit_are_refused(name, options, said):
    with pytest.raises(OptionError, match=said):
        undamped.build(name, input_size=2, output_size=2, **options)(torch.randn(2, 2))


@pytest.mark.slow
def test_copies_share_nothing():
    model = build("odetoode", {"form": "gated"})
    x = torch.randn(2, 3)
    before = model(x)
    twin = copy.deepcopy(model)
    assert twin.shared.field is twin.field and twin.field is not model.field
    with torch.no_grad():
        assert torch.equal(twin(x), before)
        twin.field.outer.mul_(3)
        assert torch.equal(model(x), before) and not torch.equal(twin(x), before)
    assert len(model.state_dict()) == len(list(model.parameters())) + 1  # nothing twice


def test_every_motion_of_the_linear_part_reaches_all_parameters():
    model = AntisymmetricNODE(3, 2, hidden_size=N, motion="bounded")
    model(torch.randn(4, 3)).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())
