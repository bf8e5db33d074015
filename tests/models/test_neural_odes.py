"""The neural-ODE family against its equations, and the lecture's identities."""

import copy

import numpy as np
import pytest
import scipy.integrate
import torch
from member_groups import OF_VECTORS
from torch import nn

import undamped
from undamped._base.errors import OptionError
from undamped._base.options import options_of
from undamped._base.registry import models
from undamped.ode import NeuralODE, StackedODE, solve
from undamped.ode.fields import (
    Augmentation,
    BottleneckField,
    ConcatSquashField,
    Controlled,
    DepthNetwork,
    GalerkinField,
    HeavyBallField,
    InitialMomentum,
    PerceptronField,
    SecondOrderField,
    WithIntegral,
)
from undamped.ode.fields.depth_variant import basis_values

CONTINUOUS = [
    "node", "hbnode", "ghbnode", "sonode", "depth-variant-node", "data-controlled-node",
    "rk-net", "resnet", "stable-residual", "antisymmetric-node", "odetoode",
]  # fmt: skip


@pytest.fixture(autouse=True)
def double():
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def scipy_end(function, start, end=1.0):
    return scipy.integrate.solve_ivp(
        function, (0, end), start, method="DOP853", rtol=1e-11, atol=1e-12
    ).y[:, -1]


def perceptron(field, t, y):
    """The field again, in NumPy."""
    w = {name: value.detach().numpy() for name, value in field.named_parameters()}
    y = np.append(y, t) if field.time else y
    return (
        w["readout.weight"] @ np.tanh(w["hidden.0.weight"] @ y + w["hidden.0.bias"])
        + w["readout.bias"]
    )


def test_a_neural_ode_is_its_equation():
    model = NeuralODE(PerceptronField(3, 8), rtol=1e-9, atol=1e-10)
    x = torch.randn(4, 3)
    out = model(x).detach().numpy()
    for row, got in zip(x.numpy(), out, strict=True):
        expected = scipy_end(lambda t, y: perceptron(model.field, t, y), row)
        np.testing.assert_allclose(got, expected, atol=1e-7)
    assert model.evaluations > 0
    model(x).sum().backward()
    assert model.evaluations_backward > 0


@pytest.mark.parametrize("general", [False, True])
def test_a_heavy_ball_is_its_equation(general):
    field = HeavyBallField(PerceptronField(2, 8), damping=0.3, general=general)
    gamma = float(field.damping.detach())
    assert abs(gamma - 0.3) < 1e-6
    xi = np.log1p(np.exp(2.0)) if general else 0.0
    state = torch.randn(3, 4)
    out = solve(field, state, [0.0, 1.0], rtol=1e-9, atol=1e-10).final.detach().numpy()

    def function(t, s):
        h, m = s[:2], s[2:]
        force = -gamma * m + perceptron(field.force, t, h) - xi * h
        return np.concatenate((np.tanh(m) if general else m, force))

    for row, got in zip(state.numpy(), out, strict=True):
        np.testing.assert_allclose(got, scipy_end(function, row), atol=1e-7)


def test_damping_lies_between_nothing_and_its_scale():
    for damping, scale in ((1.0, 1.0), (2.0, 1.0), (0.5, 0.3), (0.0, 1.0)):
        with pytest.raises(OptionError, match="damping"):
            HeavyBallField(PerceptronField(2, 8), damping=damping, scale=scale)
    for model in ("hbnode", "ghbnode", "conv-hbnode"):
        with pytest.raises(OptionError, match="damping"):
            models.build(model, input_size=16, output_size=2, damping=1.0)
    wide = HeavyBallField(PerceptronField(2, 8), damping=2.0, scale=4.0)
    assert wide.damping.item() == pytest.approx(2.0)


def test_a_second_order_field_is_its_equation():
    field = SecondOrderField(PerceptronField(2, 8, input_size=4))
    state = torch.randn(1, 4)
    out = solve(field, state, [0.0, 1.0]).final.detach().numpy()[0]
    expected = scipy_end(
        lambda t, s: np.concatenate((s[2:], perceptron(field.force, t, s))), state.numpy()[0]
    )
    np.testing.assert_allclose(out, expected, atol=1e-6)


