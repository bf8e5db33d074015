"""Classes that weigh alike: in the loss, in the score, and in what learns at once."""

import numpy as np
import pytest
import torch

from lab.baselines.test_baselines import SMALL, task_of, waves
from undamped._base.contract import TaskShape
from undamped._base.errors import DataError, OptionError, UnknownNameError
from undamped.lab.estimators import SequenceClassifier, SequenceRegressor
from undamped.lab.training import Run, fit
from undamped.models.for_task import model_for


def rare(count=60):
    """Return series of two rhythms that are hard to tell apart, one of them ten times as rare."""
    series, _ = waves(count)
    classes = (np.arange(count) % 10 == 0).astype(int)
    series = np.random.default_rng(1).normal(size=series.shape) + 0.3 * classes[:, None, None]
    return series, np.array(["usual", "rare"])[classes]


def test_loss_and_score_weigh_every_class_alike():
    task = task_of(*rare(), weights="balanced")
    batch = task.batch("train", 0, 1000)
    logits = torch.randn(len(batch.targets), 2)
    losses = -logits.log_softmax(1)[torch.arange(len(logits)), batch.targets]
    by_class = [losses[batch.targets == c].mean() for c in (0, 1)]
    torch.testing.assert_close(task.loss(logits, batch), torch.stack(by_class).mean())
    right = logits.argmax(1) == batch.targets
    found, of = task.score(logits, batch)
    shares = [right[batch.targets == c].double().mean() for c in (0, 1)]
    assert float(found) / of == pytest.approx(float(torch.stack(shares).mean()))
    assert task.metric == "weighted_accuracy" and any("equal weight" in n for n in task.notes())
    guess = task.chance
    assert guess.metric == pytest.approx(0.5, abs=0.2)
    assert guess.loss == pytest.approx(np.log(2), abs=0.3)


def test_the_shape_of_a_task_keeps_the_weights():
    shape = task_of(*rare(), weights="balanced").task_shape
    assert len(shape.class_weights) == 2
    assert TaskShape.from_dict(shape.to_dict()) == shape
    assert TaskShape.from_dict(TaskShape(1, 2).to_dict()).class_weights == ()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bank", "minirocket", "boosting", "guess", "gru"])
def test_models_find_more_of_what_is_rare(name, tmp_path):
    said = []
    for weights in ("equal", "balanced"):
        task = task_of(*rare(200), weights=weights)
        options = {**SMALL, "bank": {"oscillators": 30}, "gru": {"hidden_size": 4}}.get(name)
        train = {"steps": 40} if name == "gru" else None
        run = fit(name, task, model_options=options, train=train, out=tmp_path, progress=False)
        model = Run.open(run.path).model()
        answers = model(task.batch("test", 0, 1000)).detach().softmax(1)
        said.append(float(answers[:, task.preparation.classes.index("rare")].mean()))
    assert said[1] > said[0] + 0.05


def test_what_cannot_weigh_says_so():
    with pytest.raises(OptionError, match="cannot use class weights"):
        model_for(task_of(*rare(), weights="balanced").task_shape, "dtw", {})
    series, _ = waves(20)
    with pytest.raises(OptionError, match="needs classes, but the targets are numbers"):
        task_of(series, np.linspace(0, 1, 20), weights="balanced")


def overlapping(count=80, seed=0):
    """Return series of two classes that cannot be told apart well, in turns."""
    random = np.random.default_rng(seed)
    classes = np.arange(count) % 2
    return random.normal(size=(count, 20)) + 0.2 * classes[:, None], classes


WEIGHING = {
    "bank": {"model_options": {"oscillators": 30}},
    "boosting": {"model_options": {"rounds": 10}},
    "guess": {},
    "gru": {"hidden_size": 4, "steps": 25},
    "minirocket": {"model_options": {"kernels": 168}},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WEIGHING)
