"""Ensembles: means of predictions, runs like any other, and what `auto` prefers."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import undamped
from lab.baselines.test_baselines import as_batch, task_of, waves
from undamped._base.contract import Batch, TaskShape
from undamped._base.errors import DataError, OptionError
from undamped.lab.training import Run, fit
from undamped.lab.training.portfolio.attempt import Attempt, Clock, Selection
from undamped.lab.training.portfolio.closed_form_candidates import try_closed_form
from undamped.lab.training.portfolio.ensembles import choose, try_ensemble
from undamped.lab.training.portfolio.fit_best import select

NAMES = ("bank", "boosting", "ensemble")


def noisy(count=60):
    series, classes = waves(count)
    return series + 2 * np.random.default_rng(1).normal(size=series.shape), classes


def test_an_ensemble_is_the_mean_of_probabilities():
    series, classes = noisy(30)
    batch = as_batch(series, classes)
    torch.manual_seed(0)
    model = undamped.lab.baselines.Ensemble(TaskShape(1, 2), of=("bank", "guess"), weights=(3, 1))
    model.fit_closed_form([batch])
    model.refit([])
    bank, guess = (member(batch).softmax(1) for member in model.models)
    torch.testing.assert_close(model(batch).exp(), 0.75 * bank + 0.25 * guess)
    number = undamped.lab.baselines.Ensemble(
        TaskShape(1, 1, answer="number"), of=("boosting", "guess")
    )
    number.fit_closed_form([Batch(batch.inputs, torch.arange(30.0).unsqueeze(1))])
    boosting, guess = (member(batch) for member in number.models)
    torch.testing.assert_close(number(batch), (boosting + guess) / 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"of": ("bank",)}, "two or more different models, got bank"),
        ({"of": ("bank", "gru")}, "fitted in closed form .* got gru"),
        ({"of": ("bank", "ensemble")}, "got ensemble"),
        ({"of": ("bank", "guess"), "weights": (1.0,)}, "each of the 2 models, got 1"),
        ({"of": ("bank", "guess"), "weights": (1.0, -1.0)}, "positive number"),
    ],
)
def test_wrong_members_are_refused(options, message):
    with pytest.raises(OptionError, match=message):
        undamped.lab.baselines.Ensemble(TaskShape(1, 2), **options)


def test_a_member_that_cannot_read_the_data_is_refused_before_anything_is_written(tmp_path):
    pytest.importorskip("aeon")
    with pytest.raises(DataError, match="MiniROCKET needs series of at least 9 steps"):
        fit(
            "ensemble",
            task_of(*waves(20, steps=8)),
            model_options={"of": ("bank", "minirocket")},
            out=tmp_path,
            progress=False,
        )
    assert not list(tmp_path.iterdir())


def test_the_score_of_an_ensemble_is_that_of_its_refitted_members(tmp_path):
    selection = Selection(task_of(*noisy(80)), {}, 0, candidates=NAMES)
    clock = Clock(float("inf"), {"steps": 1})
    attempts = [try_closed_form(name, selection, clock) for name in NAMES[:2]]
    found = try_ensemble(attempts, selection, clock)
    assert found is not None and found.draws == 5 and found.options["of"] == ["bank", "boosting"]
    powers = np.array([attempt.score**4 for attempt in attempts])
    np.testing.assert_allclose(found.options["weights"], powers / powers.sum(), atol=1e-4)
    run = fit(
        "ensemble",
        task_of(*noisy(80)),
        model_options=found.options,
        out=tmp_path,
        progress=False,
    )
    # Members of a run are fitted one after the other, so that boosting has another seed.
    assert run.result["valid"]["accuracy"] == pytest.approx(found.valid, abs=0.15)
    assert try_ensemble(attempts, replace(selection, candidates=NAMES[:2]), clock) is None
    assert try_ensemble(attempts[:1], selection, clock) is None
    slow = [replace(attempt, seconds=100.0) for attempt in attempts]
    assert try_ensemble(slow, selection, Clock(60.0, {})) is None


def test_an_ensemble_is_taken_unless_it_is_clearly_worse():
    task = task_of(*noisy(200))
    single = Attempt("bank", 0.8, 0.5, 0.8, 1, ((0.8, 0.5),))
    options = {"of": ["bank", "boosting"], "weights": [0.5, 0.5]}

    def ensemble(score):
        return Attempt("ensemble", score, 0.5, score, 1, ((score, 0.5),), options=options)

    best, why = choose([single, ensemble(0.79)], task)
    assert best is not None and best.model == "ensemble" and "bank, boosting" in why
    best, why = choose([single, ensemble(0.6)], task)
    assert best is single and not why
    perfect = Attempt("bank", 1.0, 0.0, 1.0, 1, ((1.0, 0.0),))
    assert choose([perfect, ensemble(1.0)], task)[0] is perfect
    late = Attempt("rdst", why_not="it would have taken about 100 s.", late=True)
    best, why = select([single, late], task)
    assert best is single and why.endswith("not compared with rdst (train.minutes).")


def test_auto_fits_the_ensemble_of_its_members(tmp_path):
    options = {"train": {"steps": 1}, "model_options": {"candidates": NAMES}}
    run = fit("auto", task_of(*noisy(60)), **options, out=tmp_path, progress=False)
    settings = json.loads((run.path / "run.json").read_text())
    assert [entry["model"] for entry in settings["tried"]] == list(NAMES)
    assert settings["tried"][2]["options"]["of"] == ["bank", "boosting"]
    assert "outputs" not in settings["tried"][0]
    assert settings["model"]["name"] == "ensemble" and "The mean of" in settings["why"]
    task = task_of(*noisy(60))
    batch = task.batch("test", 0, 12)
    right = (Run.open(run.path).model()(batch).argmax(1) == batch.targets).float().mean()
    assert float(right) == pytest.approx(settings["result"]["test"]["accuracy"])
