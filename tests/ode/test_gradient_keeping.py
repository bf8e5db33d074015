"""Penalties that keep gradients along depth: against SciPy, finite differences, and in training."""

import copy
import warnings

import numpy as np
import pytest
import scipy.integrate
import torch
from scipy.integrate import trapezoid

import undamped
from undamped._base.errors import OptionError
from undamped.lab.training import Run, fit, resume
from undamped.ode.flows.depth_gradients import (
    PENALTIES,
    adjoints,
    coherence,
    direction_penalty,
    every_direction_penalty,
    parameter_gradients,
    parameter_penalty,
    spans,
)
from undamped.ode.flows.solving import Waypoint, Waypoints

T = 2.0
MODELS = [
    ("node", {}),
    ("hbnode", {}),
    ("depth-variant-node", {"basis": "stacked", "terms": 2}),
    ("data-controlled-node", {"adaptive_depth": True}),
    ("rk-net", {}),
    ("conv-sonode", {}),
    ("antisymmetric-node", {"motion": "isospectral", "matrix_steps": 4}),
    ("odetoode", {"matrix_steps": 4}),
]


@pytest.fixture
def double():
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def by_scipy(model, x, pulls, times):
    """a J aᵀ/‖a‖² of every sample and y of all, from a perceptron's equations and its adjoint."""
    field = model.flow.field
    inner, b = (p.detach().numpy() for p in field.hidden[0].parameters())
    outer, c = (p.detach().numpy() for p in field.readout.parameters())
    n = len(c)
    rates, y = [], 0.0

    def f(t, z):
        return outer @ np.tanh(inner @ np.append(z, t) + b) + c

    def jacobian(t, z):
        return (outer * (1 - np.tanh(inner @ np.append(z, t) + b) ** 2)) @ inner[:, :n]

    def share(t, z, a):
        seen = np.append(z, t)
        hidden = np.tanh(inner @ seen + b)
        back = (a @ outer) * (1 - hidden**2)
        return np.concatenate((np.outer(back, seen).ravel(), back, np.outer(a, hidden).ravel(), a))

    how = {"method": "DOP853", "rtol": 1e-11, "atol": 1e-12, "dense_output": True}
    for row, pull in zip(x.numpy(), pulls.numpy(), strict=True):
        z = scipy.integrate.solve_ivp(f, (0, T), row, **how).sol
        a = scipy.integrate.solve_ivp(
            lambda t, a, z=z: -a @ jacobian(t, z(t)), (T, 0), pull, **how
        ).sol
        rates.append([a(t) @ jacobian(t, z(t)) @ a(t) / (a(t) @ a(t)) for t in times])
        y = y + np.array([share(t, z(t), a(t)) for t in times])
    return np.array(rates), y


def test_penalties_are_the_integrals_of_their_equations(double):
    model = undamped.models.NODE(3, 2, hidden_size=5, depth=T, tolerance=1e-9, keep_gradient="norm",
                          keep_points=80, keep_weight=2.0)  # fmt: skip
    for parameter in model.flow.parameters():
        parameter.data.mul_(1.5)
    x, target = torch.randn(4, 3), torch.randn(4, 2)
    times = np.linspace(0, T, 321)
    loss = (model(x) * target).sum()
    rates, y = by_scipy(model, x, target @ model.head.weight.detach(), times)
    expected = trapezoid(rates**2, times, axis=1).mean()
    assert model.penalty(loss).item() == pytest.approx(2 * expected, rel=1e-3)
    met, parameters = model._waypoints, list(model.flow.parameters())
    pulls = adjoints(loss, met, create_graph=False)
    result = parameter_gradients(met, pulls, parameters, create_graph=False)
    np.testing.assert_allclose(result.numpy(), y[::4], atol=1e-8)
    norms = np.linalg.norm(y, axis=1)
    expected = trapezoid(np.gradient(np.log(norms), times) ** 2, times)
    assert parameter_penalty(loss, met, parameters).item() == pytest.approx(expected, rel=1e-3)
    cosines = y @ y[-1] / norms / norms[-1]
    expected = trapezoid(np.maximum(0, 0.99 - cosines) ** 2, times)
    assert direction_penalty(loss, met, parameters, 0.99).item() == pytest.approx(
        expected, rel=1e-3
    )
    expected = np.linalg.norm(trapezoid(y, times, axis=0)) / trapezoid(norms, times)
    assert coherence(result, spans(met)) == pytest.approx(expected, rel=1e-3)
    # What y adds up to is the gradient itself.
    gradient = torch.autograd.grad(loss, parameters)
    full = np.concatenate([part.numpy().ravel() for part in gradient])
    np.testing.assert_allclose(trapezoid(y, times, axis=0), full, atol=1e-4)


