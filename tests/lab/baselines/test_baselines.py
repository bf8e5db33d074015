"""Rivals: the same answers as the libraries they come from, runs like any other, and refusals."""

import json

import numpy as np
import pytest
import torch

import undamped
from undamped.__main__ import main
from undamped._base.contract import Batch, TaskShape
from undamped._base.errors import DataError, MissingPackageError, OptionError
from undamped.lab.baselines.boosting import summary
from undamped.lab.baselines.whole_series import preserve_global_state
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.tasks.series import SeriesTask
from undamped.lab.training import Run, fit
from undamped.lab.training.streaming import SampleStream

WITH_AEON = ("minirocket", "multirocket-hydra", "dtw", "quant")
RIVALS = (*WITH_AEON, "boosting", "guess")
SMALL = {
    "minirocket": {"kernels": 168},
    "multirocket-hydra": {"kernels": 168, "groups": 4},
    "boosting": {"rounds": 10},
    "quant": {"trees": 20},
}


def waves(count, channels=1, steps=40, classes=2):
    """Return series (count, channels, steps) of two or more rhythms, and their classes."""
    random = np.random.default_rng(0)
    which = np.arange(count) % classes
    phase = random.uniform(0, 6, (count, channels, 1))
    clean = np.sin((0.3 + 0.4 * which)[:, None, None] * np.arange(steps) + phase)
    return clean + 0.5 * random.normal(size=clean.shape), which


def as_batch(series, classes):
    x = torch.from_numpy(series).float().permute(2, 0, 1)
    return Batch(x, torch.from_numpy(classes))


def learnt(name, series, classes, **options):
    torch.manual_seed(0)
    outputs = int(classes.max()) + 1
    model = undamped.build(name, shape=TaskShape(series.shape[1], outputs), **options)
    torch.manual_seed(1)
    model.fit_closed_form([as_batch(series, classes)])
    model.refit([])
    return model


def drawn_seed():
    torch.manual_seed(1)
    return int(torch.randint(1 << 31, ()))


def theirs_mini(series, new, seed):
    from aeon.transformations.collection.convolution_based import MiniRocket
    from sklearn.preprocessing import StandardScaler

    transform, scale = MiniRocket(random_state=seed), StandardScaler(with_mean=False)
    known = scale.fit_transform(transform.fit_transform(series).astype(np.float64))
    return known, scale.transform(transform.transform(new).astype(np.float64))


def theirs_multi(series, new, seed):
    from aeon.classification.convolution_based._hydra import _SparseScaler
    from aeon.transformations.collection.convolution_based import HydraTransformer, MultiRocket
    from sklearn.preprocessing import StandardScaler

    rocket, hydra = MultiRocket(random_state=seed), HydraTransformer(n_groups=4, random_state=seed)
    sparse, scale = _SparseScaler(), StandardScaler()
    known = (
        sparse.fit_transform(hydra.fit_transform(series)),
        scale.fit_transform(rocket.fit_transform(series).astype(np.float64)),
    )
    asked = (
        sparse.transform(hydra.transform(new)),
        scale.transform(rocket.transform(new).astype(np.float64)),
    )
    return np.concatenate(known, 1), np.concatenate(asked, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options", "channels", "theirs"),
    [
        ("minirocket", {}, 1, theirs_mini),
        ("minirocket", {}, 3, theirs_mini),
        ("multirocket-hydra", {"groups": 4}, 1, theirs_multi),
    ],
)
def test_answers_are_those_of_the_transform_and_the_ridge_of_others(
    name, options, channels, theirs
):
    """By aeon's transforms and scikit-learn's regression, as aeon's classifiers join them."""
    from sklearn.linear_model import RidgeClassifierCV

    series, classes = waves(40, channels, classes=3)
    new = waves(60, channels, classes=3)[0].astype(np.float32)
    model = learnt(name, series, classes, **options)
    with preserve_global_state():
        known, asked = theirs(series.astype(np.float32), new, drawn_seed())
    ridge = RidgeClassifierCV(alphas=np.logspace(-3, 3, 10)).fit(known, classes)
    assert float(model.arrays["penalty"]) == pytest.approx(float(ridge.alpha_))
    result = model(as_batch(new, classes)).detach().numpy()
    expected = ridge.decision_function(asked)
    factor = (result * expected).sum() / (expected * expected).sum()
    np.testing.assert_allclose(result, factor * expected, atol=2e-3 * factor)


