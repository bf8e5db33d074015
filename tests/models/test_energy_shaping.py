"""Energy shaping: the controller of a known energy, and what it refuses."""

import math

import pytest
import torch

import undamped
from undamped._base.contract import StateSpace
from undamped._base.errors import OptionError
from undamped.lab.tasks.physics.pendulum import EmbeddedPendulumField, PendulumField
from undamped.models.physics.energy_shaping import EnergyShaping, control_loop

EMBEDDED = StateSpace(("c", "s", "w"), ("cosine", "sine", "velocity"), ("u",))
KINETIC, GRAVITY = 1.5, 5.0


@pytest.fixture
def pendulum():
    """A SymODEN that knows the pendulum: its perceptrons are replaced by the truth, times 0.4."""
    torch.manual_seed(0)
    model = undamped.models.SymODEN(EMBEDDED, hidden_size=4).double()
    parts = model.field.parts

    class At:
        def __init__(self, x):
            self.x = x

        def gradient(self):
            slope = torch.zeros_like(self.x)
            slope[..., 0] = -0.4 * GRAVITY
            return slope

    parts.potential.linearise = At
    parts.ports.inputs.forward = lambda x: torch.full((*x.shape[:-1], 1, 1), 0.4).to(x)
    return model


def test_the_inputs_are_those_of_the_formula(pendulum):
    angle, w = torch.tensor([0.3, 2.0]).double(), torch.tensor([0.5, -1.0]).double()
    states = torch.stack((angle.cos(), angle.sin(), w), 1)
    bowl = EnergyShaping(pendulum, [math.pi], position_gain=4.0, damping_gain=2.0)
    # V and g are known up to a factor of 0.4, and it does not matter.
    expected = GRAVITY * angle.sin() - 4.0 * (angle - math.pi) - 2.0 * w
    torch.testing.assert_close(bowl(0.0, states)[:, 0], expected)
    upside_down = EnergyShaping(pendulum, [math.pi], damping_gain=2.0, potential="inverted")
    expected = 2 * GRAVITY * angle.sin() - 2.0 * w
    torch.testing.assert_close(upside_down(0.0, states)[:, 0], expected)


@pytest.mark.parametrize("potential", ["quadratic", "inverted"])
def test_a_pendulum_is_brought_upright_and_held(pendulum, potential):
    control = EnergyShaping(pendulum, [math.pi], damping_gain=3.0, potential=potential)
    start = torch.tensor([[math.cos(0.1), math.sin(0.1), 0.0]]).double()
    states, inputs = control_loop(
        EmbeddedPendulumField(KINETIC, GRAVITY), control, start, 0.05, 120
    )
    assert states.shape == (121, 1, 3) and inputs.shape == (120, 1, 1)
    assert bool((states[-20:, 0, 0] < math.cos(math.pi - 0.05)).all())


def test_angles_go_the_shorter_way_round(pendulum):
    control = EnergyShaping(pendulum, [math.pi], damping_gain=0.0)
    for angle in (math.pi - 0.1, -math.pi + 0.1):
        state = torch.tensor([[math.cos(angle), math.sin(angle), 0.0]]).double()
        away = -0.1 if angle > 0 else 0.1
        expected = GRAVITY * math.sin(angle) - 5.0 * away
        assert control(0.0, state).item() == pytest.approx(expected)


def test_momenta_work_too():
    torch.manual_seed(0)
    space = StateSpace(("q", "p"), ("angle", "momentum"), ("u",))
    model = undamped.models.SymODEN(space, hidden_size=4).double()
    control = EnergyShaping(model, [1.0])
    states, _ = control_loop(
        PendulumField(torque=True), control, torch.tensor([[0.5, 0.0]]).double(), 0.1, 3
    )
    assert bool(states.isfinite().all())