def along_depth(field, theta, z0, pull, times):
    """State and adjoint at some times, by SciPy, for dz/dt = field(t, z, θ)."""

    def jacobian(t, z):
        return torch.func.jacrev(field, 1)(torch.tensor(t), torch.tensor(z), theta).numpy()

    def slope(t, z):
        return field(torch.tensor(t), torch.tensor(z), theta).numpy()

    how = {"method": "DOP853", "rtol": 1e-11, "atol": 1e-12}
    z = scipy.integrate.solve_ivp(slope, (0, T), z0, dense_output=True, **how).sol
    a = scipy.integrate.solve_ivp(
        lambda t, a: -a @ jacobian(t, z(t)), (T, 0), pull, dense_output=True, **how
    ).sol
    return [(torch.tensor(z(t)), torch.tensor(a(t))) for t in times]


def test_what_is_said_about_the_share_of_the_parameters(double):
    """ẏ = a(dG/dt − J G), d‖y‖²/dt = a K aᵀ with K = dΓ/dt − JΓ − ΓJᵀ, Γ = G Gᵀ."""
    theta, n = torch.randn(9), 3

    def field(t, z, theta):
        return torch.tanh(theta.reshape(n, n) @ z + torch.sin(t)) * theta[:n]

    h, t = 1e-4, torch.tensor(0.7)
    result = along_depth(
        field, theta, np.ones(n), np.array([1.0, -2.0, 0.5]), (0.7 - h, 0.7, 0.7 + h)
    )

    def share(t, z):
        return torch.func.jacrev(field, 2)(t, z, theta)  # G

    times = (t - h, t, t + h)
    y = [a @ share(time, z) for time, (z, a) in zip(times, result, strict=True)]
    z, a = result[1]
    here, jacobian = share(t, z), torch.func.jacrev(field, 1)(t, z, theta)
    slope = field(t, z, theta)
    moved = torch.func.jacrev(lambda s: share(t + s, z + s * slope))(torch.zeros(()))  # dG/dt
    torch.testing.assert_close(
        (y[2] - y[0]) / (2 * h), a @ (moved - jacobian @ here), rtol=1e-5, atol=1e-6
    )
    gamma, gamma_moved = here @ here.T, moved @ here.T + here @ moved.T
    k = gamma_moved - jacobian @ gamma - gamma @ jacobian.T
    torch.testing.assert_close(
        (y[2] @ y[2] - y[0] @ y[0]) / (2 * h), a @ k @ a, rtol=1e-5, atol=1e-6
    )


def test_shares_of_fields_that_commute_do_not_move(double):
    matrix, theta = torch.randn(3, 3), torch.tensor([0.4, -0.3])

    def field(t, z, theta):
        return theta[0] * matrix @ z + theta[1] * matrix @ matrix @ z

    result = along_depth(field, theta, np.ones(3), np.array([1.0, -2.0, 0.5]), (0.0, 1.0, T))
    y = [a @ torch.func.jacrev(field, 2)(torch.zeros(()), z, theta) for z, a in result]
    torch.testing.assert_close(torch.stack(y), y[0].expand(3, -1), rtol=1e-8, atol=1e-9)
    norms = [a.norm().item() for _, a in result]
    assert max(norms) > 1.2 * min(norms)  # though the gradient itself does


def test_every_direction_costs_what_its_mean_says(double):
    """(tr(J)² + 2‖Sym J‖²)/(n(n + 2)) for a linear field; nothing for one that turns."""
    n, matrix = 3, torch.randn(3, 3)
    state = torch.zeros(20_000, n).requires_grad_()

    def penalty(matrix):
        ends = [Waypoint(t, (state.clone(),), lambda t, z: z @ matrix.T) for t in (0.0, 0.5)]
        met = Waypoints(1)
        met.extend(ends)
        return every_direction_penalty(met).item()

    symmetric = (matrix + matrix.T) / 2
    expected = (matrix.trace() ** 2 + 2 * symmetric.square().sum()) / (n * (n + 2))
    assert penalty(matrix) == pytest.approx(0.5 * expected.item(), rel=0.05)
    assert penalty(matrix - matrix.T) == pytest.approx(0.0, abs=1e-20)