@pytest.mark.parametrize("classes", [2, 3])
def test_trees_kept_as_arrays_answer_as_scikit_learn_does(classes):
    from sklearn.ensemble import GradientBoostingClassifier

    series, which = waves(40, 2, classes=classes)
    new, _ = waves(55, 2, classes=classes)
    model = learnt("boosting", series, which, rounds=15)

    def table(series):
        single = series.astype(np.float32)
        return np.stack([summary(one, np.ones(one.shape, dtype=bool)) for one in single])

    seed = drawn_seed()
    trees = GradientBoostingClassifier(
        n_estimators=15, max_features="sqrt", subsample=0.8, random_state=seed
    ).fit(table(series), which)
    output = model(as_batch(new, which)).detach().numpy()
    expected = trees.decision_function(table(new))
    result = output[:, 1] - output[:, 0] if classes == 2 else output
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def test_numbers_are_boosted_one_by_one():
    from sklearn.ensemble import GradientBoostingRegressor

    series, _ = waves(40)
    expected = np.stack([series.mean((1, 2)), series.std((1, 2))], 1)
    torch.manual_seed(0)
    model = undamped.lab.baselines.SummaryBoosting(TaskShape(1, 2, answer="number"), rounds=5)
    torch.manual_seed(1)
    x = torch.from_numpy(series).float().permute(2, 0, 1)
    model.fit_closed_form([Batch(x, torch.from_numpy(expected))])
    table = np.stack([summary(one, np.ones(one.shape, dtype=bool)) for one in series.astype("f")])
    for number in range(2):
        trees = GradientBoostingRegressor(
            n_estimators=5, max_features="sqrt", subsample=0.8, random_state=drawn_seed()
        ).fit(table, expected[:, number])
        result = model(Batch(x))[:, number].detach().numpy()
        np.testing.assert_allclose(result, trees.predict(table), rtol=1e-5, atol=1e-6)


def test_summaries_look_at_what_was_measured_alone():
    series, _ = waves(1, 2)
    seen = np.random.default_rng(0).random((2, 40)) > 0.3
    first = summary(np.where(seen, series[0], 0.0), seen)
    second = summary(np.where(seen, series[0], np.nan), seen)
    assert np.array_equal(first, second) and np.isfinite(first).all()
    nothing = summary(np.full((2, 3), np.nan), np.zeros((2, 3), dtype=bool))
    assert len(nothing) == len(first) and np.isfinite(nothing).all()


def warped(a, b):
    """Dynamic time warping over all paths, by its recursion."""
    best = np.full((len(a) + 1, len(b) + 1), np.inf)
    best[0, 0] = 0.0
    for i in range(len(a)):
        for j in range(len(b)):
            before = min(best[i, j], best[i, j + 1], best[i + 1, j])
            best[i + 1, j + 1] = np.square(a[i] - b[j]).sum() + before
    return best[-1, -1]


def test_the_nearest_series_answers_whatever_its_length():
    series, which = waves(12, 2, steps=14)
    lengths = torch.tensor([14, 9, 14, 11] * 3)
    batch = as_batch(series, which)._replace(lengths=lengths)
    torch.manual_seed(0)
    model = undamped.lab.baselines.NearestDTW(TaskShape(2, 2), warping=1.0)
    model.fit_closed_form([batch])
    model.refit([])
    asked, _ = waves(5, 2, steps=13)
    own = [one[:, :n].T for one, n in zip(series, lengths.tolist(), strict=True)]
    nearest = [int(np.argmin([warped(one.T, other) for other in own])) for one in asked]
    output = model(as_batch(asked, which[:5])).detach()
    assert output.argmax(1).tolist() == which[nearest].tolist()
    assert 0.5 < float(output.softmax(1).max()) < 1


