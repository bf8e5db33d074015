"""Hamiltonian and Lagrangian fields: closed gradients, ports, and every mode of the solvers."""

import numpy as np
import pytest
import torch

from undamped._base.contract import StateSpace
from undamped._base.errors import NonFiniteError, OptionError
from undamped.models.physics.fields import (
    ConstantInput,
    Coordinates,
    Forced,
    HamiltonianField,
    LagrangianField,
    Ports,
    SmoothPerceptron,
)
from undamped.models.physics.fields.hamiltonian import by_autograd
from undamped.models.physics.hnn import PerceptronHamiltonian
from undamped.models.physics.srnn import PerceptronSeparable
from undamped.ode import solve

ACTIVATIONS = ("tanh", "softplus", "sigmoid", "silu")


def double(module):
    torch.manual_seed(0)
    return module.double()


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("layers", [1, 3])
def test_products_with_the_jacobian_are_autograds(activation, layers):
    net = double(SmoothPerceptron(3, 2, 7, hidden_layers=layers, activation=activation))
    x, back, along = (torch.randn(5, n).double() for n in (3, 2, 3))
    at = net.linearise(x)
    torch.testing.assert_close(at.value, net(x))
    jacobian = torch.stack([torch.autograd.functional.jacobian(net, one) for one in x])
    torch.testing.assert_close(at.jvp(along), (jacobian @ along.unsqueeze(-1)).squeeze(-1))
    torch.testing.assert_close(at.vjp(back), (back.unsqueeze(-2) @ jacobian).squeeze(-2))


@pytest.mark.parametrize("kind", [PerceptronHamiltonian, PerceptronSeparable])
@pytest.mark.parametrize("angles", [(), (1,)])
def test_closed_gradients_are_the_energys_own(kind, angles):
    field = double(kind(2, hidden_size=6, angles=angles))
    q, p = torch.randn(2, 4, 2).double()
    expected = by_autograd(lambda q, p: field.hamiltonian(0.0, q, p), q, p)
    for result, true in zip(field.gradient(0.0, q, p), expected, strict=True):
        torch.testing.assert_close(result, true)
    z = torch.cat((q, p), dim=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: field(0.0, z), z)
    turned = torch.cat((q + 2 * torch.pi * torch.tensor([0.0, float(bool(angles))]), p), dim=1)
    torch.testing.assert_close(field(0.0, turned), field(0.0, z))


def test_the_equation_again_in_numpy():
    field = double(PerceptronHamiltonian(2, hidden_size=5))
    z = torch.randn(4, 4).double()
    (w1, b1), (w2, b2) = ((layer.weight, layer.bias) for layer in field.net.hidden)
    w1, b1, w2, b2, w3 = (w.detach().numpy() for w in (w1, b1, w2, b2, field.net.readout.weight[0]))
    h1 = np.tanh(z.numpy() @ w1.T + b1)
    h2 = np.tanh(h1 @ w2.T + b2)
    slope = (((1 - h2**2) * w3) @ w2 * (1 - h1**2)) @ w1
    flow = np.concatenate((slope[:, 2:], -slope[:, :2]), axis=1)
    np.testing.assert_allclose(field(0.0, z).detach().numpy(), flow, atol=1e-14)
    np.testing.assert_allclose(field.energy(z).detach().numpy(), h2 @ w3, atol=1e-14)


class Pendulum(HamiltonianField):
    """H alone: autograd takes the gradient."""

    def __init__(self):
        super().__init__(1)
        self.length = torch.nn.Parameter(torch.tensor(1.3).double())

    def hamiltonian(self, t, q, p):
        return (p**2 / 2 - self.length * torch.cos(q)).sum(-1)


FIELDS = {
    "perceptron": lambda: PerceptronHamiltonian(1, hidden_size=5),
    "separable": lambda: PerceptronSeparable(1, hidden_size=5),
    "autograd": Pendulum,
}