def test_estimators_heed_weights_of_classes_and_of_series(name):
    X, y = overlapping()

    def share(class_weight=None, sample_weight=None):
        chosen = SequenceClassifier(
            name, random_state=0, class_weight=class_weight, **WEIGHING[name]
        )
        return chosen.fit(X, y, sample_weight=sample_weight).predict_proba(X)[:, 1].mean()

    plain = share()
    assert share({1: 9}) > plain + 0.1
    assert share(sample_weight=np.where(y == 1, 9.0, 1.0)) > plain + 0.1
    if name not in ("bank", "guess"):
        return
    assert share({1: 9}, np.where(y == 1, 1 / 9, 1.0)) == pytest.approx(plain, abs=0.08)
    # What counts is ratios, and "balanced" is what the command line has.
    assert share(sample_weight=np.full(80, 7.0)) == pytest.approx(plain, abs=1e-5)
    assert share("balanced") == pytest.approx(plain, abs=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bank", "boosting", "gru"])
def test_numbers_follow_the_series_that_count(name):
    X, y = overlapping()
    found = []
    for weights in (None, np.where(y == 1, 20.0, 1.0)):
        model = SequenceRegressor(name, random_state=0, **WEIGHING[name])
        found.append(model.fit(X, y.astype(float), sample_weight=weights).predict(X).mean())
    assert found[1] > found[0] + 0.1


def test_series_of_weight_zero_are_not_learnt_from():
    X, y = overlapping()
    wrong = np.concatenate([y, 1 - y])  # the same series with the other label
    weights = np.concatenate([np.ones(80), np.zeros(80)])
    options = {"validation_fraction": 0, "random_state": 0, **WEIGHING["bank"]}
    model = SequenceClassifier("bank", **options)
    doubled = model.fit(np.concatenate([X, X]), wrong, sample_weight=weights).predict_proba(X)
    assert np.isfinite(doubled).all()
    plain = SequenceClassifier("bank", **options).fit(X, y).predict_proba(X)
    assert np.abs(doubled - plain).mean() < 0.1


def test_balanced_is_the_weights_of_the_command_line():
    X, y = rare(100)
    X = X.transpose(0, 2, 1) if X.shape[1] < X.shape[2] else X
    model = SequenceClassifier("bank", class_weight="balanced", **WEIGHING["bank"]).fit(X, y)
    told = model.model_.shape.class_weights
    assert len(told) == 2 and max(told) > 3 * min(told)


def test_weights_that_cannot_be_used_are_refused():
    X, y = overlapping()
    fit_with = SequenceClassifier("bank", **WEIGHING["bank"]).fit
    for weights, match in (
        (np.ones(3), "one number for each of the 80 series"),
        (np.ones((80, 2)), "one dimension"),
        (-np.ones(80), "≥ 0"),
        (np.zeros(80), "zeros only"),
        (np.full(80, np.nan), "finite"),
    ):
        with pytest.raises(DataError, match=match):
            fit_with(X, y, sample_weight=weights)
    for chosen, kind, match in (
        ("balance", OptionError, "'balanced'"),
        ({2: 1.0}, UnknownNameError, "label in class_weight"),
        ({0: -1.0}, DataError, "≥ 0"),
    ):
        with pytest.raises(kind, match=match):
            SequenceClassifier("bank", class_weight=chosen).fit(X, y)
    pytest.importorskip("aeon")
    with pytest.raises(OptionError, match="sample_weight"):
        SequenceClassifier("dtw").fit(X, y, sample_weight=np.ones(80))
    with pytest.raises(OptionError, match="sample_weight"):
        SequenceClassifier("latent-ode", hidden_size=4, steps=1).fit(
            X, y, sample_weight=np.ones(80)
        )


def test_scores_and_names():
    import pandas as pd

    X, y = overlapping()
    model = SequenceClassifier("bank", random_state=0, **WEIGHING["bank"]).fit(X, y)
    scores, chances = model.decision_function(X), model.predict_proba(X)
    np.testing.assert_allclose(scores, np.log(chances[:, 1] / chances[:, 0]), rtol=1e-5)
    assert not hasattr(model, "feature_names_in_")
    frames = [pd.DataFrame({"speed": one, "height": one**2}) for one in X]
    three = np.arange(80) % 3
    model.fit(frames, three)
    assert model.decision_function(frames).shape == (80, 3)
    assert (model.decision_function(frames).argmax(1) == model.predict(frames)).all()
    assert list(model.feature_names_in_) == ["speed", "height"]
    model.fit(X, y)
    assert not hasattr(model, "feature_names_in_")
