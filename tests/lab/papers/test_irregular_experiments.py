"""Tasks of irregular time: what guesses have there, which steps are dropped, and an experiment."""

import json
from importlib.resources import files

import numpy as np
import pytest
import torch
from canonical_files import everything, ucr

from undamped.lab import tasks
from undamped.lab.papers import rotating_digits
from undamped.lab.papers.irregular_series import run
from undamped.lab.tasks.irregular.curves import RotatingDigits, falls, rotate
from undamped.lab.tasks.ucr import archive_set, with_steps_dropped


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("UNDAMPED_DATA", str(tmp_path))
    ucr(tmp_path / "ucr" / "Waves", unequal=True)
    return tmp_path


def test_steps_are_dropped_and_what_is_left_keeps_its_time(data):
    full = archive_set("Waves", str(data / "ucr" / "Waves"))
    result = with_steps_dropped(full, 0.5)
    for one, left, times in zip(full.series, result.series, result.times, strict=True):
        assert len(left) == max(2, round(0.5 * len(one)))
        assert (np.diff(times) > 0).all()
        np.testing.assert_array_equal(left, one[times.astype(int)])
    repeated = with_steps_dropped(full, 0.5)
    assert all(np.array_equal(a, b) for a, b in zip(result.times, repeated.times, strict=True))
    assert len({tuple(times) for times in result.times}) > 1
    task = tasks.build("ucr", file=str(data / "ucr" / "Waves"), dropped=0.3)
    assert "times" in task.needs
    assert any("30% of the steps" in note for note in task.notes())


def test_the_experiment_trains_all_and_has_a_table(data, monkeypatch):
    monkeypatch.setattr("undamped.lab.data.published.cache.folder", lambda name: data / name)
    monkeypatch.setattr("undamped.lab.tasks.ucr.folder", lambda name: data / name)
    result = run(
        sets=("Waves",),
        dropped=(0.5,),
        networks=("decay-rnn", "gru"),
        steps=2,
        hidden_size=4,
        out=str(data / "runs"),
    )
    assert list(result.records[0].accuracy) == ["decay-rnn", "gru"]
    assert "Waves, 50%" in result.markdown()
    assert json.loads(json.dumps(result.to_dict()))["settings"]["steps"] == 2
    assert result.figures()["irregular-series"].axes


def test_guesses_have_what_they_had_elsewhere():
    assert tasks.build("periodic").chance.metric == pytest.approx(0.106, rel=0.1)
    assert tasks.build("periodic", query="second-half").chance.metric == pytest.approx(
        0.53, rel=0.1
    )
    assert tasks.build("double-ou").chance.metric == pytest.approx(0.0176, rel=0.15)


def test_digits_turn():
    pictures = torch.rand(2, 28, 28)
    still = rotate(pictures, torch.zeros(2))
    torch.testing.assert_close(still, torch.nn.functional.avg_pool2d(pictures, 2))
    quarter = rotate(pictures, torch.full((2,), torch.pi / 2))
    torch.testing.assert_close(quarter, torch.rot90(still, 1, (1, 2)), rtol=0, atol=1e-4)


def test_hoppers_fall_as_mujoco_says():
    mujoco = pytest.importorskip("mujoco")
    result = falls(3, 40, np.random.default_rng(1))
    xml = files("gymnasium") / "envs" / "mujoco" / "assets" / "hopper.xml"
    model = mujoco.MjModel.from_xml_path(str(xml))
    model.opt.timestep, model.opt.integrator = 0.0025, 0
    data = mujoco.MjData(model)
    data.qpos, data.qvel = result[2, 0, :6], result[2, 0, 6:]
    for point in result[2]:
        np.testing.assert_allclose(point, np.concatenate([data.qpos, data.qvel]), atol=1e-9)
        mujoco.mj_step(model, data)
        mujoco.mj_step(model, data)
    joints = result[:, 0, 3:6]
    assert (joints >= model.jnt_range[3:, 0]).all() and (joints <= model.jnt_range[3:, 1]).all()
    task = tasks.build("hopper", series=40, points=20, observed=4)
    _, values = task.data("train")
    torch.testing.assert_close(values.std((0, 1)), torch.ones(12))
    assert task.span == 0.1 and task.batch("test", 0, 3).targets.shape == (20, 3, 12)


def test_latent_models_say_how_digits_turn(tmp_path, monkeypatch):
    everything(tmp_path)
    monkeypatch.setenv("UNDAMPED_DATA", str(tmp_path))
    monkeypatch.setattr(RotatingDigits, "held_out", {"valid": 2, "test": 3})
    options = {"networks": ("ode2vae", "latent-ode"), "steps": 2, "out": str(tmp_path / "runs")}
    result = rotating_digits.run(**options)
    assert [prediction.frames.shape for prediction in result.records] == [(16, 14, 14)] * 2
    assert "| ode2vae | " in result.markdown() and "lines between" in result.markdown()
    (figure,) = result.figures().values()
    assert len(figure.axes) == 4 * 16
    repeated = rotating_digits.run(**options)
    assert json.loads(json.dumps(repeated.to_dict())) == json.loads(json.dumps(result.to_dict()))
    later = rotating_digits.run(**options | {"networks": ("ode2vae",), "query": "second-half"})
    assert later.records[0].frames.shape == (8, 14, 14) and later.figures()
    task = RotatingDigits()
    frames = rotating_digits.digit_frames(task.batch("test", 0, 3), 0)
    observed = ~np.isnan(frames["observed"]).all((1, 2))
    assert observed.sum() == 8
    np.testing.assert_array_equal(frames["observed"][observed], frames["true"][observed])
    task = RotatingDigits(query="second-half")
    assert set(rotating_digits.digit_frames(task.batch("test", 0, 3), 0)) == {"true"}
