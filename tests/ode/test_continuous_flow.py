"""Flows: densities against closed forms, the trace in its three ways, sampling both ways."""

import copy
import math

import pytest
import torch
from torch import nn

import undamped
from undamped._base.errors import OptionError
from undamped.ode import ContinuousFlow
from undamped.ode.fields import BottleneckField, ConcatSquashField
from undamped.ode.flows import continuous_flow
from undamped.ode.flows.continuous_flow import bottleneck_trace, draw_noise, field_and_trace


@pytest.fixture(autouse=True)
def double():
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


class Linear(nn.Module):
    """ż = A z: invertible, with x = exp(A T) z in closed form."""

    def __init__(self):
        super().__init__()
        self.matrix = nn.Parameter(torch.tensor([[0.4, -0.9], [0.7, 0.2]]))

    def forward(self, t, z):
        return z @ self.matrix.T


@pytest.mark.parametrize("gradient", ["checkpoint", "adjoint", "backprop"])
def test_log_density_of_a_linear_flow_is_the_change_of_variables(gradient):
    field = Linear()
    flow = ContinuousFlow(
        field, 2, trace="exact", end=1.5, rtol=1e-9, atol=1e-10, gradient=gradient
    )
    x = torch.randn(6, 2)
    transport = torch.matrix_exp(field.matrix * 1.5)
    normal = torch.distributions.MultivariateNormal(torch.zeros(2), transport @ transport.T)
    result, expected = flow.log_prob(x), normal.log_prob(x)
    torch.testing.assert_close(result, expected, rtol=1e-6, atol=1e-6)
    (a,) = torch.autograd.grad(result.sum(), field.matrix)
    (b,) = torch.autograd.grad(expected.sum(), field.matrix)
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_the_end_time_can_be_learned():
    field = Linear()
    flow = ContinuousFlow(field, 2, trace="exact", train_end=True, rtol=1e-9, atol=1e-10)
    x = torch.randn(4, 2)
    (result,) = torch.autograd.grad(flow.log_prob(x).sum(), flow.root_end)
    root = flow.root_end.detach().clone().requires_grad_()
    transport = torch.matrix_exp(field.matrix.detach() * root**2)
    normal = torch.distributions.MultivariateNormal(torch.zeros(2), transport @ transport.T)
    (expected,) = torch.autograd.grad(normal.log_prob(x).sum(), root)
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)


def test_sampling_and_density_agree():
    flow = ContinuousFlow(ConcatSquashField(2, 16), 2, rtol=1e-8, atol=1e-9).eval()
    with torch.no_grad():
        x, density = flow.sample(20, generator=torch.Generator().manual_seed(1))
        repeated = flow(x)
    torch.testing.assert_close(density, repeated.log_prob, rtol=1e-5, atol=1e-6)
    assert flow.evaluations > 0


def log_determinant_error(model):
    """Return the largest distance of the change of log p from the flow's log-determinant."""
    x, contexts = model.example(4, torch.Generator().manual_seed(0))
    errors = []
    for k in range(4):
        point, context = x[k : k + 1], None if contexts is None else contexts[k : k + 1]
        rows = torch.autograd.functional.jacobian(lambda s, c=context: model.carry(s, c), point)
        determinant = torch.linalg.slogdet(rows.reshape(2, 2)).logabsdet
        with torch.no_grad():
            base = model.base_log_prob(model.carry(point, context))
            errors.append(model.log_prob(point, context) - base - determinant)
    return torch.stack(errors).abs().max().item()


@pytest.mark.parametrize("options", [{}, {"context_size": 3}, {"bottleneck_size": 1}])
def test_log_densities_change_by_the_log_determinant(options, monkeypatch):
    model = undamped.models.FFJORD(2, tolerance=1e-8, gradient="backprop", **options).eval()
    assert log_determinant_error(model) < 1e-4
    plain = continuous_flow.field_and_trace

    def wrong(*arguments):
        value, trace, frobenius = plain(*arguments)
        return value, trace - 1, frobenius

    monkeypatch.setattr(continuous_flow, "field_and_trace", wrong)
    assert log_determinant_error(model) > 0.1


def test_a_density_integrates_to_one():
    flow = ContinuousFlow(ConcatSquashField(2, 16), 2, rtol=1e-6, atol=1e-6).eval()
    grid = torch.linspace(-7, 7, 71)
    points = torch.cartesian_prod(grid, grid)
    with torch.no_grad():
        total = float(flow.log_prob(points).exp().sum()) * float(grid[1] - grid[0]) ** 2
    assert abs(total - 1) < 5e-3


def test_the_exact_trace_is_the_trace():
    field = ConcatSquashField(3, 8)
    z = torch.randn(5, 3)
    t = torch.tensor(0.3)
    _, trace, frobenius = field_and_trace(field, t, z, None)
    for k in range(5):
        jacobian = torch.autograd.functional.jacobian(
            lambda row: field(t, row.unsqueeze(0)).squeeze(0), z[k]
        )
        torch.testing.assert_close(trace[k].detach(), jacobian.trace())
        torch.testing.assert_close(frobenius[k].detach(), jacobian.pow(2).sum())


