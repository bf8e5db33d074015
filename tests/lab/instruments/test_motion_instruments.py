"""Instruments of moving systems against closed forms; animations as files."""

import json
import math

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from typer.testing import CliRunner

import undamped
from undamped._base.errors import OptionError
from undamped._base.registry import instruments
from undamped.analysis.core.probe import InapplicableError, Probe
from undamped.lab import cli
from undamped.lab.instruments.motion import follow
from undamped.lab.instruments.motion_energy import motion_energy, motion_potential
from undamped.lab.instruments.motion_paths import motion_paths, motion_portrait
from undamped.lab.instruments.motion_volume import motion_volume
from undamped.lab.report import animate
from undamped.lab.tasks import build
from undamped.lab.training import fit
from undamped.models.physics.fields import LagrangianField

OF_MOTION = [name for name in instruments if name.startswith("motion_")]


def knowing(task, model, **options):
    """Return a model whose field is the truth."""
    made = getattr(undamped.models, model)(task.task_shape, tolerance=1e-7, **options).double()
    made.flow.field = task.system.field.double()
    made.flow.field.register_parameter("unused", nn.Parameter(torch.zeros(1).double()))
    return made


@pytest.fixture(scope="module")
def pendulum():
    task = build("pendulum", trajectories=8, readings=12, horizon=1.0)
    return knowing(task, "HNN"), task


def test_the_truth_is_right_by_every_instrument(pendulum):
    model, task = pendulum
    portrait = motion_portrait(model, task)
    assert portrait.errors.max() < 1e-4 and portrait.valid == pytest.approx(3.0)
    assert portrait.coordinates == ("q", "p") and "below 10 % until time 3" in portrait.sentence
    energy = motion_energy(model, task)
    assert energy.true_energy[-1] < 1e-5 and energy.model_energy[-1] < 1e-5 and not energy.failed
    potential = motion_potential(model, task)
    assert not potential.fitted and potential.worst < 1e-12
    assert np.all(np.diff(potential.position) >= 0)
    volume = motion_volume(model, task)
    assert volume.difference.max() < 1e-4 and np.abs(volume.true).max() < 1e-4
    picture = motion_paths(model, task, start=2)
    assert picture.distance.max() < 1e-3
    radius = np.linalg.norm(picture.true, axis=-1)
    np.testing.assert_allclose(radius, 1.0)


class Damped(nn.Module):
    """A spring with friction: ln of the volume falls by γ t, the energy is known."""

    separable = False

    def __init__(self, friction):
        super().__init__()
        self.friction = friction
        self.unused = nn.Parameter(torch.zeros(1).double())

    def forward(self, t, state, u=None):
        q, p = state.unbind(-1)
        return torch.stack((2 * p, -2 * q - self.friction * p), -1)


@pytest.mark.slow
def test_friction_is_seen_in_volume_and_energy():
    task = build("spring", trajectories=8, readings=12, horizon=1.0)
    model = undamped.models.PlainODE(task.task_shape, tolerance=1e-9).double()
    model.flow.field = Damped(0.3)
    volume = motion_volume(model, task)
    np.testing.assert_allclose(volume.learned, -0.3 * volume.times[:, None] + 0 * volume.learned,
                               atol=1e-6)  # fmt: skip
    assert "differs from the true one by up to 146 %" in volume.sentence
    energy = motion_energy(model, task)
    motion = follow(model, task)
    expected = (motion.learned.square().sum(-1) - motion.true.square().sum(-1)).abs().mean(1)
    np.testing.assert_allclose(energy.true_energy, expected.numpy(), atol=1e-6)
    assert energy.model_energy is None and energy.rows[0][0] == "true energy"
    with pytest.raises(OptionError, match="learns no energy"):
        motion_potential(model, task)


class Scaled(LagrangianField):
    """A true Lagrangian times a factor: the same motion."""

    def __init__(self, field, factor):
        super().__init__(field.dof)
        self.field, self.factor = field, factor
        self.unused = nn.Parameter(torch.zeros(1).double())

    def lagrangian(self, q, v):
        return self.factor * self.field.lagrangian(q, v) + 7.0


def test_a_factor_that_no_motion_tells_is_taken_out():
    task = build("links", trajectories=8, readings=4, horizon=1.0)
    model = undamped.models.LNN(task.task_shape, hidden_size=4).double()
    model.flow.field = Scaled(task.system.field, 2.5)
    potential = motion_potential(model, task)
    assert potential.fitted and potential.factor == pytest.approx(2.5)
    assert potential.worst < 1e-9 and potential.position is None
    volume = motion_volume(model, task)
    assert volume.difference.max() < 1e-4
    assert np.abs(volume.true).max() > 1e-4  # velocities have no such volume to keep


