"""Lie-group methods: rotations stay rotations; the equations in NumPy; what is refused."""

import copy
import pickle

import numpy as np
import pytest
import scipy.linalg
import torch
from torch import nn

import undamped
from undamped._base.errors import OptionError, ShapeError
from undamped._base.registry import solvers
from undamped.kernels.skew_exponential import skew_exponential
from undamped.ode import LinearRotating, Rotating, solve

D = torch.float64
NAMES = [name for name in solvers if solvers[name].rotates]
STEP = {"step_size": 0.1}


@pytest.mark.parametrize("size", [1e-6, 1e-3, 0.04, 0.3, 0.6, 7.0])
def test_the_exponential_is_right_at_every_norm(size):
    skew = torch.randn(2, 6, 6, dtype=D)
    skew = size * (skew - skew.mT) / torch.linalg.matrix_norm(skew - skew.mT, 1)[:, None, None]
    result = skew_exponential(skew)
    np.testing.assert_allclose(result[0].numpy(), scipy.linalg.expm(skew[0].numpy()), atol=2e-15)
    assert defect(result) < 4e-15
    torch.testing.assert_close(skew_exponential(skew[1]), result[1], rtol=0, atol=2e-15)
    assert torch.autograd.gradcheck(skew_exponential, (skew[:1, :3, :3].requires_grad_(),))


class Generator(nn.Module):
    """A skew matrix that depends on time and state, and on time alone with `linear`."""

    def __init__(self, size=3, linear=False, dtype=D):
        super().__init__()
        torch.manual_seed(2)
        self.free = nn.Parameter(torch.randn(2, size, size, dtype=dtype) / size)
        self.linear = linear

    def forward(self, t, y=None):
        free = self.free[0] + torch.cos(t) * self.free[1]
        if not self.linear:
            mean = y.reshape(-1, y.shape[-1]).tanh().mean(0)
            free = free + torch.outer(mean, free[0])
        return free - free.mT


def field(name, **how):
    linear = solvers[name].linear
    return (LinearRotating if linear else Rotating)(Generator(linear=linear, **how))


def rotation(size=3, dtype=D):
    torch.manual_seed(1)
    return torch.linalg.qr(torch.randn(size, size, dtype=D)).Q.to(dtype)


def defect(w):
    w = w.double()
    return float((w.mT @ w - torch.eye(w.shape[-1], dtype=D)).abs().max())


@pytest.mark.parametrize("name", NAMES)
def test_a_thousand_steps_keep_rotations_to_rounding(name):
    small = {"step_size": 0.02}
    with torch.no_grad():
        w = solve(field(name), rotation(), [0.0, 20.0], method=name, options=small)
    assert w.accepted == 1000 and defect(w.final) < 1e-12


def test_steps_that_only_add_do_not():
    for other, least in (("euler", 1e-3), ("rk4", 1e-9)):
        with torch.no_grad():
            w = solve(field("rkmk4"), rotation(), [0.0, 5.0], method=other, options=STEP)
        assert defect(w.final) > least


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(3,), (5, 3), (2, 5, 3), (2, 3, 3)])
def test_lengths_of_rows_are_kept_in_any_shape(name, shape):
    y = torch.randn(*shape, dtype=D)
    end = solve(field(name), y, [0.0, 2.0], method=name, options=STEP).final
    torch.testing.assert_close(end.norm(dim=-1), y.norm(dim=-1), rtol=1e-13, atol=1e-13)
    fine = solve(field(name), y, [0.0, 2.0], rtol=1e-9, atol=1e-10).final
    assert (end - fine).abs().max().item() < 0.5 * (end - y).abs().max().item()


def numpy_generator(parameters, t, y, linear):
    first, second = parameters
    free = first + np.cos(t) * second
    if not linear:
        free = free + np.outer(np.tanh(y).mean(0), free[0])
    return free - free.T


def numpy_step(name, b, t, h, y):
    """The equations of the methods once more."""
    exp, eye = scipy.linalg.expm, np.eye(len(y))

    def bracket(p, q):
        return p @ q - q @ p

    def cay(m):
        return np.linalg.inv(eye - m / 2) @ (eye + m / 2)

    def dexpinv(o, m):
        return m + bracket(o, m) / 2 + bracket(o, bracket(o, m)) / 12

    if name == "lie-euler":
        return y @ exp(h * b(t, y))
    if name == "lie-midpoint":
        return y @ exp(h * b(t + h / 2, y @ exp(h / 2 * b(t, y))))
    if name == "cayley":
        return y @ cay(h * b(t + h / 2, y @ cay(h / 2 * b(t, y))))
    if name == "magnus4":
        p, q = (b(t + (0.5 + s * np.sqrt(3) / 6) * h, y) for s in (-1, 1))
        return y @ exp(h / 2 * (p + q) + np.sqrt(3) * h**2 / 12 * bracket(p, q))
    k1 = b(t, y)
    k2 = dexpinv(h / 2 * k1, b(t + h / 2, y @ exp(h / 2 * k1)))
    k3 = dexpinv(h / 2 * k2, b(t + h / 2, y @ exp(h / 2 * k2)))
    k4 = dexpinv(h * k3, b(t + h, y @ exp(h * k3)))
    return y @ exp(h / 6 * (k1 + 2 * k2 + 2 * k3 + k4))


