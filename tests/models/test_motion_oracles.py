"""Physics networks against their equations, written again in NumPy."""

import math

import numpy as np
import pytest
import torch

import undamped
from undamped._base.contract import Batch, StateSpace
from undamped._base.errors import OptionError, ShapeError
from undamped.models.physics.fields import LagrangianField

GENERATOR = np.random.default_rng(0)


def made(model):
    """Return a model in double precision whose weights are all of a fair size."""
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.4 * torch.randn_like(parameter))
    return model.double()


def perceptron(net, x):
    for layer in net.hidden:
        x = np.tanh(x @ layer.weight.detach().numpy().T + layer.bias.detach().numpy())
    bias = 0 if net.readout.bias is None else net.readout.bias.detach().numpy()
    return x @ net.readout.weight.detach().numpy().T + bias


def slope(function, x):
    """Differentiate by a complex step, which is exact to rounding."""
    result = np.zeros(len(x))
    for k in range(len(x)):
        moved = x.astype(complex)
        moved[k] += 1e-30j
        result[k] = np.imag(function(moved)) / 1e-30
    return result


def states(model, count=3):
    return model.example_states(count, torch.Generator().manual_seed(5))


def compare(found, wanted):
    np.testing.assert_allclose(found.detach().numpy(), wanted, rtol=1e-10, atol=1e-12)


def leapfrog(velocity, force, q, p, h):
    p = p + h / 2 * force(q)
    q = q + h * velocity(p)
    return q, p + h / 2 * force(q)


def test_srnn_is_leapfrog_with_two_energies():
    model = made(undamped.models.SRNN(2, hidden_size=5, step_size=0.1))
    field = model.field

    def velocity(p):
        return slope(lambda x: perceptron(field.of_momenta.net, x)[0], p)

    def force(q):
        return -slope(lambda x: perceptron(field.of_positions.net, x)[0], q)

    start, _ = states(model)
    expected = []
    for z in start.numpy():
        q, p, path = z[:2], z[2:], []
        for _ in range(4):
            q, p = leapfrog(velocity, force, q, p, 0.1)
            path.append(np.concatenate((q, p)))
        expected.append(path[1::2])
    compare(model.trajectory(start, [0.2, 0.4]), np.array(expected).transpose(1, 0, 2))


def test_nssnn_is_taos_method_on_both_copies():
    h, omega = 0.05, 7.0
    model = made(undamped.models.NSSNN(2, hidden_size=5, step_size=h, omega=omega))

    def rates(q, p):
        both = slope(lambda z: perceptron(model.field.net, z)[0], np.concatenate((q, p)))
        return both[2:], -both[:2]

    def step(q, p, x, y):
        def first(p, x):
            dq, dp = rates(q, y)
            return p + h / 2 * dp, x + h / 2 * dq

        def second(q, y):
            dq, dp = rates(x, p)
            return q + h / 2 * dq, y + h / 2 * dp

        p, x = first(p, x)
        q, y = second(q, y)
        c, s = math.cos(2 * omega * h), math.sin(2 * omega * h)
        dq, dp = c * (q - x) + s * (p - y), -s * (q - x) + c * (p - y)
        q, x, p, y = (q + x + dq) / 2, (q + x - dq) / 2, (p + y + dp) / 2, (p + y - dp) / 2
        q, y = second(q, y)
        p, x = first(p, x)
        return q, p, x, y

    start, _ = states(model)
    one, two = [], []
    for z in start.numpy():
        now = (z[:2], z[2:], z[:2], z[2:])
        for _ in range(3):
            now = step(*now)
        one.append(np.concatenate(now[:2]))
        two.append(np.concatenate(now[2:]))
    compare(model.trajectory(start, [3 * h])[0], np.array(one))
    (second,) = model.further_predictions()
    compare(second[0], np.array(two))


def test_both_copies_of_nssnn_are_in_the_loss(tmp_path):
    from undamped.lab.tasks import build
    from undamped.lab.training.update import Objective

    task = build("nonseparable", trajectories=2, readings=3, form="trajectory", window=2)
    model = made(undamped.models.NSSNN(task.task_shape, hidden_size=4, step_size=0.1)).float()
    batch = task.batch("train", 0, 2)
    total, loss, _, _ = Objective(model, task)(batch, None)
    first = model(batch)
    (second,) = model.further_predictions()
    added = task.loss(first, batch) + task.loss(second, batch)
    torch.testing.assert_close(total, added)
    assert not torch.equal(first, second) and total > loss


