"""Simulated systems: true gradients, energies that stay, and honest sets of data."""

import pytest
import torch

from undamped._base.contract import StateSpace
from undamped._base.errors import DataError, OptionError
from undamped._base.registry import tasks
from undamped.lab.tasks.physics.motion_task import MotionTask
from undamped.lab.tasks.physics.scores import relative_error, valid_time
from undamped.models.physics.fields.hamiltonian import by_autograd
from undamped.models.physics.fields.lagrangian import LagrangianField

SYSTEMS = [name for name in tasks if issubclass(tasks[name], MotionTask)]


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_system_moves_as_its_energy_says(name):
    task = tasks.build(name, trajectories=3, readings=4, span=0.5)
    system, field = task.system, task.system.field
    starts, states = task.data("train")
    assert starts.shape == (3, task.input_size) and states.shape == (4, 3, task.output_size)
    free = starts.clone()
    free[:, system.space.size :] = 0
    energy = system.energy(system.simulate(free, task.times))
    torch.testing.assert_close(energy, energy[:1].expand_as(energy), rtol=1e-9, atol=1e-10)
    z, u = starts[:, : system.space.size], starts[:, system.space.size :]
    rates = system.derivative(starts)
    if hasattr(field, "hamiltonian"):
        slopes = by_autograd(lambda q, p: field.hamiltonian(0.0, q, p), *z.chunk(2, dim=1))
        torch.testing.assert_close(rates, torch.cat((slopes[1], -slopes[0]), dim=1))
    if isinstance(field, LagrangianField):
        force = 0.0 if field.ports is None else field.ports.input_force(z.chunk(2, dim=1)[0], u)
        acceleration = LagrangianField.acceleration(field, *z.chunk(2, dim=1), force)
        torch.testing.assert_close(rates.chunk(2, dim=1)[1], acceleration)
    times = torch.tensor([0.0, 1e-4]).double()
    states_after = system.simulate(starts, times)
    torch.testing.assert_close(
        (states_after[1] - states_after[0]) / 1e-4, rates, rtol=1e-2, atol=1e-2
    )
    rebuilt = tasks.build(name, trajectories=3, readings=4, span=0.5)
    assert torch.equal(rebuilt.batch("train", 0, 5).inputs, task.batch("train", 0, 5).inputs)
    assert not torch.equal(task.data("test")[0][:1], starts[:1])


def test_a_double_pendulum_starts_at_rest_or_at_any_speed():
    how = {"trajectories": 60, "readings": 2, "span": 0.01, "swing": 3.0}
    still, moving = (
        tasks.build("double-pendulum", partners="velocities", speed=speed, **how).data("train")[0]
        for speed in (0.0, 10.0)
    )
    assert not still[:, 2:].any() and torch.equal(still[:, :2], moving[:, :2])
    assert 9 < moving[:, 2:].abs().max() <= 10 and moving[:, 2:].std().item() > 4
    momenta = tasks.build("double-pendulum", speed=10.0, **how).data("train")[0]
    (q1, q2), (v1, v2) = moving[:, :2].T, moving[:, 2:].T
    cosine = (q1 - q2).cos()
    expected = torch.stack((2 * v1 + cosine * v2, cosine * v1 + v2), dim=1)
    torch.testing.assert_close(momenta[:, 2:], expected)


def test_windows_are_what_follows_their_start():
    task = tasks.build("henon-heiles", trajectories=2, readings=6, form="trajectory", window=2)
    assert task.sequences("train") == 2 * 4
    batch = task.take("train", torch.arange(8), None)
    states = task.data("train")[1].float()
    assert batch.inputs.shape == (8, 4) and batch.targets.shape == (2, 8, 4)
    torch.testing.assert_close(batch.inputs[5], states[1, 1])
    torch.testing.assert_close(batch.targets[:, 5], states[2:4, 1])
    torch.testing.assert_close(batch.target_times[:, 0], torch.tensor([1.0, 2.0]).double())


def test_noise_is_on_readings_and_not_on_rates_or_tests():
    clean, noisy = (tasks.build("spring", trajectories=40, noise=n) for n in (0.0, 0.1))
    a, b = (task.take("train", torch.arange(400), None) for task in (clean, noisy))
    assert torch.equal(a.targets, b.targets)
    assert (b.inputs - a.inputs).std().item() == pytest.approx(0.1, rel=0.1)
    rollouts = [list(task.test_tasks().values())[1] for task in (clean, noisy)]
    assert torch.equal(*(part.batch("test", 0, 8).inputs for part in rollouts))


def test_the_spring_is_a_circle():
    part = tasks.build("spring", trajectories=8).test_tasks()["to t = 12"]
    batch = part.batch("test", 0, 8)
    angle = 2 * batch.target_times.float()
    q, p = batch.inputs.unbind(-1)
    expected = torch.stack(
        (q * angle.cos() + p * angle.sin(), p * angle.cos() - q * angle.sin()), -1
    )
    torch.testing.assert_close(batch.targets, expected, rtol=1e-4, atol=1e-5)


def test_scores_of_trajectories():
    space = StateSpace(("a", "w"), ("angle", "momentum"))
    true = torch.tensor([[0.1, 1.0]])
    rotated = true + torch.tensor([[2 * torch.pi, 0.0]])
    assert relative_error(rotated, true, space).item() < 1e-6
    assert relative_error(rotated, true, None).item() > 0.5
    assert relative_error(torch.full((1, 2), torch.nan), true, space).item() == 1
    errors = torch.tensor([[0.01, 0.2], [0.02, 0.01], [0.3, 0.01]])
    times = torch.tensor([1.0, 2.0, 3.0]).unsqueeze(1).expand(3, 2)
    assert valid_time(errors, times).tolist() == [2.0, 0.0]


def test_windows_longer_than_the_data_are_refused():
    with pytest.raises(OptionError, match=r"task.window must be less than the 30 readings"):
        tasks.build("spring", form="trajectory", window=30)
    with pytest.raises(OptionError, match=r"task.strengths must be at least two numbers"):
        tasks.build("vortices", strengths=(1.0,))


def test_bodies_that_meet_are_said():
    system = tasks.build("two-body", trajectories=1).system
    falling = torch.tensor([[1.0, 0.0, -1.0, 0.0, 0.0, 0.0, 0.0, 0.0]]).double()
    with pytest.raises(DataError, match=r"TwoBodySystem cannot be simulated up to t = 10.*met"):
        system.simulate(falling, torch.tensor([0.0, 10.0]).double())
