"""Lagrangian networks against their equations in NumPy; both directions, forces, bad states."""

import numpy as np
import pytest
import torch

import undamped
from models.test_motion_oracles import compare, made, slope, states
from undamped._base.contract import Batch, StateSpace
from undamped._base.errors import NonFiniteError, OptionError
from undamped.analysis import measure
from undamped.lab.tasks.physics.links import angles_of, plane_of
from undamped.lab.training import fit
from undamped.models.physics.fields import LagrangianField
from undamped.models.physics.fields.smooth_perceptron import Curvature, SmoothPerceptron
from undamped.models.physics.lnn import PerceptronLagrangian
from undamped.ode import solve

MIXED = StateSpace(
    ("x", "a", "v", "w"), ("position", "angle", "velocity", "velocity"), inputs=("f", "t")
)


def softplus(x):
    return np.log1p(np.exp(x))


def weights(net):
    return [(layer.weight.detach().numpy(), layer.bias.detach().numpy()) for layer in net.hidden]


def learned(net, x):
    for weight, bias in weights(net):
        x = softplus(x @ weight.T + bias)
    bias = 0 if net.readout.bias is None else net.readout.bias.detach().numpy()
    return x @ net.readout.weight.detach().numpy().T + bias


def learned_slope(net, x):
    """The gradient of a perceptron with one output, backwards by hand; x may be complex."""
    before = []
    for weight, bias in weights(net):
        before.append(x @ weight.T + bias)
        x = softplus(before[-1])
    back = net.readout.weight.detach().numpy()[0]
    for (weight, _), z in zip(reversed(weights(net)), reversed(before), strict=True):
        back = (back / (1 + np.exp(-z))) @ weight
    return back


def along(function, x, direction):
    """Differentiate along a direction by a complex step."""
    return np.imag(function(x + 1e-30j * direction)) / 1e-30


def seen(q):
    return np.concatenate((q[:1], np.cos(q[1:]), np.sin(q[1:])))


@pytest.mark.parametrize("masses", ["unit", "learned"])
def test_lnn_is_the_equation_of_euler_and_lagrange(masses):
    model = made(
        undamped.models.LNN(MIXED, hidden_size=5, hidden_layers=2, speed=2.0, masses=masses)
    )
    z, u = states(model)

    def mass(q):
        if masses == "unit":
            return np.eye(2)
        entries = learned(model.field.masses.net, seen(q))
        lower = np.array([[entries[0], 0], [entries[1], entries[2]]])
        return lower @ lower.T + 1e-3 * np.eye(2)

    def kinetic_slope(q, v):
        """Return ∂(½ vᵀ A v)/∂q."""
        return np.array([v @ along(mass, q, unit) @ v / 2 for unit in np.eye(2)])

    def slopes(both):
        """Return ∂f/∂q and ∂f/∂v, one after the other."""
        q, v = both[:2], both[2:]
        by = 4 * learned_slope(model.field.net, np.concatenate((seen(q), v / 2)))
        turned = -np.sin(q[1]) * by[1] + np.cos(q[1]) * by[2]
        return np.concatenate(([by[0], turned], by[3:] / 2))

    expected, energy = [], []
    for both, force in zip(z.numpy(), u.numpy(), strict=True):
        q, v = both[:2], both[2:]
        still = np.concatenate((v, np.zeros(2)))
        hessian = np.array([along(slopes, both, np.eye(4)[2 + k])[2:] for k in range(2)]).T
        right = slopes(both)[:2] - along(slopes, both, still)[2:] + force
        if masses == "learned":
            right += kinetic_slope(q, v) - along(mass, q, v) @ v
        expected.append(np.concatenate((v, np.linalg.solve(mass(q) + hessian, right))))
        value = 4 * learned(model.field.net, np.concatenate((seen(both[:2]), v / 2)))[0]
        energy.append(v @ slopes(both)[2:] + v @ mass(q) @ v / 2 - value)
    compare(model.derivative(z, u), np.array(expected))
    compare(model.energy(z), np.array(energy))
    assert torch.autograd.gradcheck(lambda z: model.derivative(z, u), z.requires_grad_())


