"""Stable residual networks against their equations; back-propagation by undoing layers."""

import numpy as np
import pytest
import torch
from recurrent_fields import AntisymmetricField, CoRNNField, UnICORNNField, step_of

from undamped._base.errors import OptionError
from undamped.nn.unicornn import UnICORNNCell
from undamped.ode import StableResidual
from undamped.ode.flows.stable_residual import KINDS


@pytest.fixture(autouse=True)
def double():
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def oracle(kind, net, y):
    """The networks again, in NumPy, one sample a row."""
    p = {name: value.detach().numpy() for name, value in net.layers.named_parameters()}
    K, b, h, gamma = p["weight"], p["bias"], net.layers.step_size, net.layers.gamma
    eye = np.eye(K.shape[1])
    before, z = y.copy(), np.zeros_like(y)
    for j in range(len(K)):
        skew = 0.5 * (K[j] - K[j].T - gamma * eye)
        if kind == "antisymmetric":
            y = y + h * np.tanh(y @ skew.T + b[j])
        elif kind == "verlet":
            force = np.tanh(y @ (-K[j].T @ K[j]).T + b[j])
            before, y = y, 2 * y - before + h**2 * force
        elif kind == "leapfrog":
            force = np.tanh(y @ K[j].T + b[j]) @ K[j]
            before, y = y, 2 * y - before - h**2 * force
        elif kind == "midpoint":
            size = h if j == 0 else 2 * h
            before, y = y, before + size * np.tanh(y @ skew.T + b[j])
        elif kind == "hamiltonian":
            z = z - h * np.tanh(y @ K[j] + b[j])
            y = y + h * np.tanh(z @ K[j].T + b[j])
        else:
            K2, b2 = p["weight_kick"], p["bias_kick"]
            z = z - h * np.tanh(y @ K2[j].T + b2[j]) @ K2[j]
            y = y + h * np.tanh(z @ K[j].T + b[j]) @ K[j]
    return y


def build(kind, **more):
    net = StableResidual(4, 7, kind=kind, step_size=0.2, **more)
    with torch.no_grad():
        for name, parameter in net.layers.named_parameters():
            if name.startswith("bias"):
                parameter.normal_()
    return net


@pytest.mark.parametrize("kind", KINDS)
def test_a_network_is_its_equation(kind):
    net = build(kind, **({"gamma": 0.1} if kind in ("antisymmetric", "midpoint") else {}))
    y = torch.randn(3, 4)
    np.testing.assert_allclose(net(y).detach().numpy(), oracle(kind, net, y.numpy()), atol=1e-12)


@pytest.mark.parametrize("kind", [k for k, v in KINDS.items() if v.invertible])
def test_undoing_layers_gives_the_same_gradient(kind):
    net = build(kind)
    results = []
    for reversible in (True, False):
        net.reversible = reversible
        y = torch.randn(3, 4, generator=torch.Generator().manual_seed(5)).requires_grad_()
        results.append(torch.autograd.grad(net(y).sin().sum(), [y, *net.parameters()]))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", [k for k, v in KINDS.items() if v.invertible])
