"""Models of moving systems: trained, scored, resumed, diagnosed, and honest about their steps."""

import json

import pytest
import torch
from typer.testing import CliRunner

import undamped
from undamped._base.contract import Batch, StateSpace
from undamped._base.errors import OptionError, ShapeError
from undamped._base.options import options_of
from undamped._base.registry import models
from undamped.analysis import measure
from undamped.lab import cli
from undamped.lab.training import Run, fit, resume
from undamped.models.physics.state_model import shape_of

QUICK = {"steps": 30, "batch_size": 32, "validate_every": 10}
FEW = {"trajectories": 6, "readings": 8}


@pytest.fixture(scope="module")
def pendulum(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    words = ["train.steps=30", "train.batch_size=32", "train.validate_every=10"]
    few = ["task.trajectories=6", "task.readings=8", "model.hidden_size=16"]
    output = CliRunner().invoke(
        cli.app, ["train", "pendulum", "hnn", *words, *few, "--out", str(out)]
    )
    assert output.exit_code == 0, output.output
    return out / "pendulum-hnn-1", output.output


def test_train_prints_scores_of_trajectories_longer_than_learnt(pendulum):
    path, output = pendulum
    for words in ("to t = 3: ", "to t = 12: ", "relative error", "energy mse", "valid time"):
        assert words in output
    result = Run.open(path).result
    assert result["test"]["mse"] < result["chance"]["mse"]
    assert set(result["to t = 12"]) == {"loss", "relative_error", "energy_mse", "valid_time"}
    assert 0 < result["to t = 3"]["relative_error"] < 1
    assert Run.open(path).settings["system"] == {
        "name": "PendulumSystem", "kinetic": 1.0, "gravity": 3.0,
    }  # fmt: skip


def test_a_run_is_diagnosed_reported_and_answers(pendulum, tmp_path):
    path, _ = pendulum
    output = CliRunner().invoke(
        cli.app, ["diagnose", str(path), "--out", str(tmp_path / "page.html"), "--json"]
    )
    assert output.exit_code == 0, output.output
    (result,) = json.loads(output.stdout)["models"]
    assert result["verdict"].startswith("test mse")
    assert any(
        note.startswith("promises hold: the field keeps its energy") for note in result["notes"]
    )
    assert [m["holds"] for m in result["promises"]["measurements"]] == [True, True]
    assert "∇E · f = 0" in (tmp_path / "page.html").read_text()
    output = CliRunner().invoke(cli.app, ["predict", str(path), "--json"])
    assert output.exit_code == 0 and len(json.loads(output.stdout)["examples"][0]["answer"]) == 2


def test_a_run_resumes_with_the_same_bits(pendulum):
    path, _ = pendulum
    run = Run.open(path)
    before = run.result
    run.update(status="interrupted")
    assert resume(path, progress=False).result["test"] == before["test"]


@pytest.mark.parametrize("model", ["hnn", "plain-ode"])
def test_models_learn_from_trajectories_too(model, tmp_path):
    run = fit(
        model, "spring", model_options={"hidden_size": 16, "tolerance": 1e-3},
        task_options={**FEW, "form": "trajectory", "window": 2},
        train={**QUICK, "learning_rate": 1e-2}, out=tmp_path, progress=False,
    )  # fmt: skip
    assert run.result["test"]["mse"] < run.result["chance"]["mse"]
    assert run.metrics()[-1]["evaluations"] > 0


def test_rates_and_trajectories_are_of_one_field():
    torch.manual_seed(0)
    model = undamped.models.HNN(2, hidden_size=8, tolerance=1e-8).double()
    z = torch.randn(3, 4).double()
    path = model.trajectory(z, [1e-3, 2e-3])
    torch.testing.assert_close((path[0] - z) / 1e-3, model(z), atol=1e-2, rtol=1e-2)
    own = torch.tensor([[1e-3, 1e-3, 2e-3], [2e-3, 3e-3, 4e-3]]).double()
    each = model(Batch(z, target_times=own))
    torch.testing.assert_close(each[0, :2], path[0, :2])
    torch.testing.assert_close(each[0, 2], path[1, 2])
    with pytest.raises(OptionError, match="the same target times for all samples"):
        undamped.models.NSSNN(2)(Batch(z, target_times=own))


def test_fixed_steps_have_a_pace_of_their_own_where_times_have():
    own = torch.tensor([[0.1, 0.3, 0.2], [0.4, 0.5, 0.25]]).double()
    z, u = torch.randn(3, 4).double(), torch.randn(3, 1).double()
    torch.manual_seed(0)
    for model, inputs in (
        (undamped.models.SRNN(2, hidden_size=6, step_size=0.1), None),
        (
            undamped.models.SymODEN(
                StateSpace.canonical(2, 1), hidden_size=6, method="rk4", step_size=0.1
            ),
            u,
        ),
    ):
        model = model.double()
        together = model.trajectory(z, own, inputs)
        for k in range(3):
            given = None if inputs is None else inputs[k : k + 1]
            separate = model.trajectory(z[k : k + 1], own[:, k], given)
            torch.testing.assert_close(together[:, k : k + 1], separate, rtol=1e-3, atol=1e-4)
        # Each pace takes equal steps, so one sample that has none smaller is stepped the same.
        equal = model.trajectory(z, own[:, 1:2].expand(2, 3), inputs)
        torch.testing.assert_close(together[0, 1], equal[0, 1])
        together.square().sum().backward()
        assert all(p.grad is not None for p in model.parameters())


def test_states_in_another_order_move_alike():
    space = StateSpace(("p1", "q1", "q2", "p2"), ("momentum", "position", "position", "momentum"))
    torch.manual_seed(0)
    other = undamped.models.HNN(shape_of(space))
    plain = undamped.models.HNN(2)
    plain.load_state_dict(other.state_dict())
    z, order = torch.randn(5, 4), [1, 2, 0, 3]
    torch.testing.assert_close(other(z)[:, order], plain(z[:, order]))
    torch.testing.assert_close(other.energy(z), plain.energy(z[:, order]))
    path = other.trajectory(z, [0.1, 0.2])
    torch.testing.assert_close(path[..., order], plain.trajectory(z[:, order], [0.1, 0.2]))


def test_a_promise_belongs_to_field_and_solver():
    def kinds(**options):
        return [m.promise.kind.value for m in measure(undamped.models.HNN(2, **options))]

    assert kinds() == ["kept-energy", "divergence-free"]
    fixed = {"step_size": 0.1}
    assert kinds(method="leapfrog", **fixed) == kinds()
    assert kinds(method="implicit-midpoint", **fixed) == [*kinds(), "symplectic"]
    (note,) = undamped.models.HNN(2, method="leapfrog", **fixed).notes()
    assert "not of the form T(p) + V(q): no symplectic step is promised" in note
    assert not undamped.models.HNN(2, method="implicit-midpoint", **fixed).notes()
    # And rightly so: the steps of leapfrog are not symplectic here.
    from undamped.analysis.promises.cells import measure_symplectic

    torch.manual_seed(0)
    model = undamped.models.HNN(2, method="leapfrog", **fixed).double()
    value, limit, _ = measure_symplectic(model, torch.Generator().manual_seed(0))
    assert value > 1e3 * limit


def test_a_wrong_gradient_would_not_pass(monkeypatch):
    from undamped.models.physics.hnn import PerceptronHamiltonian

    plain = PerceptronHamiltonian.gradient

    def wrong(self, t, q, p):
        by_q, by_p = plain(self, t, q, p)
        return 1.001 * by_q, by_p

    monkeypatch.setattr(PerceptronHamiltonian, "gradient", wrong)
    assert [m.holds for m in measure(undamped.models.HNN(2))] == [False, False]


def test_bad_states_are_refused():
    with pytest.raises(ShapeError, match=r"HNN states must have shape \(batch, 4\)"):
        undamped.models.HNN(2)(torch.randn(5, 3))
    with pytest.raises(OptionError, match="one momentum or velocity each"):
        undamped.models.HNN(StateSpace(("x", "y", "z"), ("position", "position", "momentum")))
    with pytest.raises(OptionError, match="PlainODE learns no energy"):
        undamped.models.PlainODE(1).energy(torch.randn(2, 2))


def test_a_trajectory_that_breaks_off_is_lost_and_not_an_error(tmp_path):
    class Wild(undamped.models.PlainODE):
        def __init__(self, shape):
            super().__init__(shape, hidden_size=4)
            self.flow.max_steps = 3

    task = undamped.lab.tasks.build("spring", **FEW)
    run = fit(Wild(task.task_shape), task, train=QUICK, out=tmp_path, progress=False)
    assert 0 < run.result["to t = 12"]["lost"] <= 1


def test_diagnose_by_name_alone(tmp_path):
    output = CliRunner().invoke(
        cli.app, ["diagnose", "hnn", "--out", str(tmp_path / "page.html"), "--json"]
    )
    assert output.exit_code == 0, output.output
    assert json.loads(output.stdout)["models"][0]["verdict"].startswith("promises hold: ")


def test_what_cannot_be_compared_is_said_before_anything_is_trained(tmp_path):
    words = ["compare", "spring", "hnn", "sympnet", "train.steps=2", "--out", str(tmp_path)]
    output = CliRunner().invoke(cli.app, words)
    assert output.exit_code != 0 and not list(tmp_path.iterdir())
    assert "needs a number. Choose one of: " in str(output.exception)
    assert "hnn" in str(output.exception) and "lstm" not in str(output.exception)


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    ["hnn", "srnn", "taylor-net", "ssinn", "nssnn", "sympnet", "symoden", "delan", "lnn"],
)
def test_promises_hold_after_training_too(model, tmp_path):
    small = {"hidden_size": 8} if "hidden_size" in options_of(models[model]) else {}
    run = fit(
        model, "henon-heiles", model_options=small,
        task_options={**FEW, "span": 0.7, "window": 2, "horizon": 2.0},
        train={"steps": 5, "batch_size": 8, "learning_rate": 1e-2}, out=tmp_path, progress=False,
    )  # fmt: skip
    trained = run.model()
    result = measure(trained)
    assert len(result) == len(trained.promises) >= 1
    for each in result:
        assert each.holds, each.to_dict()
    assert all(0 < run.result[part]["relative_error"] <= 1 for part in ("to t = 0.7", "to t = 1.4"))