def test_delan_is_its_equation_in_both_directions():
    model = made(undamped.models.DeLaN(MIXED, hidden_size=5, hidden_layers=2, smallest_mass=0.1))
    field = model.field

    def mass(q):
        entries = learned(field.masses.net, seen(q))
        lower = np.array([[entries[0], 0], [entries[1], entries[2]]])
        return lower @ lower.T + 0.1 * np.eye(2)

    z, u = states(model)
    expected, parts = [], []
    for both, force in zip(z.numpy(), u.numpy(), strict=True):
        q, v = both[:2], both[2:]
        turning = along(mass, q, v) @ v
        kinetic = slope(lambda q, v=v: v @ mass(q) @ v / 2, q)
        pull = slope(lambda q: learned(field.of_positions, seen(q))[0], q)
        acceleration = np.linalg.solve(mass(q), force - turning + kinetic - pull)
        expected.append(np.concatenate((v, acceleration)))
        parts.append((mass(q) @ acceleration, turning - kinetic, pull))
    rates = model.derivative(z, u)
    compare(rates, np.array(expected))
    forces = model.inverse(z, rates[:, 2:])
    for result, part in zip(forces, zip(*parts, strict=True), strict=True):
        compare(result, np.array(part))
    torch.testing.assert_close(sum(forces), u)
    assert torch.autograd.gradcheck(lambda z: model.derivative(z, u), z.requires_grad_())


@pytest.mark.parametrize("activation", ["tanh", "softplus", "sigmoid", "silu"])
def test_second_derivatives_are_autograds(activation):
    torch.manual_seed(0)
    net = SmoothPerceptron(3, 1, 7, hidden_layers=3, activation=activation).double()
    x = torch.randn(4, 3).double()
    at = Curvature(net, x)
    expected = [torch.autograd.functional.hessian(lambda x: net(x).squeeze(), one) for one in x]
    entered = at.enter(torch.eye(3).double()).expand(4, 3, 7)
    torch.testing.assert_close(at.along(entered), torch.stack(expected))
    torch.testing.assert_close(at.gradient, net.linearise(x).gradient())
    torch.testing.assert_close(at.value, net(x).squeeze(-1))


@pytest.mark.parametrize("masses", ["unit", "learned"])
def test_one_pass_gives_what_autograd_gives_and_its_gradients(masses):
    torch.manual_seed(0)
    field = PerceptronLagrangian(3, hidden_size=6, angles=(1,), speed=3.0, masses=masses).double()
    q, v, force = torch.randn(3, 5, 3).double()
    gradients = []
    for way in (
        field.acceleration,
        lambda *arguments: LagrangianField.acceleration(field, *arguments),
    ):
        field.zero_grad()
        way(q, v, force).square().sum().backward()
        gradients.append([p.grad.clone() for p in field.parameters()])
    for result, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(result, expected)
    z = torch.cat((q, v), 1)
    torch.testing.assert_close(field.energy(z), LagrangianField.energy(field, z))


@pytest.mark.parametrize("kind", [undamped.models.LNN, undamped.models.DeLaN])
def test_learned_energies_are_kept_along_the_way(kind):
    torch.manual_seed(0)
    model = kind(2, hidden_size=8, tolerance=1e-10).double()
    start = torch.randn(4, 4).double()
    path = model.trajectory(start, [0.5, 1.0])
    energy = model.energy(torch.cat((start[None], path)))
    torch.testing.assert_close(energy, energy[:1].expand_as(energy), rtol=1e-7, atol=1e-7)
    assert (path[-1] - start).abs().max() > 0.1


def test_promises_with_fewer_inputs_and_friction():
    space = StateSpace.moving(2, inputs=1)
    kinds = [m.promise.kind.value for m in measure(undamped.models.DeLaN(space))]
    assert kinds == ["kept-energy", "power-balance", "positive-mass"]
    result = measure(undamped.models.LNN(space, friction=True))
    assert [m.promise.kind.value for m in result] == ["passive"] and result[0].holds
    with pytest.raises(OptionError, match=r"actuation='given' needs one input for each of 2"):
        undamped.models.LNN(space, actuation="given")


def test_power_that_does_not_balance_would_not_pass(monkeypatch):
    from undamped.models.physics.delan import MassLagrangian

    plain = MassLagrangian.acceleration
    torch.manual_seed(0)
    model = undamped.models.DeLaN(StateSpace.moving(2, inputs=2))
    monkeypatch.setattr(
        MassLagrangian, "acceleration", lambda self, q, v, f=0.0: 1.01 * plain(self, q, v, f)
    )
    assert [m.holds for m in measure(model)] == [False, False, True]