def test_who_has_no_motion_is_told_so(pendulum):
    model, task = pendulum
    for name in OF_MOTION:
        with pytest.raises(InapplicableError, match="not a model of a dynamical system"):
            instruments[name].measure(Probe(undamped.nn.RNN(2, 3), torch.zeros(5, 1, 2)))
        with pytest.raises(InapplicableError, match="no task with the true motion"):
            instruments[name].measure(Probe(model, torch.zeros(1, 2)))
    with pytest.raises(OptionError, match="dof must be from 0 to 0, got 1"):
        motion_portrait(model, task, dof=1)


def test_a_motion_that_breaks_off_is_drawn_as_far_as_it_goes(pendulum):
    _, task = pendulum
    model = undamped.models.PlainODE(task.task_shape, hidden_size=4).double()
    model.flow.max_steps = 3
    picture = motion_paths(model, task)
    assert not np.isfinite(picture.learned[-1]).any() and "infinite" in picture.sentence
    energy = motion_energy(model, task)
    assert energy.failed > 0.5 and "have no solution" in energy.sentence
    json.dumps(energy.to_dict(), allow_nan=False)


def test_every_system_can_be_drawn():
    from lab.tasks.test_motion_tasks import SYSTEMS

    for name in SYSTEMS:
        task = build(name, trajectories=2, readings=3, span=0.1)
        states = task.data("train")[1]
        drawn = task.system.drawing(states)
        assert drawn.bodies.shape[:2] == (3, 2) and drawn.bodies.shape[-1] == 2
        assert all(0 <= end <= drawn.bodies.shape[2] for pair in drawn.rods for end in pair)
    links = build("links", links=3, trajectories=2).system
    plane = build("links", links=3, coordinates="plane", trajectories=2).system
    states = links.starts(4, torch.Generator().manual_seed(0))
    from undamped.lab.tasks.physics.links import plane_of

    torch.testing.assert_close(links.drawing(states).bodies, plane.drawing(plane_of(states)).bodies)


@pytest.mark.slow
def test_animations_are_files_that_move(pendulum, tmp_path):
    model, task = pendulum
    drawn = {"<b>hnn</b>": motion_paths(model, task)}
    animate(drawn, tmp_path / "swing.gif", seconds=2.0)
    with Image.open(tmp_path / "swing.gif") as image:
        assert image.n_frames == 12
        assert image.info["duration"] * image.n_frames == pytest.approx(2000, rel=0.1)
    animate(drawn, tmp_path / "swing.html")
    page = (tmp_path / "swing.html").read_text(encoding="utf-8")
    assert (
        "__SCENE__" not in page
        and "<b>hnn" not in page
        and "http:" not in page
        and "https:" not in page
    )
    scene = json.loads(page.partition('id="scene">')[2].partition("</script>")[0])
    assert len(scene["times"]) == len(scene["panels"][1]["paths"]) == 12
    assert scene["panels"][1]["title"] == "<b>hnn</b>"
    x, y = scene["panels"][0]["paths"][0][0]
    assert math.hypot(x, y) == pytest.approx(1, abs=1e-3)
    with pytest.raises(OptionError, match=r"ends in .gif or .html"):
        animate(drawn, tmp_path / "swing.mp4")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["swing.gif", "swing.html"]


def test_the_command_animates_runs_of_one_system(tmp_path):
    few = {"trajectories": 4, "readings": 6, "horizon": 1.0}
    quick = {"steps": 2, "batch_size": 8, "validate_every": 2}
    runs = [
        fit(model, task, model_options={"hidden_size": 4}, task_options=few, train=quick,
            out=tmp_path, progress=False).path
        for model, task in (("hnn", "spring"), ("plain-ode", "spring"), ("hnn", "pendulum"))
    ]  # fmt: skip
    out = tmp_path / "both.html"
    output = CliRunner().invoke(
        cli.app, ["animate", str(runs[0]), str(runs[1]), "--out", str(out), "--json"]
    )
    assert output.exit_code == 0, output.output
    assert set(json.loads(output.stdout)["runs"]) == {"hnn", "plain-ode"}
    assert out.exists()
    output = CliRunner().invoke(cli.app, ["animate", str(runs[0]), str(runs[2]), "--out", str(out)])
    assert isinstance(output.exception, OptionError)
    assert "the same system as" in str(output.exception)
    diagnosed = CliRunner().invoke(
        cli.app, ["diagnose", str(runs[0]), "--out", str(tmp_path / "page.html"), "--json"]
    )
    assert diagnosed.exit_code == 0, diagnosed.output
    result = json.loads(diagnosed.stdout)["models"][0]
    assert all(result[name] is not None for name in OF_MOTION)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert all(f'id="plot-{name}"' in page for name in OF_MOTION)