def test_a_tie_that_comes_full_circle_is_refused():
    with pytest.raises(OptionError, match=r"not be a multiple of π/ω = 0\.1571,.* got 0\.157"):
        undamped.models.NSSNN(1, step_size=0.157)


def test_taylor_net_is_its_series():
    model = made(undamped.models.TaylorNet(2, hidden_size=3, terms=4))
    start, _ = states(model)

    def gradient(part, x):
        total = part.slope.detach().numpy().copy()
        for k in range(4):
            a, b = part.plus[k].detach().numpy(), part.minus[k].detach().numpy()
            total += (a.T @ (a @ x) ** (k + 1) - b.T @ (b @ x) ** (k + 1)) / math.factorial(k + 1)
        return total

    expected = [
        np.concatenate((gradient(model.field.of_momenta, z[2:]),
                        -gradient(model.field.of_positions, z[:2])))
        for z in start.numpy()
    ]  # fmt: skip
    compare(model(start), expected)


def test_ssinn_is_its_equation():
    kinds = ("position", "position", "momentum", "momentum")
    space = StateSpace(("x", "y", "px", "py"), kinds)
    model = made(undamped.models.SSINN(space, degree=2, harmonics=2))
    terms = model.terms()
    assert len(terms) == 8 + 8 + 8 and {"px² py", "x y²", "cos(2y)", "sin(x)"} <= set(terms)

    def energy(z):
        x, y, px, py = z
        values = {"x": x, "y": y, "px": px, "py": py}
        total = 0
        for term, weight in terms.items():
            if "(" in term:
                kind, inside = term[:3], term[4:-1]
                factor = 2 if inside[0] == "2" else 1
                wave = {"cos": np.cos, "sin": np.sin}[kind]
                total = total + weight * wave(factor * values[inside.removeprefix("2")])
            else:
                product = 1
                for part in term.split():
                    power = 2 if part.endswith("²") else 1
                    product = product * values[part.removesuffix("²")] ** power
                total = total + weight * product
        return total

    start, _ = states(model)
    expected = []
    for z in start.numpy():
        both = slope(energy, z)
        expected.append(np.concatenate((both[2:], -both[:2])))
    compare(model(start), expected)
    compare(model.energy(start), [energy(z) for z in start.numpy()])


def test_ssinn_drops_what_is_small_and_keeps_what_is_not():
    model = undamped.models.SSINN(1, degree=2, threshold=0.1, prune_every=2)
    with torch.no_grad():
        model.library.of_momenta.coefficients.copy_(torch.tensor([0.01, 0.5]))
        model.library.of_positions.coefficients.copy_(torch.tensor([-0.02, -3.0]))
    model.after_optimizer_step(0)
    assert len(model.terms()) == 4
    model.after_optimizer_step(1)
    assert model.equation() == "H = 0.5 p1² − 3 q1²"
    assert model.penalty().item() == pytest.approx(3.5e-3)
    with torch.no_grad():
        model.library.of_momenta.coefficients[0] = 7.0  # pruned for good
    assert model.findings() == ["The learned equation: H = 0.5 p1² − 3 q1²."]


@pytest.mark.parametrize("kind", ["LA", "G"])
def test_sympnet_is_its_shears(kind):
    options = {"width": 4} if kind == "G" else {}
    model = made(undamped.models.SympNet(2, kind=kind, layers=2, conditioned=True, **options))
    start, _ = states(model)
    h = 0.3
    q, p = start.numpy()[:, :2], start.numpy()[:, 2:]
    for shear in model.shears:
        x = q if shear.up else p
        parts = {name: value.detach().numpy() for name, value in shear.named_parameters()}
        if "scale" not in parts:
            push = x @ (parts["weight"] + parts["weight"].T) + parts["bias"]
        elif "weight" not in parts:
            push = parts["scale"] / (1 + np.exp(-x))
        else:
            k = parts["weight"]
            push = (parts["scale"] / (1 + np.exp(-(x @ k.T + parts["bias"])))) @ k
        q, p = (q, p + h * push) if shear.up else (q + h * push, p)
    compare(model.trajectory(start, [h])[0], np.concatenate((q, p), axis=1))