def test_delan_learns_from_forces_and_power():
    torch.manual_seed(0)
    space = StateSpace.moving(2, inputs=2)
    model = undamped.models.DeLaN(space, hidden_size=4, inverse_weight=2.0, power_weight=3.0)
    batch = Batch(torch.randn(5, 6), torch.randn(5, 4))
    model.train()
    model.run(batch)
    z, u, rates = batch.inputs[:, :4], batch.inputs[:, 4:], batch.targets
    error = sum(model.inverse(z, rates[:, 2:])) - u
    power = (z[:, 2:] * error).sum(1)
    expected = 2 * error.square().mean() + 3 * power.square().mean()
    torch.testing.assert_close(model.penalty(), expected)
    with pytest.raises(OptionError, match="need measured rates"):
        model.run(Batch(batch.inputs, target_times=torch.ones(1, 5)))
    with pytest.raises(OptionError, match="need inputs"):
        undamped.models.DeLaN(2, power_weight=1.0)


def test_a_penalty_keeps_the_hessian_regular():
    torch.manual_seed(0)
    model = undamped.models.LNN(1, hidden_size=4).double()
    batch = Batch(torch.randn(5, 2).double())
    model.train()
    model.run(batch)
    assert model.penalty().item() == 0  # near the identity all is well
    with torch.no_grad():
        model.field.net.readout.weight.fill_(-400)
    lowest = torch.linalg.eigvalsh(model.mass_matrix(batch.inputs))
    expected = (0.1 - lowest).relu().square().sum(-1).mean()
    torch.testing.assert_close(model.penalty(), expected)
    assert expected > 0


def test_a_state_without_an_acceleration_is_named():
    """L = ½ v² − ½ (σ-sum) v² cannot be had exactly, so the masses are taken away."""
    model = undamped.models.LNN(1, hidden_size=4)
    with torch.no_grad():
        model.field.net.readout.weight.zero_()
    model.field._with_masses = lambda hessian: hessian
    with pytest.raises(NonFiniteError, match=r"singular at sample 0 of 3.*such as delan"):
        model(torch.randn(3, 2))


def test_momenta_are_refused_and_the_way_out_is_named():
    with pytest.raises(OptionError, match=r"positions and momenta.*task.partners=velocities"):
        undamped.models.LNN(StateSpace.canonical(2))


def test_a_double_pendulum_is_two_links():
    """Two programs of one system, in momenta and in velocities, end in the same place."""
    momenta = undamped.lab.tasks.build("double-pendulum", gravity=1.0, partners="velocities").system
    links = undamped.lab.tasks.build("links", gravity=1.0).system
    z = torch.randn(3, 4).double()
    times = torch.tensor([0.0, 1.0]).double()
    torch.testing.assert_close(momenta.simulate(z, times), links.simulate(z, times))
    torch.testing.assert_close(momenta.derivative(z), links.derivative(z))
    torch.testing.assert_close(momenta.energy(z), links.energy(z))


def test_links_in_the_plane_are_links_in_angles():
    z = torch.randn(4, 6).double()
    torch.testing.assert_close(angles_of(plane_of(z)), z - _turns(z))
    plane = undamped.lab.tasks.build("links", links=3, coordinates="plane").system
    angles = undamped.lab.tasks.build("links", links=3).system
    given = plane_of(z)
    torch.testing.assert_close(plane.energy(given), angles.energy(z))
    times = torch.tensor([0.0, 0.1]).double()
    stepped = solve(plane.field, given, times, method="dopri8", rtol=1e-10, atol=1e-12).final
    torch.testing.assert_close(plane.simulate(given, times)[1], stepped)
    bodies = given[:, :6].unflatten(1, (3, 2))
    rods = torch.cat((bodies[:, :1], bodies.diff(dim=1)), dim=1).norm(dim=-1)
    torch.testing.assert_close(rods, torch.ones_like(rods))


def _turns(z):
    angles, rates = z.chunk(2, dim=-1)
    turns = 2 * torch.pi * torch.round(angles / (2 * torch.pi))
    return torch.cat((turns, torch.zeros_like(rates)), dim=-1)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "task"), [("lnn", "henon-heiles"), ("delan", "acrobot")])
def test_tasks_teach_them_by_name_alone(model, task, tmp_path):
    run = fit(
        model, task, model_options={"hidden_size": 16},
        task_options={"trajectories": 6, "readings": 8},
        train={"steps": 30, "batch_size": 32, "validate_every": 15, "learning_rate": 1e-2},
        out=tmp_path, progress=False,
    )  # fmt: skip
    assert run.result["test"]["mse"] < run.result["chance"]["mse"]
    assert run.settings["task"]["options"]["partners"] == "velocities"