def task_of(series, classes, **options):
    return SeriesTask(SeriesSet.of(list(series.transpose(0, 2, 1)), targets=classes), **options)


@pytest.mark.parametrize("name", RIVALS)
def test_a_run_of_a_rival_is_a_run_like_any_other(name, tmp_path):
    task = task_of(*waves(60))
    state, threads = np.random.get_state()[1].copy(), torch.get_num_threads()
    run = fit(name, task, model_options=SMALL.get(name), out=tmp_path, progress=False)
    assert np.array_equal(np.random.get_state()[1], state)
    assert torch.get_num_threads() == threads
    settings = Run.open(run.path).settings
    result = settings["result"]
    assert result["test"]["accuracy"] >= (0.8 if name != "guess" else 0.3)
    assert settings["model"]["parameters"] >= 2
    assert not list(run.path.rglob("*.pkl"))
    model = Run.open(run.path).model()
    batch = task.batch("test", 0, 9)
    right = model(batch).argmax(1) == batch.targets
    assert float(right.float().mean()) == pytest.approx(result["test"]["accuracy"])
    repeated = fit(name, task, model_options=SMALL.get(name), out=tmp_path, progress=False)
    assert repeated.settings["result"]["test"] == result["test"]
    if name == "guess":
        return
    with pytest.raises(OptionError, match="cannot follow a stream"):
        SampleStream(model, task.preparation)


@pytest.mark.parametrize(
    ("name", "options", "measured"),
    [
        ("boosting", {"rounds": 2}, {"confusion"}),
        ("bank", {"oscillators": 20}, {"confusion", "promises"}),
    ],
)
def test_what_is_fitted_at_once_is_judged_by_its_score(name, options, measured, tmp_path):
    task = task_of(*waves(20))
    run = fit(name, task, model_options=options, out=tmp_path, progress=False)
    from undamped.lab.report import page
    from undamped.lab.report.runs import report_run

    report = report_run(run)
    assert report.verdict.startswith("test accuracy ") and ", naive baseline " in report.verdict
    assert report.tone == "good" and not report.remedies
    assert set(report.results) == measured
    assert "closed form" in report.left_out["gradient_flow"]
    text = page([report])
    assert "gradients explode" not in text and "train.clip=1" not in text
    assert "Training: loss" not in text  # one point is no curve


def test_the_page_of_a_forecast_opens_with_its_score(tmp_path):
    days = np.arange(200)
    series = 10 + np.sin(days * 2 * np.pi / 7) + 0.01 * days
    task = SeriesTask(SeriesSet.of([series[:, None]]), horizon=3)
    run = fit("ridge-lags", task, out=tmp_path, progress=False)
    from undamped.lab.report.page import headline
    from undamped.lab.report.runs import report_run

    report = report_run(run)
    assert report.verdict.startswith(f"test {task.metric.replace('_', ' ')} ")
    assert ", naive baseline " in headline([report]) and "gradients" not in headline([report])


@pytest.mark.parametrize("name", ["minirocket", "multirocket-hydra"])
def test_unequal_lengths_are_refused_before_anything_is_written(name, tmp_path):
    series, classes = waves(20)
    ragged = [one[0, : 40 - i % 3, None] for i, one in enumerate(series)]
    task = SeriesTask(SeriesSet.of(ragged, targets=classes))
    with pytest.raises(DataError, match=r"one length.*38 to 40 steps.*bank"):
        fit(name, task, out=tmp_path, progress=False)
    assert not list(tmp_path.iterdir())
    short = task_of(series[:, :, :8], classes)
    with pytest.raises(DataError, match=r"at least (9|10) steps, got 8"):
        fit(name, short, out=tmp_path, progress=False)


def test_another_length_than_that_learnt_from_is_refused():
    series, classes = waves(10)
    model = learnt("minirocket", series, classes, kernels=84)
    with pytest.raises(DataError, match="one of 30 steps after a fit to 40"):
        model(as_batch(series[:, :, :30], classes))