def test_a_map_for_one_step_serves_multiples_and_no_others():
    model = made(undamped.models.SympNet(1, layers=1, width=30))
    start = torch.randn(4, 2).double()
    model.train()
    model.trajectory(start, [0.2, 0.4])
    assert model.state_dict()["step"].item() == pytest.approx(0.2)
    model.eval()
    far, near = model.trajectory(start, [0.6]), model.trajectory(start, [0.2, 0.4, 0.6])
    torch.testing.assert_close(far[0], near[2])
    with pytest.raises(OptionError, match=r"multiples of 0\.2, .* got a gap of 0\.3"):
        model.trajectory(start, [0.3])
    own = torch.tensor([[0.1, 0.2, 0.1, 0.3]]).double()
    with pytest.raises(OptionError, match="times that differ by sample"):
        model.trajectory(start, own)
    free = made(undamped.models.SympNet(1, layers=1, conditioned=True))
    torch.testing.assert_close(
        free.trajectory(start, own)[0, 3], free.trajectory(start[3:], [0.3])[0, 0]
    )


SPACES = {
    "momenta": StateSpace.canonical(2, 1),
    "velocities": StateSpace(
        ("x", "a", "v", "w"), ("position", "angle", "velocity", "velocity"), ("u1", "u2")
    ),
    "embedded": StateSpace(("c", "s", "w"), ("cosine", "sine", "velocity"), ("u",)),
    "hybrid": StateSpace(
        ("c", "x", "s", "w", "v"), ("cosine", "position", "sine", "velocity", "velocity"), ("u",)
    ),
}


def matrices(parts, x):
    """Return M⁻¹, V, g and D of features, with NumPy."""
    size = parts.inverse_mass.size

    def positive(matrix, least):
        lower = np.zeros((size, size), dtype=x.dtype)
        lower[np.tril_indices(size)] = perceptron(matrix.net, x)
        return lower @ lower.T + least * np.eye(size)

    acting = perceptron(parts.ports.inputs.net, x).reshape(parts.ports.inputs.shape)
    friction = positive(parts.ports.friction, 0.0)
    mass = positive(parts.inverse_mass, parts.inverse_mass.smallest)
    return mass, perceptron(parts.potential, x)[0], acting, friction


def test_symoden_in_momenta():
    model = made(undamped.models.SymODEN(SPACES["momenta"], hidden_size=5, friction=True))
    start, u = states(model)
    parts, expected = model.field.parts, []
    for z, force in zip(start.numpy(), u.numpy(), strict=True):

        def energy(y):
            mass, potential, _, _ = matrices(parts, y[:2])
            return y[2:] @ mass @ y[2:] / 2 + potential

        both = slope(energy, z)
        _, _, acting, friction = matrices(parts, z[:2])
        push = acting @ force - friction @ both[2:]
        expected.append(np.concatenate((both[2:], -both[:2] + push)))
    compare(model.derivative(start, u), expected)


@pytest.mark.parametrize("name", ["velocities", "embedded", "hybrid"])
def test_symoden_in_velocities_is_the_lagranges_equation(name):
    """In generalised coordinates, with L = ½ q̇ᵀ M q̇ − V, differentiated by autograd."""
    space = SPACES[name]
    model = made(undamped.models.SymODEN(space, hidden_size=5, friction=True))
    parts, count = model.field.parts, 3
    place = {"velocities": (0, 1), "embedded": (0,), "hybrid": (1, 0)}[name]  # x, angle

    def features(q):
        if name == "embedded":
            return torch.cat((q.cos(), q.sin()), -1)
        straight, angle = q[..., :1], q[..., 1:]
        return torch.cat((straight, angle.cos(), angle.sin()), -1)

    class Same(LagrangianField):
        def lagrangian(self, q, v):
            inverse = parts.inverse_mass(features(q))
            momentum = torch.linalg.solve(inverse, v.unsqueeze(-1)).squeeze(-1)
            return (v * momentum).sum(-1) / 2 - parts.potential(features(q)).squeeze(-1)

    dof = len(place)
    q, v = torch.randn(2, count, dof).double()
    u = torch.randn(count, len(space.inputs)).double()
    x = features(q)
    push = (parts.ports.inputs(x) @ u.unsqueeze(-1)).squeeze(-1)
    push = push - (parts.ports.friction(x) @ v.unsqueeze(-1)).squeeze(-1)
    field = Same(dof)
    expected = field.acceleration(q, v, push)
    state = {
        "velocities": lambda: torch.cat((q, v), 1),
        "embedded": lambda: torch.cat((q.cos(), q.sin(), v), 1),
        "hybrid": lambda: torch.stack((q[:, 1].cos(), q[:, 0], q[:, 1].sin(), v[:, 1], v[:, 0]), 1),
    }[name]()
    result = model.derivative(state, u)
    places = space.indices("velocity")
    found_rates = result[:, list(places)]
    order = (1, 0) if name == "hybrid" else tuple(range(dof))
    torch.testing.assert_close(found_rates, expected[:, list(order)])
    energy = field.energy(torch.cat((q, v), 1))
    torch.testing.assert_close(model.energy(state), energy)
    for kind, rate in (("cosine", -q.sin() * v), ("sine", q.cos() * v)):
        for k in space.indices(kind):
            torch.testing.assert_close(result[:, k], rate[:, -1])