@pytest.mark.parametrize("name", FIELDS)
def test_fields_work_in_every_mode_of_the_solvers(name):
    field = double(FIELDS[name]())
    start = torch.tensor([[0.5, 0.3], [1.0, -0.2]]).double()
    times = torch.linspace(0, 0.6, 3).double()
    gradients = {}
    for gradient in ("backprop", "checkpoint", "adjoint", "reversible"):
        method = "reversible-heun" if gradient == "reversible" else "rk4"
        field.zero_grad()
        y = start.clone().requires_grad_()
        path = solve(
            field, y, times, method=method, options={"step_size": 0.02}, gradient=gradient
        ).values
        path.square().sum().backward()
        gradients[gradient] = torch.cat(
            [y.grad.flatten(), *(p.grad.flatten() for p in field.parameters())]
        )
    for result in gradients.values():
        torch.testing.assert_close(result, gradients["backprop"], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(gradients["checkpoint"], gradients["backprop"])
    with torch.no_grad():
        plain = solve(field, start, times, rtol=1e-8, atol=1e-8).values
    with torch.inference_mode():
        inferred = solve(field, start, times, rtol=1e-8, atol=1e-8).values
    torch.testing.assert_close(plain, inferred.clone())


def test_leapfrog_asks_for_one_half_at_a_time():
    field = double(PerceptronSeparable(2, hidden_size=4))
    calls = []
    plain = type(field).gradient
    type(field).gradient = lambda self, *arguments: calls.append(1) or plain(self, *arguments)
    try:
        result = solve(
            field, torch.randn(3, 4).double(), [0.0, 0.1], method="leapfrog",
            options={"step_size": 0.1},
        )  # fmt: skip
    finally:
        type(field).gradient = plain
    assert result.values.shape == (2, 3, 4) and len(calls) == 1  # the first look at the field


def test_ports_do_work_and_take_it():
    class Friction(torch.nn.Module):
        def forward(self, q):
            return 0.3 * torch.eye(2).double().expand(*q.shape[:-1], 2, 2)

    ports = Ports(ConstantInput(2, (1,)), Friction())
    field = double(PerceptronHamiltonian(2, hidden_size=4, ports=ports))
    z, u = torch.randn(5, 4).double(), torch.randn(5, 1).double()
    q, p = z[:, :2], z[:, 2:]
    by_q, v = field.gradient(0.0, q, p)
    expected = torch.cat((v, -by_q - 0.3 * v + torch.cat((torch.zeros(5, 1), u), 1)), dim=1)
    torch.testing.assert_close(Forced(field, u)(0.0, z), expected)
    torch.testing.assert_close(field.supplied(z, u), v[:, 1] * u[:, 0])
    assert not field.separable
    split = double(PerceptronSeparable(2, hidden_size=4, ports=Ports(ConstantInput(2, (1,)))))
    driven = Forced(split, u)
    assert split.separable and driven.separable
    torch.testing.assert_close(driven.force(0.0, q), driven(0.0, z)[:, 2:])
    assert not Forced(split, lambda t, z: u).separable


class Arm(LagrangianField):
    """A cart with a pole: L = ½ vᵀ M(q) v − V(q)."""

    def __init__(self):
        super().__init__(2)

    def lagrangian(self, q, v):
        angle, (x_rate, rate) = q[..., 1], v.unbind(-1)
        kinetic = x_rate**2 + 0.5 * x_rate * rate * torch.cos(angle) + 0.2 * rate**2
        return kinetic - 1.5 * torch.cos(angle)


def test_accelerations_follow_from_a_lagrangian():
    """By hand: M q̈ + Ṁ q̇ − ∇(q̇ᵀMq̇)/2 + ∇V = F."""
    field = Arm()
    q, v, force = torch.randn(3, 6, 2).double()
    c, s, rate, x_rate = torch.cos(q[:, 1]), torch.sin(q[:, 1]), v[:, 1], v[:, 0]
    mass = torch.stack((torch.full_like(c, 2.0), 0.5 * c, 0.5 * c, torch.full_like(c, 0.4)), -1)
    mass = mass.reshape(-1, 2, 2)
    turning = torch.stack((-0.5 * s * rate * rate, -0.5 * s * rate * x_rate), -1)
    slope = torch.stack((torch.zeros_like(c), -0.5 * s * x_rate * rate), -1)
    pull = torch.stack((torch.zeros_like(c), -1.5 * s), -1)
    expected = torch.linalg.solve(mass, force - turning + slope - pull)
    torch.testing.assert_close(field.acceleration(q, v, force), expected)
    z = torch.cat((q, v), 1)
    energy = (v.unsqueeze(1) @ mass @ v.unsqueeze(2)).flatten() / 2 + 1.5 * c
    torch.testing.assert_close(field.energy(z), energy)
    with torch.inference_mode():
        torch.testing.assert_close(field(0.0, z)[:, 2:], field.acceleration(q, v))


def test_a_singular_lagrangian_names_the_sample():
    class Flat(Arm):
        def lagrangian(self, q, v):
            return (q[..., :1] * v**2).sum(-1)

    q = torch.ones(4, 2).double()
    q[2] = 0
    with pytest.raises(NonFiniteError, match=r"singular at sample 2 of 4.*another seed"):
        Flat()(0.0, torch.cat((q, q), 1))


def test_states_are_sorted_for_the_field():
    space = StateSpace(("v", "x", "w", "a"), ("velocity", "position", "velocity", "angle"))
    coordinates = Coordinates.of(space, "a test")
    assert coordinates.order == (1, 3, 0, 2) and coordinates.angles == (1,) and coordinates.moving
    z = torch.arange(4.0)
    assert coordinates.sort(z).tolist() == [1, 3, 0, 2]
    assert torch.equal(coordinates.unsort(coordinates.sort(z)), z)
    with pytest.raises(OptionError, match=r"one momentum or velocity each, got x \(position\)"):
        Coordinates.of(StateSpace(("x",), ("position",)), "a test")