def test_layers_are_undone_exactly(kind):
    net = StableResidual(4, 200, kind=kind, step_size=0.05)
    y = torch.randn(3, 4)
    pair = net.layers.begin(y)
    with torch.no_grad():
        for layer in range(200):
            pair = net.layers.step(layer, pair)
    torch.testing.assert_close(net.inverse(pair), y, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("kind", [k for k, v in KINDS.items() if v.invertible])
def test_the_input_comes_back_from_a_run(kind):
    net, y = build(kind), torch.randn(3, 4)
    for net.reversible in (True, False):
        pair = net.run(y)
        torch.testing.assert_close(pair[1], net(y))
        torch.testing.assert_close(net.inverse(pair), y, rtol=1e-9, atol=1e-10)


def test_a_kind_without_an_inverse_says_so():
    net = build("antisymmetric")
    with pytest.raises(OptionError, match="antisymmetric"):
        net.inverse(net.run(torch.randn(3, 4)))


@pytest.mark.parametrize("reversible", [True, False])
def test_the_backward_pass_cuts_layers_apart_only_once(reversible):
    """A cut per layer gives each a gradient of the size of all, and depth a quadratic cost."""
    net = StableResidual(4, 6, reversible=reversible)
    with torch.profiler.profile() as profile:
        net(torch.randn(2, 4)).sum().backward()
    counts = {row.key: row.count for row in profile.key_averages()}
    assert counts.get("aten::select_backward", 0) == 0


@pytest.mark.parametrize("kind", [k for k, v in KINDS.items() if v.invertible])
@pytest.mark.parametrize("frozen", ["weight", "bias", ""])
def test_frozen_parameters_are_left_out(kind, frozen):
    net, y = build(kind), torch.randn(3, 4, requires_grad=True)
    for name, parameter in net.layers.named_parameters():
        parameter.requires_grad_(not name.startswith(frozen))
    expected = [y, *(p for p in net.parameters() if p.requires_grad)]
    results = []
    for net.reversible in (True, False):
        results.append(torch.autograd.grad(net(y).sin().sum(), expected))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_gradients_reach_parameters_that_stand_in_for_the_networks_own():
    net, y = build("hamiltonian"), torch.randn(3, 4)
    others = {
        name: torch.randn_like(p).mul(0.3).requires_grad_() for name, p in net.named_parameters()
    }
    results = []
    for net.reversible in (True, False):
        loss = torch.func.functional_call(net, others, y).sin().sum()
        results.append(torch.autograd.grad(loss, list(others.values())))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_a_change_between_the_passes_is_noticed():
    net = build("hamiltonian")
    loss = net(torch.randn(3, 4)).sum()
    with torch.no_grad():
        net.layers.weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_gradients_of_gradients_are_refused_not_dropped():
    net, y = build("hamiltonian"), torch.randn(3, 4, requires_grad=True)
    slope = torch.autograd.grad(net(y).sum(), y, create_graph=True)[0].pow(2).sum()
    for expected in (y, net.layers.weight):
        with pytest.raises(OptionError, match="reversible=False"):
            torch.autograd.grad(slope, expected, retain_graph=True)
    first, _ = torch.autograd.grad(net(y).sum(), [y, net.layers.weight], create_graph=True)
    first.mul_(2)
    net.requires_grad_(False)
    slope = torch.autograd.grad(net(y).sum(), y, create_graph=True)[0].pow(2).sum()
    with pytest.raises(OptionError, match="reversible=False"):
        slope.backward()
    net.reversible = False
    slope = torch.autograd.grad(net(y).sum(), y, create_graph=True)[0].pow(2).sum()
    slope.backward()
    assert float(y.grad.abs().max()) > 0


def test_choices_that_do_not_fit():
    with pytest.raises(OptionError, match="no inverse"):
        StableResidual(4, 3, kind="antisymmetric", reversible=True)
    with pytest.raises(OptionError, match="no diffusion"):
        StableResidual(4, 3, kind="verlet", gamma=0.1)


def test_unicornn_is_symplectic_euler_on_its_field():
    cell = UnICORNNCell(3, 5, dt=0.3, alpha=0.7)
    x, y, z = torch.randn(2, 3), torch.randn(2, 5), torch.randn(2, 5)
    position, velocity = cell.advance(cell.project(x), (y, z), cell.constants())
    field = UnICORNNField(cell.weight, cell.alpha, torch.sigmoid(cell.step_logit), cell.project(x))
    state = step_of(field, torch.cat((y, z), dim=1), cell.dt, "symplectic-euler")
    torch.testing.assert_close(state, torch.cat((position, velocity), dim=1))


def test_antisymmetric_rnn_is_euler_on_its_field():
    W, h, u = torch.randn(4, 4), torch.randn(2, 4), torch.randn(2, 4)
    step = step_of(AntisymmetricField(W, 0.1, u), h, 0.2, "euler")
    inner = h.numpy() @ (W - W.T - 0.1 * torch.eye(4)).numpy().T + u.numpy()
    np.testing.assert_allclose(step.numpy(), h.numpy() + 0.2 * np.tanh(inner), atol=1e-12)


def test_cornn_is_symplectic_euler_on_its_field():
    W, V = torch.randn(4, 4), torch.randn(4, 4)
    y, z, u = (torch.randn(2, 4) for _ in range(3))
    state = step_of(
        CoRNNField(W, V, 1.5, 0.8, u), torch.cat((y, z), dim=1), 0.1, "symplectic-euler"
    )
    inner = np.tanh((y @ W.T + z @ V.T + u).numpy()) - 1.5 * y.numpy() - 0.8 * z.numpy()
    velocity = z.numpy() + 0.1 * inner
    position = y.numpy() + 0.1 * velocity
    np.testing.assert_allclose(state.numpy(), np.concatenate((position, velocity), 1), atol=1e-12)
    with pytest.raises(OptionError, match="memory of its own"):
        step_of(CoRNNField(W, V, 1.5, 0.8, u), torch.cat((y, z), dim=1), 0.1, "alf")
