"""CHNN against its equation in NumPy; rods of a true system; rods that make no sense."""

import json

import numpy as np
import pytest
import torch

import undamped
from models.test_motion_oracles import compare, made, perceptron, slope, states
from undamped._base.contract import StateSpace, TaskShape
from undamped._base.errors import NonFiniteError, OptionError
from undamped.analysis import measure
from undamped.lab.training import fit
from undamped.models.physics.state_model import shape_of


def test_chnn_is_the_projected_hamiltonian_field():
    """The paper's projector, with its 2m × 2m matrix, in momenta."""
    model = made(undamped.models.CHNN(undamped.models.CHNN.example_shape(), hidden_size=5))
    field, size = model.field, 4
    masses = np.repeat(np.exp(field.log_masses.detach().numpy()), 2)

    def energy(z):
        return (z[size:] ** 2 / masses).sum() / 2 + perceptron(field.of_positions, z[:size])[0]

    def lengths(z, k):
        """½|r|², then its rate, of both rods."""
        x, v = z[:size].reshape(2, 2), (z[size:] / masses).reshape(2, 2)
        rod, rate = (x[0], v[0]) if k % 2 == 0 else (x[1] - x[0], v[1] - v[0])
        return rod @ rod / 2 if k < 2 else rod @ rate

    one = np.eye(size)
    form = np.block([[0 * one, one], [-one, 0 * one]])
    given, _ = states(model)
    expected = []
    for both in given.numpy():
        z = np.concatenate((both[:size], masses * both[size:]))
        free = form @ slope(energy, z)
        c = np.array([slope(lambda z, k=k: lengths(z, k), z) for k in range(4)]).T
        tied = free - form @ c @ np.linalg.solve(c.T @ form @ c, c.T @ free)
        expected.append(np.concatenate((tied[:size], tied[size:] / masses)))
    compare(model.derivative(given), np.array(expected))
    compare(model.constraints(given)[:, 3], [lengths(np.concatenate((z[:4], masses * z[4:])), 3)
                                             for z in given.numpy()])  # fmt: skip
    assert torch.autograd.gradcheck(model.derivative, given.requires_grad_())


def test_with_gravity_it_is_the_pendulum_of_links():
    system = undamped.lab.tasks.build("links", links=3, coordinates="plane").system
    model = undamped.models.CHNN(system.space).double()
    down = torch.tensor([0.0, 1.0]).double().repeat(3)
    model.field.of_positions.linearise = lambda x: type(
        "Straight", (), {"gradient": lambda self: down.expand_as(x)}
    )()
    given = system.starts(4, torch.Generator().manual_seed(0))
    torch.testing.assert_close(model(given), system.derivative(given))


def test_rods_that_make_no_sense_are_refused():
    free = shape_of(StateSpace.moving(4))
    with pytest.raises(OptionError, match=r"CHNN needs rods"):
        undamped.models.CHNN(free)
    with pytest.raises(OptionError, match=r"numbers from 0 to 2, such as 0-1, got 1-3"):
        undamped.models.CHNN(free, rods=("0-1", "1-3"))
    with pytest.raises(OptionError, match=r"2 numbers each, and no angles.*coordinates=plane"):
        undamped.models.CHNN(undamped.lab.tasks.build("links").task_shape, rods=("0-1",))
    twice = undamped.models.CHNN(free, rods=("0-1", "1-2", "0-2")).double()
    flat = torch.tensor([[1.0, 0.0, 2.0, 0.0] + [0.0] * 4]).double()
    with pytest.raises(NonFiniteError, match=r"follows from the others at sample 0 of 1"):
        twice(flat)


@pytest.mark.slow
def test_links_teach_it_by_name_alone(tmp_path):
    run = fit(
        "chnn", "links", model_options={"hidden_size": 8, "tolerance": 1e-4},
        task_options={"trajectories": 16, "window": 2, "horizon": 2.0},
        train={"steps": 12, "batch_size": 16, "validate_every": 6, "learning_rate": 3e-2},
        out=tmp_path, progress=False,
    )  # fmt: skip
    assert run.result["test"]["mse"] < run.result["chance"]["mse"]
    assert run.settings["task"]["options"]["coordinates"] == "plane"
    for result in measure(run.model()):
        assert result.holds, result.to_dict()
    shape = undamped.lab.tasks.build("links", coordinates="plane").task_shape
    assert TaskShape.from_dict(json.loads(json.dumps(shape.to_dict()))) == shape
