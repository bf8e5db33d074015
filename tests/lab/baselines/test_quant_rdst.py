"""QUANT and RDST: the answers of aeon's classifiers, unequal lengths, gaps and runs."""

import os
import subprocess
import sys

import numba
import numpy as np
import pytest
import torch

import undamped
from lab.baselines.test_baselines import as_batch, drawn_seed, learnt, task_of, waves
from undamped._base.contract import Batch, TaskShape
from undamped._base.errors import DataError
from undamped.lab.baselines.whole_series import _series_of, preserve_global_state
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.tasks.series import SeriesTask
from undamped.lab.training import Run, fit

pytest.importorskip("aeon")


def ragged(count=24, steps=40):
    """Return a task of series of one to two lengths, the last ones the shortest."""
    series, classes = waves(count, steps=steps)
    cut = [one[0, : steps - i % 7, None] for i, one in enumerate(series)]
    return SeriesTask(SeriesSet.of(cut, targets=classes))


@pytest.mark.parametrize("channels", [1, 2])
def test_quant_has_the_probabilities_of_aeon(channels):
    """aeon draws the seed of its forest; ours gets it before the second fit."""
    from aeon.classification.interval_based import QUANTClassifier

    series, classes = waves(40, channels, classes=3)
    series, new = series.astype(np.float32), waves(30, channels, classes=3)[0].astype(np.float32)
    with preserve_global_state():
        theirs = QUANTClassifier(random_state=3).fit(series, classes)
        expected = theirs.predict_proba(new)
    torch.manual_seed(0)
    model = undamped.lab.baselines.QUANT(TaskShape(channels, 3))
    model.fit_closed_form([as_batch(series[:30], classes[:30])])
    model.arrays.store(seed=torch.tensor(theirs.estimator_.random_state))
    model.refit([as_batch(series[30:], classes[30:])])
    result = model(as_batch(new, classes[:30])).double().softmax(1).detach().numpy()
    np.testing.assert_allclose(result, (200 * expected + 1 / 3) / 201, atol=1e-6)


def test_quant_answers_numbers_as_a_forest_of_scikit_learn():
    from sklearn.ensemble import ExtraTreesRegressor

    series, _ = waves(30)
    expected = np.stack([series.mean((1, 2)), series.std((1, 2))], 1)
    torch.manual_seed(0)
    model = undamped.lab.baselines.QUANT(TaskShape(1, 2, answer="number"), trees=7)
    torch.manual_seed(1)
    x = torch.from_numpy(series).float().permute(2, 0, 1)
    model.fit_closed_form([Batch(x, torch.from_numpy(expected))])
    table = model._transform(list(series.astype(np.float32)))
    forest = ExtraTreesRegressor(7, max_features=0.1, random_state=drawn_seed())
    forest.fit(table, expected)
    np.testing.assert_allclose(model(Batch(x)).detach(), forest.predict(table), atol=1e-6)


def test_quant_resamples_other_lengths(tmp_path):
    run = fit("quant", ragged(), model_options={"trees": 20}, out=tmp_path, progress=False)
    model = Run.open(run.path).model()
    length = int(model.arrays["length"])
    assert run.settings["result"]["test"]["accuracy"] > 0.5 and 34 <= length <= 40
    line = np.linspace(-1.0, 1.0, 2 * length - 1, dtype=np.float32)[None]
    result, expected = model._transform([line]), model._transform([line[:, ::2]])
    np.testing.assert_allclose(result, expected, atol=1e-5)
    short = learnt("quant", *waves(12, steps=3), trees=5)  # shorter than its intervals need
    assert torch.isfinite(short(as_batch(*waves(4, steps=5)))).all()


@pytest.mark.parametrize("name", ["quant", "rdst"])
def test_gaps_are_refused(name):
    series, classes = waves(12)
    series[3, 0, 5:9] = np.nan
    model = undamped.build(name, shape=TaskShape(1, 2))
    with pytest.raises(DataError, match="cannot use series with missing values"):
        model.fit_closed_form([as_batch(series, classes)])


def test_rdst_refuses_very_short_series(tmp_path):
    with pytest.raises(DataError, match="at least 4 steps, got 3"):
        fit("rdst", task_of(*waves(20, steps=3)), out=tmp_path, progress=False)
    assert not list(tmp_path.iterdir())


@pytest.mark.process
def test_rdst_has_the_answers_of_aeon_for_unequal_lengths():
    """In a process without compilation, which takes aeon longer than its loops in Python."""
    test = f"{__file__}::test_rdst_in_python"
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"}, capture_output=True, text=True,
    )  # fmt: skip
    assert "1 passed" in ended.stdout, ended.stdout


@pytest.mark.skipif(not numba.config.DISABLE_JIT, reason="runs in a process without compilation")
def test_rdst_in_python(tmp_path):
    from aeon.classification.shapelet_based import RDSTClassifier

    task = ragged()
    run = fit("rdst", task, model_options={"shapelets": 10}, out=tmp_path, progress=False)
    assert run.settings["result"]["test"]["accuracy"] > 0.5 and not list(run.path.rglob("*.pkl"))
    batch, new = (task.batch(split, 0, 20) for split in ("train", "test"))
    torch.manual_seed(0)
    model = undamped.lab.baselines.RDST(task.task_shape, shapelets=10)
    torch.manual_seed(1)
    model.fit_closed_form([batch])
    seed = drawn_seed()
    known, asked = (model._prepare(_series_of(part)[0]) for part in (batch, new))
    with preserve_global_state():
        theirs = RDSTClassifier(max_shapelets=10, random_state=seed)
        theirs.fit(known, batch.targets.numpy())
        expected = theirs.estimator_.decision_function(theirs.transformer_.transform(asked))
    assert float(model.arrays["penalty"]) == pytest.approx(theirs.estimator_[-1].alpha_)
    outputs = model(new).detach().numpy()
    result = outputs[:, 1] - outputs[:, 0]
    factor = (result * expected).sum() / (expected * expected).sum()
    np.testing.assert_allclose(result, factor * expected, atol=1e-4 * factor)
    # A stored model has the same answers, without another fit of the transform.
    repeated = undamped.lab.baselines.RDST(task.task_shape, shapelets=10)
    repeated.load_state_dict(model.state_dict())
    torch.testing.assert_close(repeated(new), model(new))
    # A series that is too short for the shapelets is extended by its last value.
    steps = int(model.arrays["least_steps"]) - 3
    cut = new._replace(inputs=new.inputs[:steps, :2], lengths=torch.tensor([steps, steps - 1]))
    last = torch.stack((cut.inputs[-1, 0], cut.inputs[-2, 1]))
    longer = torch.cat(
        (cut.inputs[:-1], torch.stack((cut.inputs[-1, 0], last[1]))[None], *[last[None]] * 3)
    )
    lengths = torch.tensor([steps + 3, steps + 2])
    torch.testing.assert_close(model(cut), model(Batch(longer, lengths=lengths)))