def test_fitted_starts_remove_noise():
    torch.manual_seed(0)
    model = undamped.models.SRNN(1, start_iterations=20, step_size=0.1).double().train()
    clean = torch.randn(16, 2).double()
    times = torch.arange(1, 11).double().unsqueeze(1).expand(-1, 16) / 10
    with torch.no_grad():
        path = model.trajectory(clean, times)
    noise = 0.1 * torch.randn(11, 16, 2).double()
    batch = Batch(clean + noise[0], path + noise[1:], target_times=times)
    improved = model._fitted_starts(batch)
    before, after = ((x - clean).square().mean() for x in (batch.inputs, improved))
    assert after < before / 3
    # Used in training, and nowhere else.
    torch.testing.assert_close(model(batch), model.trajectory(improved, times))
    model.eval()
    torch.testing.assert_close(model(batch), model.trajectory(batch.inputs, times))
    model.train()
    with pytest.raises(ShapeError, match="start_iterations"):
        model(batch._replace(target_mask=torch.ones(10, 16, dtype=torch.bool)))


@pytest.mark.parametrize("steps", [4, 64])
def test_srnn_gradients_by_undoing_steps_are_those_of_back_propagation(steps):
    result = {}
    for gradient in ("backprop", "reversible"):
        model = made(undamped.models.SRNN(2, hidden_size=6, step_size=0.05, gradient=gradient))
        start = states(model)[0].requires_grad_()
        path = model.trajectory(start, [0.05 * steps])
        path.square().sum().backward()
        result[gradient] = torch.cat(
            [start.grad.flatten(), *(p.grad.flatten() for p in model.parameters())]
        )
    torch.testing.assert_close(result["reversible"], result["backprop"], rtol=1e-10, atol=1e-10)


def bowl():
    """Return a model whose energies rise in every direction, so that it oscillates."""
    torch.manual_seed(0)
    model = undamped.models.SRNN(2, hidden_size=8, hidden_layers=1, activation="softplus").double()
    with torch.no_grad():
        for net in (model.field.of_momenta.net, model.field.of_positions.net):
            net.hidden[0].weight.copy_(torch.randn(8, 2))
            net.readout.weight.copy_(0.2 + torch.rand(1, 8))
    return model


def energies(model, start, h, steps, every=1):
    model.flow.step_size = h
    with torch.no_grad():
        path = model.trajectory(start, h * every * torch.arange(1, steps // every + 1))
        return model.energy(path) - model.energy(start)


@pytest.mark.slow
def test_energy_of_leapfrog_falls_by_four_when_steps_halve_and_has_no_trend():
    model, start = bowl(), torch.tensor([[0.5, -1.0, 0.3, 0.2], [1.0, 1.0, 0.0, -0.5]]).double()
    wide, narrow = (energies(model, start, h, round(20 / h)).abs().amax(0) for h in (0.04, 0.02))
    ratio = wide / narrow
    assert bool(((ratio > 3.6) & (ratio < 4.4)).all()), ratio
    error = energies(model, start, 0.04, 10_000, every=10)
    size, half = error.abs().amax(0), len(error) // 2
    assert bool((error[half:].abs().amax(0) < 1.3 * error[:half].abs().amax(0)).all())
    time = torch.linspace(0, 1, len(error)).double()
    trend = torch.linalg.lstsq(torch.stack((time, torch.ones_like(time)), 1), error).solution[0]
    assert bool((trend.abs() < 0.1 * size).all())