def test_the_adjoint_of_a_heavy_ball_is_a_heavy_ball_with_the_same_damping():
    """Theorem 3 of the lecture: ä − γ ȧ = a ∂f/∂h for a = ∂L/∂m, solved back from T."""
    force = PerceptronField(2, 8)
    field = HeavyBallField(force, damping=0.4)
    gamma = field.damping.detach()
    start = torch.randn(1, 4).requires_grad_()
    end = 1.5
    solution = solve(field, start, [0.0, end], rtol=1e-10, atol=1e-11, dense=True)
    final = solution.final
    loss = (final.sin() * torch.tensor([1.0, -2.0, 0.5, 1.5])).sum()
    (at_start,) = torch.autograd.grad(loss, start, retain_graph=True)
    (at_end,) = torch.autograd.grad(loss, final)
    a_h, a_m = at_end[0, :2], at_end[0, 2:]

    def adjoint(t, s):
        a, slope = s[:2], s[2:]
        h = solution.dense(float(t))[0, :2]
        jacobian = torch.autograd.functional.jacobian(lambda h: force(t, h), h)
        return torch.cat((slope, gamma * slope + a @ jacobian))

    begin = torch.cat((a_m, -a_h + gamma * a_m)).detach()  # ȧ_m = −a_h + γ a_m
    with torch.no_grad():
        back = solve(adjoint, begin, [end, 0.0], rtol=1e-8, atol=1e-9).final
    torch.testing.assert_close(back[:2], at_start[0, 2:], rtol=1e-5, atol=1e-6)
    # and a_h = γ a − ȧ
    torch.testing.assert_close(gamma * back[:2] - back[2:], at_start[0, :2], rtol=1e-5, atol=1e-6)


def test_momentum_starts_as_asked():
    x = torch.randn(3, 2)
    assert torch.equal(InitialMomentum(2, "zero")(x)[:, 2:], torch.zeros(3, 2))
    learned = InitialMomentum(2, "learned")
    torch.testing.assert_close(learned(x)[:, 2:], learned.layer(x))


def test_augmentations():
    x = torch.randn(5, 2)
    zero = Augmentation(2, 3)(x)
    assert zero.shape == (5, 5) and torch.equal(zero[:, 2:], torch.zeros(5, 3))
    learned = Augmentation(2, 3, "input")
    torch.testing.assert_close(learned(x)[:, 2:], learned.layer(x))


def test_a_plain_flow_on_a_line_keeps_order():
    """Trajectories of a scalar neural ODE cannot cross: what augmentation is for."""
    model = NeuralODE(PerceptronField(1, 16), rtol=1e-7, atol=1e-8)
    x = torch.linspace(-2, 2, 21).unsqueeze(1)
    assert bool((model(x).diff(dim=0) > 0).all())


@pytest.mark.parametrize("basis", ["fourier", "chebyshev", "polynomial", "piecewise"])
def test_bases_are_orthogonal(basis):
    s = (torch.arange(20000) + 0.5) / 20000
    values = basis_values(basis, 5, s)
    x = 2 * s - 1
    weight = 1 / torch.sqrt(1 - x**2) if basis == "chebyshev" else torch.ones_like(s)
    gram = (values * weight.unsqueeze(1)).T @ values / len(s)
    off = gram - torch.diag(gram.diagonal())
    assert float(off.abs().max()) < 2e-2 * float(gram.diagonal().max())


@pytest.mark.parametrize("basis", ["fourier", "chebyshev", "polynomial", "piecewise"])
def test_a_galerkin_field_is_its_sum(basis):
    field = GalerkinField(2, 4, basis=basis, terms=3)
    y, t = torch.randn(5, 2), 0.37
    psi = basis_values(basis, 3, torch.tensor([t])).numpy()[0]
    inner = np.einsum("j,joi->oi", psi, field.inner.weight.detach().numpy())
    outer = np.einsum("j,joi->oi", psi, field.outer.weight.detach().numpy())
    hidden = np.tanh(y.numpy() @ inner.T + psi @ field.inner.bias.detach().numpy())
    expected = hidden @ outer.T + psi @ field.outer.bias.detach().numpy()
    np.testing.assert_allclose(field(t, y).detach().numpy(), expected, atol=1e-12)
    # depths of their own, sample by sample
    times = torch.rand(5, 1)
    apart = torch.cat([field(time, row.unsqueeze(0)) for time, row in zip(times, y, strict=True)])
    torch.testing.assert_close(field(times, y), apart)


def test_stacked_pieces_follow_one_another():
    fields = [PerceptronField(2, 4, time=False) for _ in range(3)]
    model = StackedODE(fields, rtol=1e-8, atol=1e-9)
    x = torch.randn(4, 2)
    state = x
    for field in fields:
        state = solve(field, state, [0.0, 1 / 3], rtol=1e-8, atol=1e-9).final
    torch.testing.assert_close(model(x), state, rtol=1e-6, atol=1e-7)
    assert model.evaluations == sum(solution.evaluations for solution in model.solutions)


