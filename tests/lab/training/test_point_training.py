"""Models of single vectors are trained, resumed and refused like all others."""

import json

import pytest
import torch

from undamped._base.errors import OptionError
from undamped.lab.cli.commands.runs import Diagnose, Predict
from undamped.lab.cli.next_steps import next_steps
from undamped.lab.cli.verbs.diagnose import diagnose
from undamped.lab.cli.verbs.predict import predict
from undamped.lab.training import Run, fit, resume, update
from undamped.models.continuous.flow import FFJORD

QUICK = {"steps": 4, "batch_size": 16, "validate_every": 2}


@pytest.mark.parametrize("task", ["annuli", "spirals"])
def test_a_neural_ode_is_trained_and_its_evaluations_are_logged(task, tmp_path):
    run = fit("hbnode", task, model_options={"hidden_size": 8}, train=QUICK, out=tmp_path,
              progress=False)  # fmt: skip
    assert 0 <= run.result["test"]["accuracy"] <= 1
    rows = run.metrics()
    assert all(row["evaluations"] > 0 for row in rows)
    again = Run.open(run.path).model()
    batch = run.task().batch("test", 0, 5)
    assert again(batch.inputs).shape == (5, 2)
    run.update(status="interrupted")
    assert resume(run.path, progress=False).result["test"] == run.result["test"]


@pytest.mark.parametrize(("task", "size"), [("density", 2), ("point-cloud", 3)])
def test_a_flow_is_trained_on_a_density(task, size, tmp_path):
    options = {"hidden_size": 8, "tolerance": 1e-3}
    run = fit("ffjord", task, model_options=options, train=QUICK, out=tmp_path, progress=False)
    assert 0 < run.result["test"]["nll"] < 50 and run.result["test"]["loss"] > 0
    assert 0 < run.result["chance"]["nll"] < 5 and run.settings["status"] == "finished"
    again = Run.open(run.path).model().eval()
    batch = run.task().batch("test", 0, 7)
    assert batch.inputs.shape == (7, size) and again(batch.inputs).shape == (7,)


def test_densities_take_a_flow_and_a_flow_takes_densities(tmp_path):
    with pytest.raises(OptionError, match="this task needs a density"):
        fit("hbnode", "density", train=QUICK, out=tmp_path)
    with pytest.raises(OptionError, match="predicts a density"):
        fit("ffjord", "annuli", train=QUICK, out=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "options",
    [
        {"bottleneck_size": 1, "trace": "bottleneck"},
        {"noise": "rademacher"},
        {"method": "rk4", "step_size": 0.5},
    ],
)
def test_a_recommendation_gives_way_to_what_was_said(options, tmp_path):
    """The recipe of densities has detail=6 and trace='exact', which do not go with these."""
    options = {"hidden_size": 4, **options}
    run = fit("ffjord", "density", model_options=options, train=QUICK, out=tmp_path, progress=False)
    kept = run.settings["model"]["options"]
    assert ("tolerance" in kept) != ("step_size" in options)
    assert options.items() <= kept.items()
    assert ("detail" in kept) != ("bottleneck_size" in options)


@pytest.mark.slow
def test_predict_shows_the_density_of_points(tmp_path, capsys):
    options = {"hidden_size": 4}
    run = fit("ffjord", "density", model_options=options, train=QUICK, out=tmp_path, progress=False)
    predict(Predict(run.path, as_json=True))
    said = json.loads(capsys.readouterr().out)
    points = torch.tensor([example["point"] for example in said["examples"]])
    found = [example["log_density"] for example in said["examples"]]
    assert points.shape == (10, 2) and said["nll"] == pytest.approx(run.result["test"]["nll"])
    wanted = run.model()(points).detach()
    torch.testing.assert_close(torch.tensor(found), wanted, rtol=1e-2, atol=1e-2)
    predict(Predict(run.path))
    assert "a normal distribution has" in capsys.readouterr().out


@pytest.mark.parametrize("given", [[], ["model.colours=3", "model.channels=3"]])
def test_a_model_of_pictures_is_diagnosed_on_small_ones(given, tmp_path, capsys, monkeypatch):
    seen = {}

    def measure(model, inputs, **more):
        seen.update(answer=model(inputs), pictures=model.image_shape)
        raise OptionError("enough")

    monkeypatch.setattr("undamped.lab.cli.verbs.diagnose.measure", measure)
    with pytest.raises(OptionError, match="enough"):
        diagnose(Diagnose(["conv-sonode", *given], tmp_path / "page.html"))
    assert seen["pictures"] == (3 if given else 1, 14, 14) and seen["answer"].shape == (16, 2)


def test_regularisers_are_learned_from_and_not_scored(tmp_path, monkeypatch):
    """The loss that is differentiated is the score plus the weighed mean; the score is not."""
    taken = []

    def note(objective, batch, state):
        answer = plain_forward(objective, batch, state)
        taken.append(float(answer[0].detach()))
        return answer

    plain_forward = update.Objective.forward
    monkeypatch.setattr(update.Objective, "forward", note)
    options = {"hidden_size": 4}
    once = {**QUICK, "steps": 1}
    runs = [
        fit("ffjord", "density", model_options={**options, **more}, train=once,
            out=tmp_path, progress=False)
        for more in ({}, {"kinetic_weight": 3.0})
    ]  # fmt: skip
    torch.manual_seed(0)  # as the runs begin
    flow = FFJORD(2, **runs[1].settings["model"]["options"])
    plain, heavy = taken
    losses = [run.metrics()[0]["train_loss"] for run in runs]
    assert losses[0] == losses[1] == pytest.approx(plain)
    batch = runs[1].task().batch("train", 0, 16)
    added = 3 * flow(batch.inputs).kinetic.mean().item()
    assert added > 0 and heavy - plain == pytest.approx(added, rel=1e-3)


def test_what_to_try_next_are_models_of_points(tmp_path):
    run = fit("hbnode", "annuli", model_options={"hidden_size": 4}, task_options={"dimension": 3},
              train=QUICK, out=tmp_path, progress=False)  # fmt: skip
    compared, longer, _ = next_steps(run)
    assert "annuli hbnode node resnet" in compared and "lstm" not in compared
    assert all("task.dimension=3" in words and "seed=" not in words for words in (compared, longer))


def test_sequences_and_points_are_not_mixed_up(tmp_path):
    with pytest.raises(OptionError, match="this task has single vectors"):
        fit("lstm", "annuli", train=QUICK, out=tmp_path)
    with pytest.raises(OptionError, match="input is a sequence"):
        fit("node", "copy", train=QUICK, out=tmp_path)
    assert list(tmp_path.iterdir()) == []