@pytest.mark.parametrize("name", NAMES)
def test_steps_are_their_equations(name):
    turning, y, linear = field(name), rotation(), solvers[name].linear
    free = turning.function.free.detach().numpy()
    result = solve(turning, y, [0.3, 0.9], method=name, options={"step_size": 0.2}).final
    expected = y.numpy()
    for k in range(3):
        expected = numpy_step(
            name, lambda t, w: numpy_generator(free, t, w, linear), 0.3 + 0.2 * k, 0.2, expected
        )
    np.testing.assert_allclose(result.detach().numpy(), expected, atol=1e-13)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_those_of_the_steps(name):
    turning, start = field(name), torch.randn(2, 3, dtype=D)
    result = []
    for gradient in ["backprop", "checkpoint"] + ["reversible"] * solvers[name].reversible:
        y = start.clone().requires_grad_()
        end = solve(turning, y, [0.0, 1.0], method=name, options=STEP, gradient=gradient).final
        result.append(torch.autograd.grad(end.sin().sum(), [y, turning.function.free]))
    for other in result[1:]:
        for a, b in zip(result[0], other, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)
    with pytest.raises(OptionError, match=f"adjoint.*got '{name}'"):
        solve(turning, start, [0.0, 1.0], method=name, options=STEP, gradient="adjoint")


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_those_of_differences(name):
    def end(y, free):
        def skew(t, y=None):
            return torch.cos(t) * (free - free.mT)

        kind = LinearRotating if solvers[name].linear else Rotating
        how = {"method": name, "options": {"step_size": 0.5}, "gradient": "backprop"}
        return solve(kind(skew), y, [0.0, 1.0], **how).final

    start = torch.randn(2, 3, dtype=D, requires_grad=True)
    free = torch.randn(3, 3, dtype=D, requires_grad=True)
    assert torch.autograd.gradcheck(end, (start, free))
    assert torch.autograd.gradgradcheck(end, (start, free))


@pytest.mark.parametrize("name", [name for name in NAMES if not solvers[name].linear])
def test_any_field_on_rotations_is_read_as_a_turn(name):
    turning, w = field(name), rotation()
    plain = solve(lambda t, y: turning(t, y), w, [0.0, 1.0], method=name, options=STEP).final
    own = solve(turning, w, [0.0, 1.0], method=name, options=STEP).final
    torch.testing.assert_close(plain, own, rtol=0, atol=1e-12)


def test_every_vector_may_have_a_rotation_of_its_own():
    y = torch.randn(4, 3, dtype=D)

    def own(t, y):
        free = y.unsqueeze(-1) * torch.arange(3.0, dtype=D)
        return free - free.mT

    together = solve(Rotating(own), y, [0.0, 1.0], method="rkmk4", options=STEP).final
    apart = [solve(Rotating(own), row, [0.0, 1.0], method="rkmk4", options=STEP).final for row in y]
    torch.testing.assert_close(together, torch.stack(apart))
    fine = solve(Rotating(own), y, [0.0, 1.0], rtol=1e-10, atol=1e-11).final
    torch.testing.assert_close(together, fine, rtol=1e-2, atol=1e-3)
    torch.testing.assert_close(together.norm(dim=1), y.norm(dim=1), rtol=1e-13, atol=0)


def test_what_does_not_turn_is_refused():
    def how(name="rkmk4"):
        return {"method": name, "options": STEP}

    w, y, times = rotation(), torch.randn(4, 3, dtype=D), [0.0, 1.0]
    with pytest.raises(OptionError, match="'rkmk4' needs a field that rotates"):
        solve(lambda t, y: -y, y, times, **how())
    with pytest.raises(OptionError, match="one that stretches"):
        solve(lambda t, y: -y, w, times, **how())
    with pytest.raises(OptionError, match="one that stretches"):
        solve(Rotating(lambda t, y: torch.eye(3, dtype=D)), y, times, **how())
    with pytest.raises(OptionError, match="orthogonal matrices"):
        solve(lambda t, y: y @ (w - w.mT), 1.1 * w, times, **how())
    with pytest.raises(ShapeError, match=r"shape \(…, 3, 3\)"):
        solve(Rotating(lambda t, y: torch.zeros(2, 2, dtype=D)), y, times, **how())
    with pytest.raises(ShapeError, match="got a tuple"):
        solve(lambda t, pair: pair, (w, w), times, **how())
    with pytest.raises(ShapeError, match="complex"):
        solve(lambda t, y: 1j * y, w + 0j, times, **how())
    with pytest.raises(OptionError, match="'magnus4' needs a LinearRotating"):
        solve(Rotating(lambda t, y: w - w.mT), y, times, **how("magnus4"))
    with pytest.raises(OptionError, match="step_size"):
        undamped.NeuralODE(field("rkmk4"), method="rkmk4")


def test_single_and_half_precision_and_copies():
    for dtype, limit in ((torch.float32, 1e-5), (torch.bfloat16, 0.05)):
        turning, w = field("rkmk4", dtype=dtype), rotation(dtype=dtype)
        end = solve(turning, w, [0.0, 1.0], method="rkmk4", options=STEP).final
        assert end.dtype == dtype and defect(end.detach()) < limit
    turning, w = field("magnus4"), rotation()
    with torch.no_grad():
        end = solve(turning, w, [0.0, 1.0], method="magnus4", options=STEP).final
        for twin in (copy.deepcopy(turning), pickle.loads(pickle.dumps(turning))):
            twin.function.free.mul_(1.0)
            repeated = solve(twin, w, [0.0, 1.0], method="magnus4", options=STEP).final
            assert torch.equal(repeated, end)
            twin.function.free.mul_(2.0)
            assert not torch.equal(
                solve(twin, w, [0.0, 1.0], method="magnus4", options=STEP).final, end
            )