@pytest.mark.parametrize("kind", ["gaussian", "rademacher"])
def test_hutchinson_is_unbiased(kind):
    field = ConcatSquashField(3, 8)
    z = torch.randn(1, 3).expand(40000, 3)
    t = torch.tensor(0.3)
    with torch.no_grad():
        noise = draw_noise(kind, z.shape, z, torch.Generator().manual_seed(0))
        _, exact, expected = field_and_trace(field, t, z[:1], None)
        _, estimate, frobenius = field_and_trace(field, t, z, noise)
    assert abs(float(estimate.mean() - exact)) < 5 * float(estimate.std()) / 200
    assert abs(float(frobenius.mean() - expected)) < 5 * float(frobenius.std()) / 200


def test_the_bottleneck_is_unbiased_and_quieter():
    field = BottleneckField(12, 2, 8)
    z = torch.randn(1, 12).expand(20000, 12)
    t = torch.tensor(0.3)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        _, exact, _ = field_and_trace(field, t, z[:1], None)
        few = draw_noise("gaussian", torch.Size((20000, 2)), z, generator)
        many = draw_noise("gaussian", z.shape, z, generator)
        value, estimate, norm = bottleneck_trace(field, t, z, few, many)
        _, plain, plain_norm = field_and_trace(field, t, z, many)
    torch.testing.assert_close(value[:1], field(t, z[:1]).detach())
    assert abs(float(estimate.mean() - exact)) < 5 * float(estimate.std()) / 20000**0.5
    assert float(estimate.var()) < float(plain.var())
    torch.testing.assert_close(norm, plain_norm)