@pytest.mark.slow
@pytest.mark.parametrize("kept", PENALTIES)
@pytest.mark.parametrize(("name", "options"), MODELS, ids=[name for name, _ in MODELS])
def test_gradients_of_penalties_are_those_of_differences(name, options, kept, double):
    fine = (
        {"tolerance": 1e-7} if "adaptive_depth" in options else {"method": "rk4", "step_size": 0.5}
    )
    more = {} if name == "rk-net" else fine
    more |= {"keep_cosine": 1.0} if kept == "direction" else {}
    try:
        model = undamped.build(name, input_size=4, output_size=2, hidden_size=3, depth=T,
                               keep_gradient=kept, keep_points=4, **options, **more)  # fmt: skip
    except OptionError as refused:
        assert "keep_gradient must be 'norm'" in str(refused)
        return
    x, target, parameters = torch.randn(3, 4), torch.randn(3, 2), list(model.parameters())
    along = [torch.randn_like(p) for p in parameters]

    def value(shift=0.0):
        torch.manual_seed(1)  # directions are drawn
        with torch.no_grad():
            for p, direction in zip(parameters, along, strict=True):
                p.add_(shift * direction)
        return undamped.nn.penalty(model, (model(x) - target).square().mean())

    result = torch.autograd.grad(value(), parameters, allow_unused=True)
    slope = sum((g * d).sum() for g, d in zip(result, along, strict=True) if g is not None)
    up, down = value(1e-5).item(), value(-2e-5).item()
    assert slope.item() == pytest.approx((up - down) / 2e-5, rel=1e-5, abs=1e-9)
    assert model.evaluations > 0


def test_a_gradient_that_vanishes_exactly_costs_nothing_and_breaks_nothing():
    model = undamped.models.NODE(2, 2, keep_gradient="norm")
    x = torch.randn(4, 2)
    loss = (model(x)[:2] * 1e-25).sum()  # tiny for two samples, none for the others
    penalty = model.penalty(loss)
    penalty.backward()
    assert 0 < penalty < 10
    assert all(torch.isfinite(p.grad).all() for p in model.flow.parameters())
    assert model.penalty(0.0 * model(x).sum()) == 0


def test_the_penalty_belongs_to_training_alone():
    model, x = undamped.models.NODE(2, 2, keep_gradient="norm"), torch.randn(4, 2)
    plain = undamped.models.NODE(2, 2)
    plain.load_state_dict(model.state_dict())
    assert torch.equal(model.eval()(x), plain(x)) and undamped.nn.penalty(model, x.sum()) == 0
    with torch.no_grad():
        model.train()(x)
    assert undamped.nn.penalty(model, x.sum()) == 0
    torch.testing.assert_close(model(x), plain(x), rtol=1e-2, atol=1e-3)  # other steps
    twin = copy.deepcopy(model)
    assert twin._waypoints is None and twin.keep_gradient == "norm"
    with pytest.raises(OptionError, match=r"undamped.nn.penalty\(model, loss\)"):
        undamped.nn.penalty(model)
    with pytest.raises(OptionError, match="loss does not depend on the last output"):
        undamped.nn.penalty(model, plain(x).sum())


def test_a_forgotten_penalty_is_noticed():
    model = undamped.models.NODE(2, 2, keep_gradient="every-direction")
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    loss = model(torch.randn(4, 2)).square().mean()
    (loss + undamped.nn.penalty(model)).backward()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimiser.step()
    with pytest.warns(UserWarning, match="keep_gradient='every-direction' sets a penalty"):
        optimiser.step()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"keep_weight": 2.0}, "keep_weight=2 has no effect"),
        ({"keep_gradient": "norm", "keep_cosine": 0.2}, "keep_cosine=0.2 has no effect"),
        ({"keep_gradient": "norm", "gradient": "adjoint"}, "gradient='adjoint' cannot be combined"),
        ({"keep_gradient": "size"}, "must be one of"),
        ({"keep_gradient": "direction", "keep_cosine": 0.0}, "> 0|in \\(0"),
    ],
)
def test_options_without_effect_are_refused(options, said):
    with pytest.raises(OptionError, match=said):
        undamped.models.NODE(2, 2, **options)


@pytest.mark.slow
def test_training_makes_the_norm_steadier_and_resumes_to_the_same_bits(tmp_path):
    train = {"steps": 30, "batch_size": 32, "validate_every": 15, "learning_rate": 0.01}
    runs = {}
    for kept in ("none", "norm"):
        options = {"hidden_size": 8, "depth": 4.0, "keep_gradient": kept}
        if kept == "norm":
            options["keep_points"] = 5
        runs[kept] = fit("node", "spirals", model_options=options, train=train, out=tmp_path,
                         progress=False)  # fmt: skip
    spread = {}
    for kept, run in runs.items():
        network = Run.open(run.path).model().network.train()
        network.keep_gradient = "norm"
        batch = run.task().batch("test", 0, 64)
        loss = torch.nn.functional.cross_entropy(network(batch.inputs), batch.targets)
        spread[kept] = network.penalty(loss).item()
    assert spread["norm"] < 0.7 * spread["none"]
    # A penalty is learned from and not scored.
    assert all(row["train_loss"] < 2 for row in runs["norm"].metrics())
    runs["norm"].update(status="interrupted")
    assert resume(runs["norm"].path, progress=False).result["test"] == runs["norm"].result["test"]
