"""The estimators: inputs, errors, honesty, pickles, pipelines, searches, streams, forecasts."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import undamped
from undamped import SequenceClassifier, SequenceForecaster, SequenceRegressor
from undamped._base.errors import DataError, OptionError, UndampedError, UnknownNameError
from undamped.lab.estimators.inputs import collect

TINY = {"model": "unicornn", "hidden_size": 6, "num_layers": 1, "steps": 4, "random_state": 0}


def waves(count=24, length=30, channels=2, seed=0):
    """Slow and fast waves with noise, and which is which."""
    random = np.random.default_rng(seed)
    rates = np.array([0.2, 0.6])[np.arange(count) % 2]
    phase = random.uniform(0, 6, size=(count, 1, channels))
    X = np.sin(rates[:, None, None] * np.arange(length)[:, None] + phase)
    return X + 0.05 * random.normal(size=X.shape), np.where(rates < 0.5, "slow", "fast")


@pytest.fixture(scope="module")
def classifier():
    return SequenceClassifier(**TINY).fit(*waves())


# Inputs


def as_frame(X):
    index = pd.MultiIndex.from_product([range(len(X)), range(X.shape[1])])
    return pd.DataFrame(X.reshape(-1, X.shape[2]), index=index, columns=["a", "b"])


FORMS = {
    "array": lambda X: X,
    "list": list,
    "frames": lambda X: [pd.DataFrame(x, columns=["a", "b"]) for x in X],
    "indexed": as_frame,
    "nested": lambda X: pd.DataFrame(
        {name: [pd.Series(x[:, at]) for x in X] for at, name in enumerate("ab")}
    ),
    "objects": lambda X: _objects(list(X)),
}


def _objects(parts):
    array = np.empty(len(parts), dtype=object)
    array[:] = parts
    return array


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_input_gives_the_same_series(form):
    X, _ = waves(count=4)
    for one, other in zip(collect(FORMS[form](X)).series, X, strict=True):
        np.testing.assert_array_equal(one, other.astype(np.float32))


def test_rows_of_a_plain_frame_are_series():
    X, _ = waves(count=4, channels=1)
    flat = X[:, :, 0]
    for form in (flat, pd.DataFrame(flat), flat.tolist(), [pd.Series(x) for x in flat]):
        np.testing.assert_array_equal(np.stack(collect(form).series), X.astype(np.float32))


def test_rows_of_an_indexed_frame_are_put_in_order_of_time():
    X, _ = waves(count=3)
    frame = as_frame(X)
    shuffled = pd.concat([frame.loc[[at]].sample(frac=1, random_state=0) for at in (2, 0, 1)])
    np.testing.assert_array_equal(
        np.stack(collect(shuffled).series), X[[2, 0, 1]].astype(np.float32)
    )


def test_missing_values_of_pandas_are_missing():
    frame = pd.DataFrame({"a": pd.array([1, None, 3], dtype="Int64"), "b": [1.0, 2.0, None]})
    (one,) = collect([frame]).series
    np.testing.assert_array_equal(one, np.array([[1, 1], [np.nan, 2], [3, np.nan]], np.float32))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(2, 9), min_size=1, max_size=5), st.integers(1, 3), st.booleans())
def test_lists_of_any_lengths_keep_every_value(lengths, channels, single):
    random = np.random.default_rng(0)
    given_series = [random.normal(size=(n, channels)).astype(np.float32) for n in lengths]
    if single and channels == 1:
        given_series = [one[:, 0] for one in given_series]
    found = collect(given_series).series
    assert [one.shape for one in found] == [(n, channels) for n in lengths]
    for one, other in zip(found, given_series, strict=True):
        np.testing.assert_array_equal(one.reshape(other.shape), other)


BAD = {
    "nothing": ([], "at least one series"),
    "none": (None, "got a NoneType"),
    "text": ("abc", "got a str"),
    "a single series": (np.zeros(5), "2 or 3 dimensions"),
    "four dimensions": (np.zeros((2, 2, 2, 2)), "2 or 3 dimensions"),
    "infinity": (np.full((2, 4), np.inf), "infinity"),
    "complex": (np.zeros((2, 4), dtype=complex), "complex"),
    "words": (np.array([["a", "b"], ["c", "d"]]), "values of type"),
    "words in an object": (_objects([np.array([1, "x"], dtype=object)]), "not a number"),
    "one step": (np.zeros((3, 1, 2)), "at least 2 steps"),
    "no channel": (np.zeros((3, 4, 0)), "at least one channel"),
    "other channels": ([np.zeros((4, 2)), np.zeros((4, 3))], "X[1] must have 2 channels"),
    "ragged steps": ([[[1, 2], [3]], [[1, 2], [3, 4]]], "rows of unequal length"),
    "other columns": (
        [pd.DataFrame({"a": [1, 2]}), pd.DataFrame({"b": [1, 2]})],
        "the columns of the first frame",
    ),
    "a time twice": (
        pd.DataFrame({"a": [1, 2]}, index=pd.MultiIndex.from_tuples([(0, 0), (0, 0)])),
        "several rows for the same series and time",
    ),
    "three levels": (
        pd.DataFrame({"a": [1]}, index=pd.MultiIndex.from_tuples([(0, 0, 0)])),
        "index of 3 levels",
    ),
    "cells of unequal length": (
        pd.DataFrame({"a": [np.zeros(3)], "b": [np.zeros(4)]}),
        "channels of the same length",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gets_one_sentence(case):
    X, words = BAD[case]
    with pytest.raises(DataError) as raised:
        collect(X)
    assert words in str(raised.value) and "\n" not in str(raised.value)


# Errors of fit and predict


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (["slow"] * 24, "one class only"),
        ([np.nan] + [1.0] * 23, "missing"),
        ([None] + ["a", "b"] * 11 + ["a"], "missing"),
        ([""] + ["a", "b"] * 11 + ["a"], "missing"),
        (["a", "b"], "one target for each of the 24"),
        (None, "requires y"),
        (np.arange(24) / 7, "Unknown label type"),
    ],
)
def test_bad_labels_get_one_sentence(y, words):
    with pytest.raises(ValueError, match=words):
        SequenceClassifier(**TINY).fit(waves()[0], y)


@pytest.mark.parametrize(
    ("y", "words"),
    [([np.nan] + [1.0] * 23, "missing"), ([np.inf] + [1.0] * 23, "inf"), (["a"] * 24, "numbers")],
)
def test_bad_numbers_get_one_sentence(y, words):
    with pytest.raises(DataError, match=words):
        SequenceRegressor(**TINY).fit(waves()[0], y)


def test_predicting_before_fitting(classifier):
    X, _ = waves()
    for estimator in (SequenceClassifier(), SequenceRegressor(), SequenceForecaster()):
        with pytest.raises(NotFittedError):
            estimator.predict(X)
        with pytest.raises(NotFittedError):
            clone(classifier).predict(X)


def test_other_channels_at_predict(classifier):
    with pytest.raises(DataError, match="must have 2 channels, as in fit, got 3"):
        classifier.predict(np.zeros((2, 5, 3)))


def test_columns_in_another_order_are_noticed():
    X, y = waves()
    fitted = SequenceClassifier(**TINY).fit(FORMS["frames"](X), y)
    with pytest.raises(DataError, match="the channels a, b in this order, as in fit"):
        fitted.predict([pd.DataFrame(x, columns=["b", "a"]) for x in X])


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"model": "unicorn"}, UnknownNameError),
        ({"validation_fraction": 1.0}, OptionError),
        ({"missing": "ignore"}, OptionError),
        ({"random_state": "a"}, OptionError),
        ({"random_state": -1}, OptionError),
        ({"epochs": 1}, OptionError),  # beside steps
        ({"model_options": {"dz": 1}}, UnknownNameError),
        ({"train_options": {"momentun": 1}}, UnknownNameError),
        ({"hidden_size": 0}, OptionError),
    ],
)
def test_bad_options_are_refused_before_training(options, error):
    with pytest.raises(error):
        SequenceClassifier(**{**TINY, **options}).fit(*waves())


# What comes out


def test_probabilities_and_attributes(classifier):
    X, y = waves()
    probabilities = classifier.predict_proba(X)
    assert probabilities.shape == (24, 2)
    np.testing.assert_allclose(probabilities.sum(1), 1)
    assert classifier.classes_.tolist() == ["fast", "slow"]
    assert classifier.n_features_in_ == 2 and classifier.n_iter_ == 4
    assert {"step", "train_loss", "valid_loss"} <= set(classifier.history_[-1])
    assert set(classifier.predict(X)) <= {"fast", "slow"}
    assert 0 <= classifier.score(X, y) <= 1


@pytest.mark.parametrize("labels", [[2.0, 1.0], ["10", "9"], [True, False]])
def test_labels_come_back_as_they_went_in(labels):
    X, y = waves(count=30)
    y = np.where(y == "slow", *labels)
    X[y == labels[0]] += 2  # easy to learn: this is about the labels
    fitted = SequenceClassifier(**{**TINY, "steps": 60}, learning_rate=0.05).fit(X, y)
    predicted = fitted.predict(X)
    assert predicted.dtype == np.asarray(y).dtype
    assert np.mean(predicted == y) > 0.9
    np.testing.assert_array_equal(predicted, fitted.classes_[fitted.predict_proba(X).argmax(1)])


def test_regression_answers_in_its_own_units():
    X, _ = waves(count=40, channels=1)
    level = np.linspace(-2, 2, 40)
    X, y = X + level[:, None, None], 1e6 + 100 * level
    fitted = SequenceRegressor(**{**TINY, "steps": 60}, learning_rate=0.05)
    assert fitted.fit(X, y).score(X, y) > 0.8


@pytest.mark.parametrize("estimator", [SequenceClassifier, SequenceRegressor])
def test_two_fits_agree_bit_for_bit(estimator):
    X, y = waves()
    y = y if estimator is SequenceClassifier else np.arange(24.0)
    method = "predict_proba" if estimator is SequenceClassifier else "predict"
    first, second = (getattr(estimator(**TINY).fit(X, y), method)(X) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    other = getattr(estimator(**{**TINY, "random_state": 1}).fit(X, y), method)(X)
    assert (first != other).any()


def test_callers_random_numbers_are_left_alone():
    import torch

    torch.manual_seed(5)
    np.random.seed(5)
    expected = torch.rand(1), np.random.rand()
    torch.manual_seed(5)
    np.random.seed(5)
    pickle.loads(pickle.dumps(SequenceClassifier(**TINY).fit(*waves())))
    assert (torch.rand(1), np.random.rand()) == expected


def test_unequal_lengths_and_missing_values():
    X, y = waves()
    ragged = [x[: 10 + at % 15].copy() for at, x in enumerate(X)]
    ragged[3][4:6, 1] = np.nan
    for missing in ("interpolate", "mask"):
        fitted = SequenceClassifier(**TINY, missing=missing).fit(ragged, y)
        together = fitted.predict_proba(ragged)
        alone = np.concatenate([fitted.predict_proba([one]) for one in ragged])
        np.testing.assert_allclose(together, alone, atol=1e-6)


def test_input_is_not_changed():
    X, y = waves()
    X[0, 3, 0] = np.nan
    before = X.copy(), y.copy()
    SequenceClassifier(**TINY).fit(X, y).predict(X)
    np.testing.assert_array_equal(X, before[0])
    np.testing.assert_array_equal(y, before[1])


@pytest.mark.parametrize("model", ["lstm", "cornn", "exprnn", "residual-unicornn"])
def test_other_networks(model):
    X, y = waves()
    layers = 2 if "uni" in model else 1
    fitted = SequenceClassifier(**{**TINY, "model": model, "num_layers": layers})
    again = pickle.loads(pickle.dumps(fitted.fit(X, y)))
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))


# Honest validation


def parts_of(monkeypatch, X, y, **options):
    from undamped.lab.estimators import estimator as module

    seen = {}
    original = module.fit

    def spy(model, task, **rest):
        seen.update({name: index.copy() for name, index in task.splits.items()})
        return original(model, task, **rest)

    monkeypatch.setattr(module, "fit", spy)
    groups = options.pop("groups", None)
    SequenceClassifier(**{**TINY, "steps": 1}, **options).fit(X, y, groups=groups)
    return seen


def test_groups_are_kept_together(monkeypatch):
    X, y = waves(count=40)
    groups = np.repeat(np.arange(10), 4)
    parts = parts_of(monkeypatch, X, y, groups=groups)
    assert len(parts["train"]) + len(parts["valid"]) == 40 and len(parts["valid"])
    assert not set(groups[parts["train"]]) & set(groups[parts["valid"]])


def test_copies_are_never_on_both_sides(monkeypatch):
    X, y = waves(count=20)
    doubled, both = np.concatenate([X, X, X[:4]]), np.concatenate([y, y, y[:4]])
    parts = parts_of(monkeypatch, doubled, both)
    sides = [{doubled[at].tobytes() for at in parts[name]} for name in ("train", "valid")]
    assert not sides[0] & sides[1]


def test_classes_are_in_like_shares(monkeypatch):
    X, _ = waves(count=60)
    y = np.array([0] * 45 + [1] * 15)
    parts = parts_of(monkeypatch, X, y)
    assert abs(y[parts["valid"]].mean() - 0.25) < 0.1


def test_without_validation_everything_is_learned_from(monkeypatch):
    X, y = waves()
    parts = parts_of(monkeypatch, X, y, validation_fraction=0.0)
    assert len(parts["train"]) == 24 and not len(parts["valid"])
    fitted = SequenceClassifier(**TINY, validation_fraction=0).fit(X, y)
    assert not any(name.startswith("valid") for name in fitted.history_[0])


def test_groups_of_another_length_are_refused():
    X, y = waves()
    with pytest.raises(DataError, match="groups"):
        SequenceClassifier(**TINY).fit(X, y, groups=[1, 2])


# scikit-learn's tools


def test_parameters_and_clone():
    estimator = SequenceClassifier("lstm", model_options={"dropout": 0.1}, steps=3)
    copy = clone(estimator)
    assert copy.get_params() == estimator.get_params() and copy is not estimator
    assert copy.set_params(steps=5, model="gru").steps == 5
    assert "steps=3" in repr(estimator)
    with pytest.raises(ValueError, match="Invalid parameter"):
        estimator.set_params(step=3)


def test_pickle_holds_plain_values_only(classifier):
    state = classifier.__getstate__()
    assert isinstance(state["model_"], dict)
    assert all(type(value) is np.ndarray for value in state["model_"]["weights"].values())
    text = pickle.dumps(classifier)
    assert b"lightning" not in text and b"torch" not in text
    clone(pickle.loads(text))


@pytest.mark.process
def test_a_new_process_predicts_the_same(classifier, tmp_path):
    X, _ = waves()
    (tmp_path / "model.pickle").write_bytes(pickle.dumps(classifier))
    np.save(tmp_path / "X.npy", X)
    code = (
        "import pickle, sys, numpy as np\n"
        "model = pickle.load(open('model.pickle', 'rb'))\n"
        "np.save('p.npy', model.predict_proba(np.load('X.npy')))\n"
        "assert 'lightning.pytorch.trainer' not in sys.modules\n"
    )
    source = str(Path(undamped.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": source}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, env=environment)
    np.testing.assert_array_equal(np.load(tmp_path / "p.npy"), classifier.predict_proba(X))


def test_pipeline_and_cross_validation():
    X, y = waves()
    pipeline = make_pipeline(FunctionTransformer(np.diff, kw_args={"axis": 1}), clone_tiny())
    assert cross_val_score(pipeline, X, y, cv=2).shape == (2,)
    assert pipeline.fit(X, y).predict(X).shape == (24,)
    ragged = [x[: 20 + at % 5] for at, x in enumerate(X)]
    scores = cross_val_score(clone_tiny(), ragged, y, cv=GroupKFold(2), groups=np.arange(24) // 4)
    assert np.isfinite(scores).all()


def clone_tiny():
    return SequenceClassifier(**TINY)


@pytest.mark.process
def test_grid_search_alone_and_in_processes():
    X, y = waves(count=12)
    grid = {"hidden_size": [2, 4]}
    alone = GridSearchCV(clone_tiny(), grid, cv=2, n_jobs=1).fit(X, y)
    together = GridSearchCV(clone_tiny(), grid, cv=2, n_jobs=2).fit(X, y)
    assert alone.best_params_ == together.best_params_
    np.testing.assert_array_equal(
        alone.cv_results_["mean_test_score"], together.cv_results_["mean_test_score"]
    )
    np.testing.assert_array_equal(alone.predict_proba(X), together.predict_proba(X))


def test_runs_are_removed_or_kept(tmp_path, monkeypatch):
    import tempfile

    from undamped.lab.training import Run

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    X, y = waves()
    gone = clone_tiny().fit(X, y)
    assert gone.run_path_ is None and not list((tmp_path / "temporary").iterdir())
    kept = SequenceClassifier(**TINY, run_folder=tmp_path / "runs").fit(X, y)
    assert kept.run_path_ is not None
    assert Run.open(kept.run_path_).settings["status"] == "finished"
    np.testing.assert_array_equal(kept.predict_proba(X), gone.predict_proba(X))


def test_fitting_is_quiet(capfd):
    clone_tiny().fit(*waves())
    said = capfd.readouterr()
    assert said.out == "" and said.err == ""


# Streams


@pytest.mark.parametrize("options", [{}, {"model": "lstm"}, {"missing": "mask"}])
def test_a_stream_ends_where_predict_does(options):
    X, y = waves()
    if "missing" in options:
        X[:, 5:8, 0] = np.nan
    fitted = SequenceClassifier(**{**TINY, **options}).fit(X, y)
    answers = list(fitted.stream(X[0]))
    assert len(answers) == X.shape[1]
    np.testing.assert_allclose(answers[-1], fitted.predict_proba(X[:1])[0], atol=1e-6)
    np.testing.assert_allclose(answers[9], fitted.predict_proba(X[:1, :10])[0], atol=1e-6)


def test_a_stream_of_numbers():
    X, _ = waves(channels=1)
    fitted = SequenceRegressor(**TINY).fit(X, np.arange(24.0))
    *_, last = fitted.stream(X[0, :, 0])
    assert last == pytest.approx(fitted.predict(X[:1])[0], abs=1e-4)


# Forecasts


def test_forecasts_beat_the_last_value_on_a_wave():
    wave = 50 + 10 * np.sin(np.arange(300) / 6)
    fitted = SequenceForecaster(
        8,
        window=24,
        model="unicornn",
        hidden_size=16,
        num_layers=1,
        steps=150,
        learning_rate=0.03,
        random_state=0,
    ).fit(wave[:260])
    assert fitted.score(wave) > 0.9
    ahead = fitted.predict(horizon=40)
    assert ahead.shape == (40,)
    np.testing.assert_array_equal(ahead[:8], fitted.predict())
    np.testing.assert_allclose(ahead[:8], wave[260:268], atol=5)


@pytest.mark.parametrize(
    ("X", "shape"),
    [
        (np.arange(60.0), (3,)),
        (np.arange(60.0).tolist(), (3,)),
        (pd.Series(np.arange(60.0)), (3,)),
        (pd.DataFrame({"a": np.arange(60.0), "b": 1.0}), (3, 2)),
        (np.arange(120.0).reshape(2, 60), (2, 3)),
        (np.arange(240.0).reshape(2, 60, 2), (2, 3, 2)),
        ([np.arange(60.0), np.arange(50.0)], (2, 3, 1)),
    ],
)
def test_forecasts_have_the_form_of_what_came(X, shape):
    fitted = SequenceForecaster(3, **TINY).fit(X)
    assert fitted.predict().shape == shape == fitted.predict(X).shape
    np.testing.assert_array_equal(fitted.predict(), fitted.predict(X))
    assert np.isfinite(np.asarray(fitted.predict())).all()
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict(), fitted.predict())


def test_no_held_back_value_is_learned_from():
    """Whatever the held-back end holds, one step of training on the past gives the same weights."""
    wave = np.sin(np.arange(200) / 5)
    other = wave.copy()
    other[160:] = 7 * np.cos(np.arange(40))
    options = {**TINY, "steps": 1, "window": 20}
    first, second = (SequenceForecaster(5, **options).fit(one) for one in (wave, other))
    assert first.preparation_ == second.preparation_
    assert first.history_[0]["train_loss"] == second.history_[0]["train_loss"]
    assert first.history_[0]["valid_loss"] != second.history_[0]["valid_loss"]


def test_missing_values_in_forecasts():
    wave = np.sin(np.arange(120) / 5)
    wave[[30, 31, 70, 119]] = np.nan
    fitted = SequenceForecaster(4, **TINY).fit(wave)
    assert np.isfinite(fitted.predict()).all() and np.isfinite(fitted.score(wave))


@pytest.mark.parametrize(
    ("X", "options"),
    [
        (np.arange(3.0), {"horizon": 5}),
        (np.arange(30.0), {"horizon": 5, "window": 40}),
        (np.arange(30.0), {"horizon": 0}),
        (np.array([]), {}),
    ],
)
def test_bad_forecasts_get_one_sentence(X, options):
    with pytest.raises(UndampedError):
        SequenceForecaster(**{**TINY, **options}).fit(X)


def test_short_series_are_forecast_without_validation():
    fitted = SequenceForecaster(3, **TINY).fit(np.arange(6.0))
    assert fitted.predict().shape == (3,)
    raced = SequenceForecaster(3).fit([1.0, 3.0, 2.0, 4.0, 5.0])
    assert raced.predict() == pytest.approx([5.0, 5.0, 5.0]) and not raced.tried_
    with pytest.raises(DataError, match="quantiles need a validation split"):
        raced.predict(quantiles=(0.1, 0.9))
    with pytest.raises(OptionError, match="must be > 0 to compare"):
        SequenceForecaster(3, validation_fraction=0).fit(np.arange(60.0))


def year(count=96, seed=0):
    step = np.arange(count)
    noise = np.random.default_rng(seed).normal(size=count)
    return 100 + 0.5 * step + 20 * np.sin(2 * np.pi * step / 12) + 2 * noise


def test_forecasters_race_unless_one_is_named():
    values, names = year(), ["guess", "seasonal-naive", "ridge-lags"]
    options = {"model_options": {"candidates": names}, "random_state": 0}
    fitted = SequenceForecaster(12, **options).fit(values[:-12])
    assert [one["model"] for one in fitted.tried_] == names
    naive = SequenceForecaster(12, model="seasonal-naive").fit(values[:-12])
    np.testing.assert_allclose(naive.predict(), values[-24:-12], rtol=1e-6)
    errors = [np.abs(values[-12:] - one.predict()).mean() for one in (fitted, naive)]
    assert errors[0] < errors[1] and fitted.season_ == 12
    assert SequenceForecaster(12, season=1, model="seasonal-naive").fit(values).season_ == 1


@pytest.mark.slow
@pytest.mark.parametrize("model", ["ridge-lags", "seasonal-naive", "ets", "bank", "unicornn"])
def test_quantiles_of_forecasts(model):
    tiny = {"steps": 20, "hidden_size": 4} if model == "unicornn" else {}
    values = year(150)
    fitted = SequenceForecaster(4, model=model, random_state=0, **tiny).fit(values[:146])
    bounds = fitted.predict(quantiles=(0.1, 0.5, 0.875, 0.9))
    assert bounds.shape == (4, 4) and (np.diff(bounds, axis=1) >= 0).all()
    assert (bounds[:, 0] < bounds[:, 3]).all()
    assert np.abs(bounds[:, 1] - fitted.predict()).max() < 20
    if model == "ridge-lags":
        covered = [
            fitted.predict(values[:stop], quantiles=(0.1, 0.9))[0] for stop in range(60, 150)
        ]
        inside = [low <= new <= high for (low, high), new in zip(covered, values[60:], strict=True)]
        assert np.mean(inside) > 0.7
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict(quantiles=(0.1,)), bounds[:, :1])
    with pytest.raises(OptionError, match=r"numbers from 0\.01 to 0\.99"):
        fitted.predict(quantiles=(0.001,))
    with pytest.raises(OptionError, match="a horizon of at most 4 steps"):
        fitted.predict(horizon=9, quantiles=(0.5,))


@pytest.mark.parametrize(
    ("index", "first", "last"),
    [
        (pd.date_range("2016-01-31", periods=96, freq="ME"), "2024-01-31", "2024-04-30"),
        (pd.period_range("2000Q1", periods=96, freq="Q"), "2024Q1", "2024Q4"),
        (pd.date_range("2024-01-01", periods=96, freq="h", tz="UTC"), None, "2024-01-05 03:00"),
        (pd.Index(np.arange(10, 298, 3), name="step"), 298, 307),
        (pd.to_timedelta(np.arange(96), "s"), pd.Timedelta(96, "s"), pd.Timedelta(99, "s")),
        (pd.Index([f"day {i}" for i in range(96)]), 1, 4),
    ],
)
def test_the_index_of_forecasts_goes_on(index, first, last):
    one = pd.Series(year(), index, name="sales")
    asked = {"horizon": 4, "season": 12, "model": "ridge-lags"}
    fitted = SequenceForecaster(**asked).fit(one)
    ahead = fitted.predict()
    assert isinstance(ahead, pd.Series) and ahead.name == "sales"
    if isinstance(index, (pd.DatetimeIndex, pd.PeriodIndex)):
        wanted = index[-1] + index.freq * np.arange(1, 5)
        assert list(ahead.index) == list(wanted) and str(ahead.index[-1]).startswith(last)
    else:
        assert ahead.index[0] == first and ahead.index[-1] == last
    assert type(ahead.index).__name__ in (type(index).__name__, "RangeIndex")
    band = fitted.predict(one[:90], quantiles=(0.1, 0.9))
    assert list(band.columns) == [0.1, 0.9] and len(band) == 4
    np.testing.assert_allclose(ahead, SequenceForecaster(**asked).fit(year()).predict())


def test_frames_of_forecasts_go_on():
    days = pd.date_range("2024-01-01", periods=96)
    frame = pd.DataFrame({"a": year(), "b": year(seed=1)}, days)
    fitted = SequenceForecaster(3, model="ridge-lags").fit(frame)
    ahead, band = fitted.predict(), fitted.predict(quantiles=(0.1, 0.9))
    assert list(ahead) == ["a", "b"] and str(ahead.index[0].date()) == "2024-04-06"
    assert list(band["b"]) == [0.1, 0.9] and band.index.equals(ahead.index)
    shops = pd.concat({"x": frame[:90], "y": frame}, names=["shop", "day"])
    both = SequenceForecaster(3, model="ridge-lags").fit(shops).predict()
    assert both.index.names == ["shop", "day"] and both.shape == (6, 2)
    assert both.loc["x"].index[0] == days[90] and both.loc["y"].index[0] == ahead.index[0]


# The examples in the docstrings


@pytest.mark.parametrize("member", [SequenceClassifier, SequenceRegressor, SequenceForecaster])
def test_examples_run(member):
    import doctest

    from undamped._base.docstrings import sections

    example = sections(member)["Example"]
    test = doctest.DocTestParser().get_doctest(
        example, {member.__name__: member}, member.__name__, None, 0
    )
    assert doctest.DocTestRunner().run(test).failed == 0
