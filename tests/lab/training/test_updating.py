"""Updates: equal to one fit to everything, versions, drift, and what is refused."""

import json

import numpy as np
import pandas as pd
import pytest
import torch

from undamped._base.errors import DataError, OptionError, RunError
from undamped.lab.baselines.ridge import fit_ridge
from undamped.lab.baselines.statistics import RidgeStatistics
from undamped.lab.data.recordings.drift import distance
from undamped.lab.data.recordings.preparation import Preparation
from undamped.lab.data.recordings.read import read_recordings
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.training import Run, fit
from undamped.lab.training.updating import statistics_of, store_statistics, update


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def waves(path, count, seed, scale=1.0, labels=("slow", "fast"), channels=("x", "y"), start=None):
    random = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        kind = number % 2
        for step in range(25):
            row = {"id": f"s{seed}-{number}", "kind": labels[kind]}
            wave = np.sin(step * (1.2 if kind else 0.3))
            row |= {name: scale * (wave + 0.3 * random.normal()) for name in channels}
            if start is not None:
                row["when"] = str(start + np.timedelta64(number * 25 + step, "h"))
            rows.append(row)
    pd.DataFrame(rows).to_csv(path, index=False)
    return path


def trained(model="bank", more=(), **options):
    return fit(
        model,
        "recordings",
        model_options={"oscillators": 20} if model == "bank" else options,
        task_options={"file": "waves.csv", "target": "kind", "id": "id"},
        train=dict(more),
        progress=False,
    )


def labelled(path):
    return read_recordings(path, target="kind", id="id")


@pytest.mark.parametrize("shape", [(40, 12), (12, 40)])
def test_ten_increments_equal_one_fit_and_the_ridge_regression(shape):
    samples, features = shape
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(samples, features, generator=generator, dtype=torch.float64)
    y = torch.randn(samples, 3, generator=generator, dtype=torch.float64)
    weights = torch.rand(samples, generator=generator, dtype=torch.float64) + 0.1
    for penalty in (1e-3, 1.0, 1e3):
        whole, parts = (RidgeStatistics.empty(features, 3) for _ in range(2))
        whole.add(x, y, weights)
        for rows in torch.arange(samples).chunk(10):
            parts.add(x[rows], y[rows], weights[rows])
        ridge = fit_ridge(x, y, penalty, weights=weights)
        for statistics in (whole, parts):
            weight, bias = statistics.solve(penalty)
            torch.testing.assert_close(weight, ridge.weight, atol=1e-9, rtol=0)
            torch.testing.assert_close(bias, ridge.bias, atol=1e-9, rtol=0)


def test_memory_is_constant_for_a_million_samples():
    statistics, generator = RidgeStatistics.empty(8, 1), torch.Generator().manual_seed(0)
    moments, slope = torch.zeros(9, 9, dtype=torch.float64), torch.arange(8.0).double()
    for _ in range(100):
        x = torch.randn(10_000, 8, generator=generator, dtype=torch.float64)
        y = (x @ slope + 2).unsqueeze(1)
        statistics.add(x, y)
        assert len(statistics.factor) <= 2 * 10
        table = torch.cat((torch.ones(len(x), 1).double(), x), 1)
        moments += table.T @ table
    assert statistics.samples == 1_000_000
    weight, bias = statistics.solve(1e-3)
    torch.testing.assert_close(weight[0], slope, atol=1e-8, rtol=0)
    assert float(bias) == pytest.approx(2)
    factor = statistics.factor[:, :9]
    torch.testing.assert_close(factor.T @ factor, moments, rtol=1e-9, atol=1e-4)


def test_increments_of_a_run_equal_one_update(tmp_path):
    waves("waves.csv", 24, 0)
    run = trained()
    store_statistics(run)
    (tmp_path / "waves.csv").unlink()  # the training recordings are needed no more
    everything = labelled(waves("new.csv", 20, 7))
    one = update(run, everything).run
    many = run
    for rows in np.arange(20).reshape(10, 2):
        many = update(many, everything.take(rows)).run
    exact = [statistics_of(version).solve(1.0) for version in (one, many)]
    torch.testing.assert_close(exact[0], exact[1], atol=1e-9, rtol=0)
    readouts = [version.model().state_dict()["readout.weight"] for version in (run, one, many)]
    torch.testing.assert_close(readouts[1], readouts[2], atol=1e-6, rtol=0)  # single precision
    assert float((readouts[0] - readouts[1]).abs().max()) > 1e-6
    assert len(many.settings["updates"]) == 10 and one.settings["updated_from"] == str(run.path)
    assert "result" in run.settings and "result" not in one.settings
    assert sorted(path.name for path in run.path.parent.iterdir() if path.name[0] == ".") == []