def test_gaps_are_refused_by_whom_they_trouble_and_used_by_whom_they_do_not():
    series, classes = waves(12)
    series[3, 0, 5:9] = np.nan
    model = undamped.lab.baselines.MiniROCKET(TaskShape(1, 2))
    with pytest.raises(DataError, match="cannot use series with missing values"):
        model.fit_closed_form([as_batch(series, classes)])
    output = learnt("boosting", series, classes, rounds=2)(as_batch(series, classes))
    assert torch.isfinite(output).all()
    with pytest.raises(OptionError, match="cannot use masks of missing inputs"):
        undamped.build("minirocket", shape=TaskShape(1, 2, needs=frozenset({"observed"})))


@pytest.mark.parametrize("name", [*WITH_AEON, "rdst"])
def test_without_aeon_a_rival_is_one_sentence(name, tmp_path, monkeypatch, capsys):
    from undamped._base import packages

    monkeypatch.setattr(packages, "_is_installed", lambda package: package != "aeon")
    with pytest.raises(MissingPackageError, match=r"aeon.*pip install"):
        undamped.build(name, shape=TaskShape(1, 2))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["undamped", "train", "digits", name])
    with pytest.raises(SystemExit) as ended:
        main()
    output = capsys.readouterr().err
    assert ended.value.code == 2 and "needs aeon" in output and "Traceback" not in output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", RIVALS)
def test_a_class_with_one_series_and_a_constant_channel(name, tmp_path):
    series, classes = waves(30, channels=2)
    series[:, 1] = 4.0
    classes = np.array(["common", "usual"])[classes]
    classes[0] = "rare"
    run = fit(
        name,
        task_of(series, classes),
        model_options=SMALL.get(name),
        out=tmp_path,
        progress=False,
    )
    assert np.isfinite(run.settings["result"]["test"]["loss"])
    assert any("Constant" in line for line in run.settings["data"])


def test_a_class_that_no_training_series_has():
    series, classes = waves(12)
    for name in ("boosting", "dtw", "minirocket", "quant"):
        torch.manual_seed(0)
        model = undamped.build(name, shape=TaskShape(1, 3), **SMALL.get(name, {}))
        model.fit_closed_form([as_batch(series, classes)])
        assert model(as_batch(series, classes)).argmax(1).max() < 2
    separate = undamped.lab.baselines.SummaryBoosting(TaskShape(1, 3))
    separate.fit_closed_form([as_batch(series, np.ones_like(classes))])
    assert (separate(as_batch(series, classes)).argmax(1) == 1).all()


def test_a_guess_is_the_shares_or_the_mean():
    classes = np.array([0, 0, 1, 0, -1])
    model = undamped.lab.baselines.NaiveBaseline(TaskShape(1, 3))
    model.fit_closed_form([as_batch(waves(5)[0], classes)])
    expected = torch.tensor([4.0, 2.0, 1.0]) / 7
    torch.testing.assert_close(model(torch.zeros(4, 1, 1)).exp(), expected.unsqueeze(0))
    number = undamped.lab.baselines.NaiveBaseline(TaskShape(1, 1, answer="number", readout="every"))
    x = torch.zeros(4, 2, 1)
    targets = torch.tensor([[1.0, 2.0], [3.0, torch.nan], [1.0, 2.0], [3.0, torch.nan]])
    number.fit_closed_form([Batch(x, targets)])
    torch.testing.assert_close(number(x), torch.full((4, 2, 1), 2.0))
    number.refit([Batch(x, targets + 3)])
    torch.testing.assert_close(number.step(x[0])[0], torch.full((2, 1), 3.5))


def test_estimators_take_rivals_and_keep_them_in_pickles(tmp_path):
    import pickle

    series, classes = waves(40)
    x = series[:, 0]
    model = undamped.SequenceClassifier(
        model="minirocket", model_options={"kernels": 84}, random_state=0
    ).fit(x, classes)
    repeated = pickle.loads(pickle.dumps(model))
    assert np.array_equal(repeated.predict_proba(x), model.predict_proba(x))
    assert model.score(x, classes) > 0.9
    run = fit(
        "dtw",
        task_of(series, classes),
        out=tmp_path,
        progress=False,
    )
    assert json.loads((run.path / "run.json").read_text())["status"] == "finished"
