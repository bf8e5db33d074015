"""HGN: pictures by positions alone, a motion that is SRNN's, and films of a pendulum."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.distributions import Normal, kl_divergence

import undamped
from models.test_motion_oracles import leapfrog, perceptron, slope
from undamped._base.contract import Batch
from undamped._base.errors import OptionError, ShapeError
from undamped.analysis import measure
from undamped.lab.instruments.films import films
from undamped.lab.tasks.physics.pendulum_pictures import angle_of, draw
from undamped.lab.training import fit


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    made = undamped.models.HGN(
        undamped.models.HGN.example_shape(), hidden_size=8, channels=2, step_size=0.1
    )
    return made.double().eval()


def test_a_film_is_made_of_positions_that_leapfrog(model):
    films = torch.rand(5, 3, 1, 16, 16).double()
    field = model.motion.field

    def velocity(p):
        return slope(lambda x: perceptron(field.of_momenta.net, x)[0], p)

    def force(q):
        return -slope(lambda x: perceptron(field.of_positions.net, x)[0], q)

    with torch.no_grad():
        mean, _ = model.encode(films)
        result = model(Batch(films, target_times=torch.tensor([[0.0], [0.2]]).expand(2, 3)))
        for sample in range(3):
            q, p = mean[sample, :2].numpy(), mean[sample, 2:].numpy()
            torch.testing.assert_close(
                result[0, sample], model.decode(mean[sample : sample + 1, :2])[0]
            )
            for _ in range(2):
                q, p = leapfrog(velocity, force, q, p, 0.1)
            expected = model.decode(torch.from_numpy(q).unsqueeze(0))[0]
            torch.testing.assert_close(result[1, sample], expected)


def test_training_draws_states_and_pays_for_what_it_knows(model):
    films = torch.rand(5, 3, 1, 16, 16).double()
    mean, log_spread = model.encode(films)
    model.train()
    try:
        one, two = (model.film(films, [0.0, 0.1]) for _ in range(2))
        assert not torch.equal(one, two)
        apart = kl_divergence(Normal(mean, log_spread.exp()), Normal(0.0, 1.0))
        torch.testing.assert_close(model.penalty(), 1e-5 * apart.sum(-1).mean())
    finally:
        model.eval()
    assert torch.equal(model.film(films, [0.0, 0.1]), model.film(films, [0.0, 0.1]))


def test_the_motion_behind_pictures_keeps_what_srnn_keeps(model):
    kinds = [m.promise.kind.value for m in measure(model)]
    assert kinds == ["kept-energy", "divergence-free", "symplectic"]
    assert all(m.holds for m in measure(model))
    plain = undamped.models.HGN(undamped.models.HGN.example_shape(), method="rk4", step_size=0.1)
    assert [p.kind.value for p in plain.promises] == ["kept-energy", "divergence-free"]


def test_pictures_show_the_angle():
    angle = torch.linspace(-3, 3, 13).double()
    pictures = draw(angle, 16)
    assert pictures.shape == (13, 1, 16, 16) and pictures.min() >= 0 and pictures.max() <= 1
    torch.testing.assert_close(angle_of(pictures.double()), angle, atol=0.03, rtol=0)
    hanging = draw(torch.zeros(1).double(), 16)[0, 0]
    row, column = np.unravel_index(hanging.argmax().item(), (16, 16))
    assert row > 10 and column in (7, 8)


@pytest.mark.slow
def test_a_model_of_films_learns_and_is_tested_for_longer(tmp_path):
    run = fit(
        "hgn", "pendulum-pictures", model_options={"hidden_size": 16, "channels": 4},
        task_options={"films": 16, "length": 6, "horizon": 2.0},
        train={"steps": 40, "batch_size": 8, "validate_every": 20, "learning_rate": 1e-2},
        out=tmp_path, progress=False,
    )  # fmt: skip
    assert set(run.result["to t = 1.375"]) == {"loss", "mse", "angle_error", "valid_time"}
    assert run.metrics()[-1]["valid_loss"] < run.metrics()[0]["train_loss"]
    result = films(run.model(), run.task(), film=2)
    assert result.true.shape == result.predicted.shape == (12, 16, 16) and result.num_observed == 5
    np.testing.assert_allclose(result.errors.mean(), run.result["to t = 1.375"]["mse"], rtol=1e-4)
    result.save_figure(tmp_path / "film.png")
    assert result.rows[0][0] == "0" and "frames from time 0 to 1.375" in result.layout.x


def test_films_that_do_not_fit_are_refused(model):
    with pytest.raises(ShapeError, match=r"Films of HGN must be \(5, batch, 1, 16, 16\)"):
        model.film(torch.rand(4, 3, 1, 16, 16).double(), [0.0])
    with pytest.raises(OptionError, match=r"needs batch.target_times"):
        model(torch.rand(5, 3, 1, 16, 16).double())
    with pytest.raises(ShapeError, match="sides of a multiple of 4"):
        undamped.models.HGN(replace(undamped.models.HGN.example_shape(), picture_shape=(1, 18, 16)))
    with pytest.raises(OptionError, match=r"task.size must be a multiple of 4, got 18"):
        undamped.lab.tasks.build("pendulum-pictures", size=18)
    with pytest.raises(OptionError, match=r"task.length must be at least frames \(5\), got 3"):
        undamped.lab.tasks.build("pendulum-pictures", length=3)
