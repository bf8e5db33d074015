"""Settings to start from: who is put over whom."""

import pytest

from undamped._base.registry import tasks
from undamped.lab.training.recipes import merged, recommended


@pytest.mark.parametrize("model", ["linoss", "d-linoss"])
def test_a_rate_for_all_models_is_no_larger_than_a_model_bears(model):
    digits = tasks["digits"]
    assert recommended(digits, "lstm")["train"]["learning_rate"] == 0.01
    assert recommended(digits, model)["train"]["learning_rate"] == 1e-3
    suggested = {"train": {"learning_rate": 0.01}}
    assert recommended(tasks["ucr"], model, suggested)["train"]["learning_rate"] == 1e-3
    given = {"train": {"learning_rate": 0.01}}
    assert merged(digits, model, given)["train"]["learning_rate"] == 0.01


def test_a_rate_that_a_task_has_for_one_model_is_taken_as_it_is(monkeypatch):
    digits = tasks["digits"]
    monkeypatch.setitem(digits.recipes, "linoss", {"train": {"learning_rate": 0.02}})
    assert recommended(digits, "linoss")["train"]["learning_rate"] == 0.02


def test_third_party_models_register_their_recipe(monkeypatch):
    from undamped.extend import Recipe, register_recipe
    from undamped.lab.training import recipes

    monkeypatch.delitem(recipes._RECIPES, "scornn", raising=False)  # and afterwards again
    register_recipe("scornn", Recipe({"model": {"num_layers": 3}}, largest_rate=1e-4))
    assert recipes.recipe_of("scornn").largest_rate == 1e-4
    assert recipes.recommended(tasks["copy"], "scornn")["model"]["num_layers"] == 3