def test_noise_is_fixed_during_a_solve():
    seen = []

    class Watch(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = ConcatSquashField(2, 8)

        def forward(self, t, z):
            return self.inner(t, z)

    flow = ContinuousFlow(Watch(), 2)
    dynamics = flow._dynamics(torch.randn(4, 2), None, None)
    for t in (0.1, 0.2):
        z = torch.ones(4, 2)
        nought = torch.zeros(4)
        seen.append(dynamics(torch.tensor(t * 0), (z, nought, nought, nought))[1])
    assert torch.equal(seen[0], seen[1])
    flow.eval()
    assert flow._dynamics(torch.randn(4, 2), None, None).noise is None


def test_a_conditional_flow_depends_on_its_condition_and_trains_its_encoder():
    encoder = nn.Linear(3, 2)
    flow = ContinuousFlow(ConcatSquashField(2, 8, context_size=2), 2)
    label = torch.randn(5, 3)
    log_prob = flow.log_prob(torch.zeros(5, 2), encoder(label))
    assert float(log_prob.detach().std()) > 1e-4
    log_prob.sum().backward()
    assert float(encoder.weight.grad.abs().max()) > 0
    sample, _ = flow.sample(5, context=encoder(label).detach())
    assert sample.shape == (5, 2)


def test_regularisers_of_a_linear_flow():
    field = Linear()
    with torch.no_grad():
        field.matrix.copy_(torch.tensor([[0.0, -1.0], [1.0, 0.0]]))  # a rotation: ‖f‖ = ‖z‖
    flow = ContinuousFlow(field, 2, trace="exact", end=0.5, rtol=1e-8, atol=1e-9)
    x = torch.randn(4, 2)
    result = flow(x)
    torch.testing.assert_close(result.kinetic, 0.5 * x.pow(2).sum(1), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(result.jacobian, torch.full((4,), 1.0), rtol=1e-5, atol=1e-6)
    normal = -0.5 * (x.pow(2).sum(1) + 2 * math.log(2 * math.pi))
    torch.testing.assert_close(result.log_prob, normal, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "options", [{}, {"bottleneck_size": 1, "trace": "bottleneck"}, {"noise": "rademacher"}]
)
def test_ffjord_by_name(options):
    flow = undamped.build("ffjord", input_size=2, hidden_size=8, **options)
    (-flow.log_prob(torch.randn(5, 2)).mean()).backward()
    assert flow.evaluations > 0 and flow.evaluations_backward > 0
    with pytest.raises(OptionError, match="condition"):
        undamped.models.FFJORD(2, bottleneck_size=1, context_size=1)
    with pytest.raises(OptionError, match="bottleneck"):
        undamped.models.FFJORD(2, bottleneck_size=1, hidden_layers=3)
    with pytest.raises(OptionError, match="hutchinson"):
        undamped.models.FFJORD(2, trace="exact", noise="rademacher")


@pytest.mark.parametrize(
    ("kinetic", "jacobian", "trace"),
    [(0.3, 0.0, "exact"), (0.0, 0.2, "hutchinson"), (0.3, 0.2, "exact"), (0.0, 0.0, "exact")],
)
def test_regularisers_are_weighed_into_what_training_adds(kinetic, jacobian, trace):
    options = {"hidden_size": 8, "trace": trace}
    flow = undamped.models.FFJORD(2, kinetic_weight=kinetic, jacobian_weight=jacobian, **options)
    assert flow.penalty() == 0
    result = flow(torch.randn(16, 2))
    expected = kinetic * result.kinetic.mean() + jacobian * result.jacobian.mean()
    torch.testing.assert_close(flow.penalty(), expected, rtol=0, atol=0)
    assert (flow.penalty() > 0) == bool(kinetic or jacobian)
    if kinetic or jacobian:
        flow.penalty().backward()
        assert any(p.grad is not None and p.grad.any() for p in flow.parameters())
    copy.deepcopy(flow)
    with torch.no_grad():
        flow(torch.randn(4, 2))
    assert flow.penalty() == 0


def test_the_jacobian_of_a_bottleneck_is_weighed_too():
    flow = undamped.models.FFJORD(4, bottleneck_size=2, trace="bottleneck", jacobian_weight=0.1)
    expected = 0.1 * flow(torch.randn(16, 4)).jacobian.mean()
    torch.testing.assert_close(flow.penalty(), expected, rtol=0, atol=0)
    assert flow.penalty() > 0


def test_a_bottleneck_trace_needs_a_bottleneck():
    with pytest.raises(OptionError, match="BottleneckField"):
        ContinuousFlow(ConcatSquashField(2, 8), 2, trace="bottleneck")
    flow = ContinuousFlow(BottleneckField(6, 2, 8), 6, trace="bottleneck")
    (-flow.log_prob(torch.randn(7, 6)).mean()).backward()


def test_the_jacobian_of_a_bottleneck_flow_is_estimated_and_trains():
    flow = undamped.models.FFJORD(3, bottleneck_size=2, trace="bottleneck", hidden_size=8)
    x = torch.randn(1, 3).expand(4000, 3)
    with torch.no_grad():
        estimate = flow(x, generator=torch.Generator().manual_seed(0)).jacobian
        exact = flow.eval()(x[:1]).jacobian
    assert abs(float(estimate.mean() - exact)) < 5 * float(estimate.std()) / 4000**0.5
    flow.train()(x[:4]).jacobian.sum().backward()
    assert float(flow.field.inner[0].weight.grad.abs().max()) > 0


@pytest.mark.parametrize("training", [True, False])
def test_a_bottleneck_trace_refuses_a_condition(training):
    flow = ContinuousFlow(BottleneckField(2, 1), 2, trace="bottleneck").train(training)
    with pytest.raises(OptionError, match="context"):
        flow(torch.randn(4, 2), torch.randn(4, 1))
    with pytest.raises(OptionError, match="context"):
        flow.sample(4, context=torch.randn(4, 1))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("trace", ["exact", "hutchinson", "bottleneck"])
def test_flows_answer_in_inference_mode(trace, training):
    field = BottleneckField(2, 1, 8) if trace == "bottleneck" else ConcatSquashField(2, 8)
    flow = ContinuousFlow(field, 2, trace=trace).train(training)
    x = torch.randn(4, 2)
    results = []
    for mode in (torch.inference_mode, torch.no_grad):
        with mode():
            torch.manual_seed(1)
            results.append((flow.log_prob(x * 1), *flow.sample(3)))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a.clone(), b)


def test_a_conditional_flow_answers_in_inference_mode():
    flow = ContinuousFlow(ConcatSquashField(2, 8, context_size=1), 2).eval()
    x, context = torch.randn(4, 2), torch.randn(4, 1)
    expected = flow.log_prob(x, context).detach()
    with torch.inference_mode():
        result = flow.log_prob(x * 1, context * 1)
    torch.testing.assert_close(result.clone(), expected)


class Drift(nn.Module):
    """ż = b: nothing of the state in it."""

    def __init__(self, train):
        super().__init__()
        self.drift = nn.Parameter(torch.tensor([0.3, -0.2]), requires_grad=train)

    def forward(self, t, z):
        return self.drift.expand(len(z), 2)


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("trace", ["exact", "hutchinson"])
@pytest.mark.parametrize("gradient", ["checkpoint", "adjoint", "backprop"])
def test_a_field_that_does_not_see_the_state_has_no_trace(gradient, trace, train):
    flow = ContinuousFlow(Drift(train), 2, trace=trace, gradient=gradient)
    x = torch.randn(4, 2, requires_grad=True)
    result = flow(x)
    normal = torch.distributions.Normal(0.0, 1.0)
    expected = normal.log_prob(x - 0.5 * flow.field.drift).sum(1)
    torch.testing.assert_close(result.log_prob, expected)
    assert float(result.jacobian.detach().abs().max()) == 0
    for name in [x, *([flow.field.drift] if train else [])]:
        (a,) = torch.autograd.grad(result.log_prob.sum(), name, retain_graph=True)
        (b,) = torch.autograd.grad(expected.sum(), name, retain_graph=True)
        torch.testing.assert_close(a, b)