def test_what_cannot_be_shaped_is_refused(pendulum):
    hybrid = StateSpace(
        ("x", "c", "s", "v", "w"), ("position", "cosine", "sine", "velocity", "velocity"), ("u",)
    )
    with pytest.raises(OptionError, match=r"one input for each of 2 degrees of freedom, got 1"):
        EnergyShaping(undamped.models.SymODEN(hybrid), [0.0, math.pi])
    with pytest.raises(OptionError, match="got 0"):
        EnergyShaping(undamped.models.HNN(1), [0.0])
    with pytest.raises(OptionError, match="with a learned energy"):
        EnergyShaping(undamped.models.PlainODE(1), [0.0])
    with pytest.raises(OptionError, match="must have 1 numbers, one for every position, got 2"):
        EnergyShaping(pendulum, [0.0, 1.0])
    pendulum.field.parts.ports.inputs.forward = lambda x: x[..., :1, None] * 1.0
    two = StateSpace(("a", "b", "v", "w"), ("position",) * 2 + ("velocity",) * 2, ("u", "r"))
    flat = undamped.models.SymODEN(two).double()
    flat.field.parts.ports.inputs.forward = lambda x: torch.ones(*x.shape[:-1], 2, 2).to(x)
    with pytest.raises(OptionError, match="inputs that act in every direction"):
        EnergyShaping(flat, [0.0, 0.0])


@pytest.mark.parametrize("name", ["DeLaN", "LNN"])
def test_lagrangians_are_shaped_by_their_slope_at_rest(name):
    kinds = ("angle", "position", "velocity", "velocity")
    torch.manual_seed(0)
    model = getattr(undamped.models, name)(
        StateSpace(("a", "x", "w", "v"), kinds, ("t", "f"))
    ).double()
    control = EnergyShaping(model, [1.0, 2.0], position_gain=3.0, damping_gain=0.5)
    states = torch.randn(4, 4).double()
    q, v = states[:, :2].clone().requires_grad_(), states[:, 2:]
    (slope,) = torch.autograd.grad(-model.field.lagrangian(q, torch.zeros_like(v)).sum(), q)
    away = (q - torch.tensor([1.0, 2.0])).detach()
    away[:, 0] = torch.atan2(away[:, 0].sin(), away[:, 0].cos())
    torch.testing.assert_close(control(0.0, states), slope - 3.0 * away - 0.5 * v)


@pytest.mark.parametrize("kind", [undamped.models.DeLaN, undamped.models.LNN])
def test_an_arm_with_two_motors_is_brought_upright_by_a_lagrangian(kind):
    """A model that knows the arm, whatever it was built as: the field is the truth."""
    system = undamped.lab.tasks.build("acrobot", shoulder=True).system
    model = kind(system.space, hidden_size=4).double()
    model.flow.field = system.field
    model.register_parameter("unused", torch.nn.Parameter(torch.zeros(1).double()))
    control = EnergyShaping(model, [math.pi, 0.0], position_gain=30.0, damping_gain=12.0)
    states, _ = control_loop(system.field, control, torch.zeros(1, 4).double(), 0.05, 120)
    end = states[-20:, 0]
    away = torch.atan2((end[:, 0] - math.pi).sin(), (end[:, 0] - math.pi).cos())
    assert away.abs().max() < 0.05 and end[:, 1:].abs().max() < 0.1


def test_the_inputs_of_a_lagrangian_are_those_of_the_formula():
    torch.manual_seed(0)
    for kind in (undamped.models.DeLaN, undamped.models.LNN):
        model = kind(StateSpace.moving(2, inputs=2), hidden_size=4).double()
        states = torch.randn(3, 4).double()
        q, v = states.chunk(2, dim=1)
        still = torch.zeros_like(v)
        leaf = q.clone().requires_grad_()
        (slope,) = torch.autograd.grad(-model.field.lagrangian(leaf, still).sum(), leaf)
        control = EnergyShaping(model, [0.5, -0.5], position_gain=4.0, damping_gain=2.0)
        expected = slope - 4.0 * (q - torch.tensor([0.5, -0.5])) - 2.0 * v
        torch.testing.assert_close(control(0.0, states), expected)


@pytest.mark.parametrize("kind", [undamped.models.DeLaN, undamped.models.LNN])
def test_an_acrobot_cannot_be_shaped(kind):
    space = undamped.lab.tasks.build("acrobot").system.space
    with pytest.raises(OptionError, match=r"one input for each of 2 degrees of freedom, got 1"):
        EnergyShaping(kind(space), [math.pi, 0.0])