def test_data_control_learns_the_reflection_a_plain_flow_cannot():
    # ż = −θ(z + x), z(0) = x goes to −x: proposition 2 of Massaroli and others.
    class Reflect(nn.Module):
        def forward(self, t, both):
            z, x = both.chunk(2, dim=-1)
            return -8 * (z + x)

    x = torch.linspace(-1, 1, 7).unsqueeze(1)
    end = solve(Controlled(Reflect(), x), x, [0.0, 1.0]).final
    # (z + x) decays as exp(−8): from 2x to 2x e⁻⁸
    torch.testing.assert_close(end, -x + 2 * x * np.exp(-8.0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("gradient", ["checkpoint", "adjoint"])
def test_gradients_reach_the_control(gradient):
    field = PerceptronField(2, 8, input_size=4)
    raw = torch.randn(3, 2, requires_grad=True)
    results = []
    for how in ("backprop", gradient):
        x = raw * 1.5
        end = solve(Controlled(field, x), x, [0.0, 1.0], gradient=how).final
        results.append(torch.autograd.grad(end.sin().sum(), [raw, *field.parameters()]))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_adaptive_depth_is_integration_to_a_depth_of_its_own():
    depth = DepthNetwork(1)
    x = torch.tensor([[0.5], [2.0]])
    times = depth.times(x)
    end = solve(lambda t, y: -y, x, times).final
    torch.testing.assert_close(end, x * torch.exp(-times[1].unsqueeze(1)), rtol=1e-6, atol=1e-8)
    (result,) = torch.autograd.grad(end.sum(), depth.layer.bias)
    g = depth(x)
    expected = (-x.squeeze(1) * torch.exp(-g) * torch.sigmoid(depth.layer(x).squeeze(1))).sum()
    torch.testing.assert_close(result.squeeze(), expected.detach(), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("gradient", ["checkpoint", "backprop", "adjoint"])
def test_an_integral_loss_reaches_the_parameters_inside_it(gradient):
    # ż = −κ z, l = (w z)²: ∫₀¹ l = w² z₀² (1 − e^{−2κ}) / (2κ)
    kappa = nn.Parameter(torch.tensor(0.7))
    weight = nn.Parameter(torch.tensor(1.3))

    class Decay(nn.Module):
        def __init__(self):
            super().__init__()
            self.kappa = kappa

        def forward(self, t, z):
            return -self.kappa * z

    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = weight

        def forward(self, t, z):
            return (self.weight * z).pow(2).sum(-1)

    z0 = torch.tensor([[2.0], [1.0]])
    both = WithIntegral(Decay(), Loss())
    _, integral = solve(both, (z0, torch.zeros(2)), [0.0, 1.0], gradient=gradient).final
    closed = weight**2 * z0.squeeze(1) ** 2 * (1 - torch.exp(-2 * kappa)) / (2 * kappa)
    torch.testing.assert_close(integral, closed, rtol=1e-6, atol=1e-7)
    result = torch.autograd.grad(integral.sum(), [kappa, weight])
    expected = torch.autograd.grad(closed.sum(), [kappa, weight])
    for a, b in zip(result, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", CONTINUOUS)
def test_every_model_is_built_by_name_and_learns(name):
    torch.set_default_dtype(torch.float32)
    smaller = {"stable-residual": {"depth": 8}, "odetoode": {"hidden_size": 6, "matrix_steps": 8}}
    model = undamped.build(name, input_size=2, output_size=3, **smaller.get(name, {}))
    x = torch.randn(32, 2)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-2)
    losses = []
    for _ in range(25):
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.85 * losses[0]
    assert all(p.grad is not None for p in model.parameters() if p.requires_grad)


@pytest.mark.parametrize(
    "options",
    [
        {"name": "node", "augmented_size": 2, "augmentation": "input"},
        {"name": "hbnode", "augmented_size": 1, "momentum": "zero", "general": True},
        {"name": "sonode", "augmented_size": 1, "gradient": "adjoint"},
        {"name": "depth-variant-node", "basis": "stacked", "terms": 2, "augmented_size": 1},
        {"name": "data-controlled-node", "adaptive_depth": True},
        {"name": "rk-net", "steps": 3, "augmented_size": 1, "method": "midpoint"},
        {"name": "resnet", "width": 5},
    ],
)
def test_options_of_models(options):
    name = options.pop("name")
    model = models.build(name, input_size=2, output_size=1, **options)
    out = model(torch.randn(6, 2))
    assert out.shape == (6, 1)
    out.sum().backward()


def test_an_augmentation_of_nothing_is_refused():
    with pytest.raises(OptionError, match="augmented_size"):
        undamped.models.NODE(2, 2, augmentation="input")


def test_a_fixed_step_method_needs_a_step():
    with pytest.raises(OptionError, match="step_size"):
        NeuralODE(PerceptronField(2), method="rk4")


SOLVING = [
    ("node", {}), ("hbnode", {}), ("ghbnode", {}), ("sonode", {}), ("depth-variant-node", {}),
    ("depth-variant-node", {"basis": "stacked", "terms": 2}), ("data-controlled-node", {}),
    ("ffjord", {}), ("conv-node", {}), ("conv-sonode", {}), ("conv-hbnode", {}),
    ("antisymmetric-node", {}), ("odetoode", {}), ("linear-antisymmetric-node", {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options"), SOLVING)
def test_fixed_steps_by_name(name, options):
    """An rk4 of four steps evaluates its field sixteen times, and comes near the truth."""
    sizes = {"input_size": 4, "hidden_size": 4} | ({} if name == "ffjord" else {"output_size": 2})
    end = 0.5 if name == "ffjord" else 1.0
    fixed = models.build(name, **sizes, **options, method="rk4", step_size=end / 4)
    adaptive = {"method": "dopri5", "step_size": None}
    fine = models.build(name, **sizes, **options, **adaptive, tolerance=1e-8).eval()
    fine.load_state_dict(fixed.state_dict())
    x = torch.randn(3, 4)
    result, expected = fixed.eval()(x), fine(x)
    if name == "ffjord":
        result, expected = result.log_prob, expected.log_prob
    assert fixed.evaluations == 16
    torch.testing.assert_close(result, expected, rtol=1e-3, atol=1e-3)
    with pytest.raises(OptionError, match="has no effect with step_size"):
        models.build(name, **sizes, **options, step_size=0.1, tolerance=1e-2)
    with pytest.raises(OptionError, match="needs a step_size with 'rk4'"):
        models.build(name, **sizes, **options, method="rk4", step_size=None)


def test_every_model_with_a_method_has_a_step():
    with_method = {name for name in OF_VECTORS if "method" in options_of(models[name])}
    assert with_method - {"rk-net"} == {name for name, _ in SOLVING}


def test_a_step_beside_tolerances_says_to_leave_one_out():
    with pytest.raises(OptionError, match="Leave one of them out"):
        NeuralODE(PerceptronField(2), step_size=0.1, rtol=1e-3)


@pytest.mark.parametrize(
    "options", [{"gradient": "reversible"}, {"step_size": 0.1}, {"method": "rodas5p"}]
)
def test_a_depth_of_its_own_needs_steps_of_its_own(options):
    (option,) = options
    with pytest.raises(OptionError, match=rf"adaptive_depth needs .*, got {option}="):
        undamped.models.DataControlledNODE(2, 2, adaptive_depth=True, **options)


def test_a_model_that_has_been_used_can_be_copied():
    """As weight averaging does; the graph of the last solution stays behind."""
    for model in (undamped.models.NODE(2, 2), undamped.models.FFJORD(2, hidden_size=8)):
        model(torch.randn(4, 2))
        twin = copy.deepcopy(model)
        assert all(map(torch.equal, model.parameters(), twin.parameters()))
        twin(torch.randn(4, 2))


@pytest.mark.parametrize(
    "field",
    [
        GalerkinField(3, 8),
        ConcatSquashField(3, 8),
        BottleneckField(3, 2, 8),
        PerceptronField(3, 8),
    ],
    ids=lambda field: type(field).__name__,
)
@pytest.mark.parametrize("between", [(), (4,), (2, 5)])
def test_fields_take_states_of_any_dimensions_at_times_of_their_own(field, between):
    field = field.double()
    y = torch.randn(6, *between, 3)
    times = torch.rand(6, *(1,) * (len(between) + 1))
    together = field(times, y)
    for k in range(6):
        torch.testing.assert_close(together[k], field(times[k].squeeze(), y[k : k + 1])[0])
    full = field(torch.tensor(0.3), y).reshape(-1, 3)
    torch.testing.assert_close(full, field(torch.tensor(0.3), y.reshape(-1, 3)))
    result = solve(field, y, [0.0, 1.0], steps="sample", rtol=1e-8, atol=1e-9).final
    expected = solve(field, y, [0.0, 1.0], rtol=1e-8, atol=1e-9).final
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-6)