def test_the_statistics_are_those_of_the_training(tmp_path):
    waves("waves.csv", 24, 0)
    run = trained()
    new = labelled(waves("new.csv", 20, 7))
    assert update(run, new).run.model().readout.weight.dtype == torch.float32
    waves("waves.csv", 24, 1)  # the file was replaced
    with pytest.raises(RunError, match="have changed"):
        update(Run.open(run.path), new)
    (tmp_path / "waves.csv").unlink()
    with pytest.raises(RunError, match="needs the training recordings"):
        update(Run.open(run.path), new)


def test_drift_is_reported():
    waves("waves.csv", 24, 0)
    run = trained()
    same = update(run, labelled(waves("same.csv", 24, 5))).drift
    assert same["changed"] == []
    moved = labelled(waves("moved.csv", 24, 5, scale=3.0, labels=("slow", "slow")))
    moved.series[0][:] = np.nan
    report = update(run, moved).drift
    text = " ".join(report["changed"])
    assert "'x': the distribution changed" in text and "of the series are" in text
    json.dumps(report)
    assert distance(list(range(101)), list(range(101))) == 0
    assert distance(list(range(101)), list(range(200, 301))) == 1
    assert distance(list(np.linspace(0, 1, 101)), list(np.linspace(0.5, 1.5, 101))) == (
        pytest.approx(0.5, abs=0.02)
    )


def test_bad_input_is_refused_in_one_sentence():
    waves("waves.csv", 24, 0)
    run = trained()
    folders = sorted(run.path.parent.iterdir())
    new = labelled(waves("new.csv", 10, 3))
    cases = (
        (labelled(waves("a.csv", 10, 3, labels=("slow", "stop"))), DataError, "the class 'stop'"),
        (labelled(waves("b.csv", 10, 3, scale=1000.0)), DataError, "in another unit"),
        (labelled(waves("c.csv", 10, 3, channels=("x",))), DataError, "trained on x, y"),
    )
    for data, error, reason in cases:
        with pytest.raises(error, match=reason):
            update(run, data)
    assert sorted(run.path.parent.iterdir()) == folders
    again = update(run, new).run
    with pytest.raises(DataError, match="used for an update before"):
        update(again, new)
    numbers = SeriesSet.of(np.random.default_rng(0).normal(size=(6, 4, 1)), np.arange(6.0))
    with pytest.raises(DataError, match="trained on numbers"):
        Preparation.fit(numbers, kind="regression").encode(np.array(["slow"]))
    boosting = trained("boosting")
    with pytest.raises(OptionError, match="cannot learn on"):
        update(boosting, new)


def test_recordings_before_the_end_of_training_are_refused():
    start = np.datetime64("2024-01-01T00")
    waves("waves.csv", 24, 0, start=start)
    options = {"file": "waves.csv", "target": "kind", "id": "id", "time": "when"}
    run = fit(
        "bank",
        "recordings",
        model_options={"oscillators": 20},
        task_options={**options, "timestamps": False},
        progress=False,
    )
    later = start + np.timedelta64(1000, "h")
    dated = {"target": "kind", "id": "id", "time": "when"}
    newer = update(run, read_recordings(waves("new.csv", 6, 3, start=later), **dated)).run
    with pytest.raises(DataError, match="before the end of the recordings"):
        update(newer, read_recordings(waves("old.csv", 6, 4, start=later), **dated))


def test_a_network_continues_and_is_guarded():
    waves("waves.csv", 40, 0)
    options = {"steps": 150, "learning_rate": 1e-2, "batch_size": 8}
    run = trained("gru", more=options.items(), hidden_size=8)
    result = update(run, labelled(waves("new.csv", 16, 3)), lose=0.5)
    before, after = result.scores
    assert after >= 0.5 * before
    weights = [version.model().state_dict() for version in (run, result.run)]
    assert any(not torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    wrong = labelled(waves("wrong.csv", 160, 3, labels=("fast", "slow")))
    with pytest.raises(DataError, match="The update was discarded"):
        update(run, wrong, lose=0.0)
