"""Values to come: seasons, quantiles, bands, plain forecasters, backtests, and bad input."""

import json
import sys
from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.signal import lfilter

import undamped
from undamped._base.contract import Batch, Forecast, TaskShape
from undamped._base.errors import DataError, MissingPackageError, OptionError, UndampedError
from undamped.lab.cli import main
from undamped.lab.cli.next_steps import next_steps
from undamped.lab.data.recordings import season
from undamped.lab.data.recordings.bands import Bands
from undamped.lab.data.recordings.grid import future_timestamps
from undamped.lab.data.recordings.season import calendar_seasons, find_season
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.tasks.series import SeriesTask
from undamped.lab.training import Run, fit
from undamped.lab.training.backtest import backtest
from undamped.lab.training.portfolio import closed_form_candidates
from undamped.lab.training.prediction import bounds_around, predict_series, values_ahead

RIVALS = ("seasonal-naive", "ridge-lags", "combination", "ets")


def months(count=144, seed=0, growth=0.01):
    """Return a series with a year, a trend and noise, all of which multiply."""
    random = np.random.default_rng(seed)
    step = np.arange(count)
    year = 1 + 0.2 * np.sin(2 * np.pi * step / 12)
    return 100 * np.exp(growth * step) * year * np.exp(0.02 * random.normal(size=count))


def task_of(values, **options):
    table = values if values.ndim == 2 else values[:, None]
    return SeriesTask(SeriesSet.of([table]), **{"horizon": 6, **options})


# Seasons


@pytest.mark.parametrize(
    ("values", "season"),
    [
        (months(), 12),
        (np.sin(np.arange(400) * 2 * np.pi / 24) + 2 * np.sin(np.arange(400) * 2 * np.pi / 96), 96),
        (np.random.default_rng(0).normal(size=300), 1),
        (np.random.default_rng(0).normal(size=600).cumsum(), 1),
        (np.full(60, 1e6), 1),
        (np.arange(5.0), 1),
    ],
)
def test_seasons_are_found_where_there_are_some(values, season):
    assert find_season([values[:, None]]) == season
    values = values.copy()
    values[::17] = np.nan
    assert find_season([values[:, None]]) == season


@pytest.mark.slow
@pytest.mark.parametrize("memory", [0.0, 0.7, 0.9, 1.0])
def test_noise_has_no_season(memory):
    """White noise, noise that lasts and noise that wanders, of 100 to 300 steps."""
    random = np.random.default_rng(0)
    result = {None: 0, (7,): 0}
    for _ in range(100):
        values = lfilter([1], [1, -memory], random.normal(size=random.integers(100, 301)))
        for candidates in result:
            result[candidates] += find_season([values[:, None]], candidates) > 1
    assert max(result.values()) <= 5, result


def test_series_with_few_values_have_no_season():
    random = np.random.default_rng(0)
    for steps, observed in ((30, 6), (100, 6), (400, 7), (2000, 8)):
        values = np.full((steps, 1), np.nan)
        values[random.choice(steps, observed, replace=False)] = random.normal(size=(observed, 1))
        for candidates in (None, [], [2], [7], [5000]):
            assert find_season([values], candidates) == 1


def test_seasons_of_channels_with_and_without_gaps_are_computed_alike():
    channel = season._Channel(np.random.default_rng(0).normal(size=997))
    for steps in (1, 2, 7, 100, 330):
        errors, phases = channel.errors(steps)
        channel._has_all_steps = False
        expected, count = channel.errors(steps)
        channel._has_all_steps = True
        assert phases == count
        np.testing.assert_allclose(errors, expected, rtol=1e-10)


@pytest.mark.parametrize(
    ("season", "count", "strength"), [(4, 80, 1.2), (7, 250, 0.6), (12, 84, 1.2), (24, 400, 0.7)]
)
def test_seasons_are_found_in_noise_that_lasts(season, count, strength):
    random = np.random.default_rng(season)
    for _ in range(20):
        pattern = random.normal(size=season)
        pattern *= strength / pattern.std()
        noise = lfilter([1], [1, -0.5], random.normal(size=count))
        values = pattern[np.arange(count) % season] + noise + 0.02 * np.arange(count)
        assert find_season([values[:, None]], [season]) == season
    grid = np.arange(3000) % 24 + 10 * (np.arange(3000) // 24 % 7 > 4)  # a day and a week
    noisy = grid + random.normal(size=3000)
    assert find_season([noisy[:, None]]) == 168 == find_season([noisy[:, None]], [24, 168])


@pytest.mark.parametrize(
    ("first", "frequency", "seasons"),
    [
        ("2010-01-01", "MS", (12,)),
        ("2010-01-31", "ME", (12,)),
        ("2010-01-01", "QS", (4,)),
        ("2010-01-01", "W", (52,)),
        ("2010-01-01", "D", (7, 365)),
        ("2010-01-01", "B", (5, 260)),
        ("2010-01-01", "h", (24, 168)),
        ("2010-01-01", "15min", (4, 96, 672)),
        ("2010-01-01", "YS", None),
        ("2010-01-01", "s", None),
        ("1949-01-01", "MS", (12,)),
        ("1970-01-01", "D", (7, 365)),
        ("1970-01-01", "min", None),  # may be numbers that count something else
    ],
)
def test_stamps_name_seasons(first, frequency, seasons):
    timestamps = pd.date_range(first, periods=60, freq=frequency)
    assert calendar_seasons([timestamps.to_numpy("datetime64[s]").astype(float)]) == seasons
    assert calendar_seasons(None) is None


def test_covariates_have_no_say_in_the_season():
    random = np.random.default_rng(0)
    step = np.arange(300)
    sales = 3 * (step % 7) + random.normal(size=300)
    beside = np.sin(2 * np.pi * step / 50)
    both = np.stack([sales, 9 * beside], axis=1)
    assert task_of(both, forecast=("0",)).season == 7
    days = 1.7e9 + 86_400.0 * step
    by_day = SeriesTask(SeriesSet.of([beside[:, None]], times=[days]), horizon=3)
    assert by_day.season == 1  # days have weeks and years


def test_the_season_is_looked_for_in_the_training_part_alone():
    values = np.random.default_rng(0).normal(size=300)
    values[220:] = 9 * np.sin(np.arange(80) * 2 * np.pi / 8)
    assert task_of(values).season == 1
    assert task_of(values, season=8).season == 8
    assert any("No season was detected" in line for line in task_of(values).notes())


def test_windows_belong_to_the_part_of_what_they_predict():
    task = task_of(np.arange(100.0), window=20, season=1, gap=3)
    cut = task.series_set
    first = {n: cut.origin[p, 1] + 20 for n, p in task.splits.items()}
    assert first["train"].max() + 6 <= 70 and 73 <= first["valid"].min() < 80
    assert first["valid"].max() + 6 <= 85 and first["test"].min() >= 88
    assert first["test"].max() + 6 == 100
    earlier = task.redrawn(1)
    repeated = {n: cut.origin[p, 1] + 20 for n, p in earlier.splits.items()}
    assert repeated["train"].max() + 6 <= repeated["valid"].min() < 60
    assert np.array_equal(earlier.splits["test"], task.splits["test"])
    assert task.redrawn(5) is None


# Quantiles and bands


def test_the_pinball_loss_and_what_is_answered():
    task = task_of(months(), quantiles=(0.9, 0.1))
    assert task.quantiles == (0.1, 0.5, 0.9) and task.output_size == 18
    batch = task.batch("train", 0, 4)
    output = torch.randn(4, 18, dtype=torch.float64)
    truth, table = batch.targets.double().numpy(), output.numpy().reshape(4, 6, 3)
    over = truth[..., None] - table
    levels = np.array([0.1, 0.5, 0.9])
    expected = np.maximum(levels * over, (levels - 1) * over).mean()
    assert float(task.loss(output, batch)) == pytest.approx(expected, rel=1e-6)
    total, count = task.score(output, batch)
    unit = task.preparation.target_std[0]
    expected = np.abs(truth - table[..., 1]).mean() * unit
    assert task.finish(float(total) / count) == pytest.approx(expected, rel=1e-6)
    one = output[:, :6]
    assert float(task.loss(one, batch)) == pytest.approx(np.abs(truth - one.numpy()).mean() / 2)
    answer = task.preparation.answer(output.numpy())[0]["forecast"]["0"]
    zero = task.preparation.target_mean[0]
    assert answer == pytest.approx((table[0, :, 1] * unit + zero).tolist())
    assert TaskShape.from_dict(task.task_shape.to_dict()) == task.task_shape


def test_a_network_learns_quantiles(tmp_path):
    random = np.random.default_rng(0)
    task = task_of(random.normal(size=400), horizon=2, window=4, quantiles=(0.1, 0.9), season=1)
    run = fit(
        "gru",
        task,
        model_options={"hidden_size": 4},
        train={"steps": 60, "learning_rate": 0.05, "batch_size": 64, "validate_every": 30},
        out=tmp_path,
        progress=False,
    )
    model = Run.open(run.path).model()
    output = model(task.batch("test", 0, 50)).detach().unflatten(1, (2, 3))
    assert float((output[..., 2] - output[..., 0]).mean()) > 1  # of 2.6
    assert 0.6 < run.result["test"]["coverage"] < 0.95
    outputs = predict_series(model, task.preparation, task.recordings)
    (ahead,) = values_ahead(outputs, task.preparation, run.bands())
    (bounds,) = bounds_around(outputs, task.preparation, run.bands())
    assert np.array_equal(ahead, bounds[..., 1])


def test_bands_are_order_statistics_of_errors():
    random = np.random.default_rng(0)
    truth = random.normal(size=(1999, 2, 1)) * np.array([1.0, 5.0])[:, None]
    bands = Bands.fit(np.zeros_like(truth), truth, (0.1, 0.5, 0.9))
    expected = np.sort(truth, axis=0)[[199, 999, 1799], :, 0].T  # the ⌊2000 q⌋-th, ⌈2000 q⌉-th
    assert np.array(bands.offsets)[:, 0] == pytest.approx(expected)
    repeated = Bands(**json.loads(json.dumps(asdict(bands))))
    assert np.array_equal(repeated.around(np.ones((1, 2, 1))), bands.around(np.ones((1, 2, 1))))


def test_bands_cover_what_is_like_what_they_were_read_from():
    random = np.random.default_rng(1)
    level = np.exp(random.normal(size=(2000, 1, 1)))
    truth = level * np.exp(0.3 * random.normal(size=(2000, 4, 1)))
    output = np.repeat(level, 4, axis=1)
    few = Bands.fit(output[:60], truth[:60], (0.1, 0.9))
    assert few.scale == "log"
    bounds = few.around(output)
    inside = (truth >= bounds[..., 0]) & (truth <= bounds[..., 1])
    assert 0.75 < inside.mean() < 0.9
    small = level[:, 0, 0] < 0.5
    assert abs(inside[small].mean() - inside[~small].mean()) < 0.08


@pytest.mark.parametrize("windows", [1, 3, 8])
def test_bands_of_few_windows_are_not_too_narrow(windows):
    random = np.random.default_rng(windows)
    inside = []
    for _ in range(200):
        errors = lfilter([1], [1, -0.5], random.normal(size=(windows + 1, 20)))[:, 8:, None]
        bands = Bands.fit(np.zeros((windows, 12, 1)), errors[:-1], (0.1, 0.9))
        bounds = bands.around(np.zeros((1, 12, 1)))
        inside.append((errors[-1:] >= bounds[..., 0]) & (errors[-1:] <= bounds[..., 1]))
    assert 0.78 < np.mean(inside) < 0.97


def test_bands_follow_errors_that_change_and_know_nothing_later():
    random = np.random.default_rng(2)
    spread = np.where(np.arange(600) < 100, 1.0, 3.0)
    truth = random.normal(size=(600, 3, 1)) * spread[:, None, None]
    output, begins = np.zeros_like(truth), np.arange(600)
    bands = Bands.fit(output[:100], truth[:100], (0.1, 0.9))
    fixed = bands.around(output)[300:]
    bounds, after = bands.tracked(output, truth, begins)
    inside = (truth[300:] >= bounds[300:, ..., 0]) & (truth[300:] <= bounds[300:, ..., 1])
    assert ((truth[300:] >= fixed[..., 0]) & (truth[300:] <= fixed[..., 1])).mean() < 0.5
    assert 0.75 < inside.mean() < 0.87
    assert after.moved_since(bands)[1] > 0.2
    other = truth.copy()
    other[400:] += 50
    changed, _ = bands.tracked(output, other, begins)
    assert np.array_equal(changed[:401], bounds[:401])  # a forecast from step 400 saw step 399
    assert not np.array_equal(changed[401:], bounds[401:])


# Plain forecasters


def shape_of(channels=1, places=(0,), horizon=5, season=4, unit=(0.0, 1.0)):
    units = (unit,) * len(places)
    told = Forecast(season, places, units, units)
    size = horizon * len(places)
    return TaskShape(channels, size, answer="number", horizon=horizon, forecast=told)


def test_the_last_season_comes_again():
    model = undamped.lab.baselines.SeasonalNaive(shape_of(channels=2, places=(1,)))
    inputs = torch.randn(11, 3, 2)
    lengths = torch.tensor([11, 8, 4])
    output = model(Batch(inputs, lengths=lengths)).detach()
    for row, length in enumerate(lengths.tolist()):
        past = inputs[:length, row, 1].tolist()
        expected = [past[length - 4 + h % 4] for h in range(5)]
        assert output[row].tolist() == pytest.approx(expected)
    with pytest.raises(DataError, match="a past of at least 4 steps, a season, got 3"):
        model(inputs[:3])


def test_ridge_on_lags_is_ridge_on_lags():
    random = np.random.default_rng(0)
    series = random.normal(size=(80, 2)).cumsum(0)
    windows = np.stack([series[i : i + 15] for i in range(60)])
    batch = Batch(
        torch.from_numpy(windows[:, :10]).transpose(0, 1).float(),
        torch.from_numpy(windows[:, 10:, 1]).float(),
    )
    model = undamped.lab.baselines.RidgeOnLags(shape_of(2, (1,), season=1), lags=3)
    model.fit_closed_form([batch])
    (penalty,) = model.arrays["penalty"].tolist()
    inputs, truth = batch.inputs.double().numpy(), batch.targets.double().numpy()
    last = inputs[-1]
    lags = [(inputs[-k] - last) for k in (3, 2)]
    table = np.concatenate([*lags, last], axis=1)
    x, y = table - table.mean(0), truth - last[:, 1:]
    scale = np.sqrt(np.square(x).mean())
    gram = x.T @ x / scale**2 + penalty * np.eye(6)
    weight = np.linalg.solve(gram, x.T @ (y - y.mean(0)) / scale) / scale
    expected = x @ weight + y.mean(0) + last[:, 1:]
    assert model(batch).detach().numpy() == pytest.approx(expected, abs=1e-5)
    model.refit([batch])
    assert torch.isfinite(model(batch)).all()


def test_a_combination_is_the_mean_of_its_members():
    values = months(60)
    unit = (float(values.mean()), float(values.std()))
    shape = shape_of(horizon=6, season=12, unit=unit)
    standard = torch.from_numpy((values - unit[0]) / unit[1])
    inputs = torch.stack([standard[i : i + 30] for i in range(24)], dim=1).unsqueeze(-1)
    truth = torch.stack([standard[i + 30 : i + 36] for i in range(24)])
    part, output = [Batch(inputs, truth)], []
    for kind in (
        undamped.lab.baselines.SeasonalNaive,
        undamped.lab.baselines.RidgeOnLags,
        undamped.lab.baselines.Combination,
    ):
        model = kind(shape).double()
        model.fit_closed_form(part)
        model.refit(part)
        output.append(model(part[0]).detach().numpy())
    assert output[2] == pytest.approx((output[0] + output[1]) / 2)
    assert np.abs(output[0] - output[1]).max() > 1e-3


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (("ridge-lags",), "two or more"),
        (("ridge-lags", "ridge-lags"), "two or more different forecasters"),
        (
            ("ridge-lags", "ets"),
            "a window of the past only, got ets. Choose from ridge-lags, seasonal",
        ),
        (("ridge-lags", "lstm"), "got lstm"),
    ],
)
def test_a_combination_of_what_cannot_be_combined_is_one_sentence(names, why):
    with pytest.raises(UndampedError, match=why):
        undamped.lab.baselines.Combination(shape_of(horizon=6, season=12), of=names)


@pytest.mark.parametrize("form", ["ZZZ", "AAA"])
def test_ets_is_that_of_statsforecast(form):
    from statsforecast.models import AutoETS

    values = months(60)
    unit = (float(values.mean()), float(values.std()))
    model = undamped.lab.baselines.ETS(shape_of(horizon=6, season=12, unit=unit), form=form)
    inputs = torch.from_numpy((values - unit[0]) / unit[1]).view(-1, 1, 1)
    model.fit_closed_form([Batch(inputs, torch.zeros(1, 6))])
    output = model.double()(Batch(inputs)).detach().numpy()[0] * unit[1] + unit[0]
    theirs = AutoETS(season_length=12, model=form).fit(values).predict(6)["mean"]
    assert output == pytest.approx(theirs, rel=1e-3)
    assert ("M" if form == "ZZZ" else "ETS(A,A") in model.findings()[0]


@pytest.mark.parametrize(
    ("form", "season", "why"),
    [("AAX", 12, "three letters"), ("AA", 12, "three letters"), ("ZZA", 1, "the data have none")],
)
def test_a_form_that_ets_does_not_have_is_one_sentence(form, season, why):
    with pytest.raises(OptionError, match=why):
        undamped.lab.baselines.ETS(shape_of(horizon=6, season=season), form=form)


@pytest.mark.parametrize("name", RIVALS)
def test_a_run_of_a_plain_forecaster_is_a_run_like_any_other(name, tmp_path):
    values = months(100)
    task = task_of(values, quantiles=(0.1, 0.9), stride=3)
    run = fit(name, task, out=tmp_path, progress=False)
    settings = Run.open(run.path).settings
    assert settings["result"]["test"]["mae"] < settings["result"]["chance"]["mae"]
    assert settings["bands"]["levels"] == [0.1, 0.5, 0.9]
    assert {"pinball", "coverage"} <= set(settings["result"]["test"])
    opened = Run.open(run.path)
    model, prepared = opened.model(), opened.preparation()
    outputs = predict_series(model, prepared, SeriesSet.of([values[:, None]]))
    (bounds,) = bounds_around(outputs, prepared, opened.bands())
    output = np.array(prepared.answer(outputs[0])[0]["forecast"]["0"])
    assert bounds.shape == (6, 1, 3) and (bounds[..., 0] < bounds[..., 2]).all()
    assert np.abs(output / (100 * np.exp(0.01 * 103)) - 1).max() < 0.4
    plain = fit(name, task_of(values, stride=3, standardise=False), out=tmp_path, progress=False)
    assert plain.result["test"]["rmse"] < 40
    with pytest.raises(OptionError, match="can only forecast one value per step"):
        undamped.build(name, shape=TaskShape(1, 3, answer="number"))


def test_bands_come_from_before_validation_data_was_learnt(tmp_path, monkeypatch):
    """What a model says about windows it has learnt from must not make its bands."""
    random = np.random.default_rng(0)
    task = task_of(random.normal(size=260), season=1, window=60)  # noise, learnt by heart
    run = fit("ridge-lags", task, model_options={}, out=tmp_path, progress=False)
    assert run.result["test"]["coverage"] > 0.7


# The race


# A few models to compare, so that tests are short.
SMALL = {"candidates": ("guess", "seasonal-naive", "ridge-lags", "boosting", "gru")}


@pytest.mark.slow
def test_the_race_is_no_worse_than_the_last_season_on_validation_data(tmp_path):
    task = task_of(months(), quantiles=(0.1, 0.5, 0.9), stride=2)
    options = {"train": {"steps": 2}, "model_options": SMALL}
    run = fit("auto", task, **options, out=tmp_path, progress=False)
    tried = {one["model"]: one for one in run.settings["tried"]}
    assert list(tried) == ["guess", "seasonal-naive", "ridge-lags", "boosting", "gru"]
    assert tried["seasonal-naive"]["draws"] == 3
    name = run.settings["model"]["name"]
    assert tried[name]["score"] <= tried["seasonal-naive"]["score"]


def test_one_second_is_enough_for_an_answer(tmp_path):
    options = {"train": {"seconds": 1}, "model_options": SMALL}
    run = fit("auto", task_of(months()), **options, out=tmp_path, progress=False)
    tried = {one["model"]: one for one in run.settings["tried"]}
    assert "score" in tried["seasonal-naive"] and "why_not" in tried["gru"]
    assert run.result["test"]["rmse"] < run.result["chance"]["rmse"]


# Backtests


def test_a_backtest_knows_nothing_later():
    values = months(120)
    changed = values.copy()
    changed[100:] *= 3
    result = [
        backtest(
            SeriesSet.of([one[:, None]]),
            ["seasonal-naive", "ridge-lags"],
            horizon=4,
            folds=2,
            fraction=0.4,
            options={"season": 12, "window": 24},
        )
        for one in (values, changed)
    ]
    naive, ridge = (one.forecasts for one in result[0].models)
    origins = naive.origins[:, 1]
    assert origins.min() == 72 and origins.max() == 116 and len(np.unique(origins)) == len(origins)
    expected = np.stack([values[o - 12 : o - 8] for o in origins])
    truth = np.stack([values[o : o + 4] for o in origins])
    assert naive.values[..., 0] == pytest.approx(expected, rel=1e-5)
    assert naive.truth[..., 0] == pytest.approx(truth, rel=1e-5)
    assert naive.scores()["mae"] == pytest.approx(np.abs(expected - truth).mean(), rel=1e-5)
    assert naive.scores(slice(0, 1))["mae"] == pytest.approx(np.abs(expected - truth)[:, 0].mean())
    scale = np.abs(values[12:58] - values[:46]).mean()
    assert naive.scores()["mase"] == pytest.approx(naive.scores()["mae"] / scale, rel=0.15)
    early = origins <= 94  # the first fold learns from the first 72
    for first, second in zip(result[0].models, result[1].models, strict=True):
        assert first.forecasts.values[early] == pytest.approx(
            second.forecasts.values[early], rel=1e-4
        )
        assert first.forecasts.bounds[early] == pytest.approx(
            second.forecasts.bounds[early], rel=1e-4
        )
    assert ridge.scores()["mae"] < naive.scores()["mae"]


def undamped_says(monkeypatch, capsys, *words):
    """Run the command line here; return exit code, output and errors."""
    monkeypatch.setattr(sys, "argv", ["undamped", *map(str, words)])
    code = 0
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    output = capsys.readouterr()
    return code, output.out, output.err


@pytest.mark.slow
def test_the_commands(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    dates = pd.date_range("2010-01-01", periods=120, freq="MS").strftime("%Y-%m-%d")
    table = {"date": dates, "sales": months(120), "price": np.random.default_rng(1).random(120)}
    pd.DataFrame(table).to_csv("sales.csv", index=False)
    asked = ("sales.csv", "target=sales", "horizon=4", "season=12")
    code, out, err = undamped_says(
        monkeypatch,
        capsys,
        *("backtest", *asked, "seasonal-naive", "ridge-lags", "--folds", "1", "--json"),
        *("--figure", "bands.png"),
    )
    assert code == 0, err
    result = json.loads(out)
    assert result["season"] == 12 and result["channels"] == ["sales"]
    assert [one["model"] for one in result["models"]] == ["seasonal-naive", "ridge-lags"]
    assert set(result["models"][0]["steps"]) == {"1", "2", "3", "4"}
    assert (tmp_path / "bands.png").stat().st_size > 10_000
    code, out, err = undamped_says(
        monkeypatch, capsys, "backtest", *asked, "seasonal-naive", "--folds", "1"
    )
    assert code == 0 and "MASE" in out and "in the 80 %" in " ".join(out.split()), err
    code, out, err = undamped_says(monkeypatch, capsys, "train", *asked, "ridge-lags", "--no-page")
    assert code == 0 and "undamped backtest" in out, err
    run = "runs/recordings-ridge-lags-1"
    code, out, err = undamped_says(
        monkeypatch, capsys, "predict", run, "--out", "f.csv", "--figure", "future.png"
    )
    assert code == 0 and "80 % interval at step 4" in out and "to 2020-04-01" in out, err
    future = pd.read_csv("f.csv")
    assert list(future) == ["id", "step", "date", "sales", "sales_0.1", "sales_0.5", "sales_0.9"]
    assert list(future["date"]) == ["2020-01-01", "2020-02-01", "2020-03-01", "2020-04-01"]
    assert len(future) == 4 and (future["sales_0.1"] < future["sales_0.9"]).all()
    assert (tmp_path / "future.png").stat().st_size > 10_000
    code, out, err = undamped_says(monkeypatch, capsys, "predict", run, "sales.csv", "--json")
    assert code == 0 and set(json.loads(out)[0]["bands"]["sales"]) == {"0.1", "0.5", "0.9"}, err
    assert json.loads(out)[0]["times"] == list(future["date"])


def test_bad_input_is_one_sentence(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    pd.DataFrame({"x": months(30), "still": 5.0}).to_csv("short.csv", index=False)
    cases = {
        ("horizon=4", "season=40"): "season + horizon must be at most 30",
        ("horizon=40",): "at most 28, since the longest series has 30 steps",
        ("horizon=4", "target=still"): "constant in the training split",
        ("horizon=4", "quantiles=0.5,1.5"): "different numbers between 0 and 1",
        ("season=4", "target=x"): "season needs a forecast",
        ("horizon=4", "target=x", "window=3", "season=8"): "a past of at least 8 steps",
    }
    for words, sentence in cases.items():
        code, _, err = undamped_says(
            monkeypatch, capsys, "train", "short.csv", "seasonal-naive", *words
        )
        assert code == 2 and sentence in err and "Traceback" not in err, (words, err)
    for words, sentence in {
        ("short.csv", "ridge-lags"): "number of values to forecast",
        ("digits", "ridge-lags"): "a file of recordings first",
        ("short.csv", "horizon=20", "target=x"): "at least 3 origins",
        ("short.csv", "horizon=2", "target=x", "--share", "2"): "between 0 and 0.9",
    }.items():
        code, _, err = undamped_says(monkeypatch, capsys, "backtest", *words)
        assert code == 2 and sentence in err and "Traceback" not in err, (words, err)
    assert [one.name for one in tmp_path.iterdir()] == ["short.csv"]


def test_constants_beside_others_are_said(tmp_path):
    values = np.stack([months(100), np.full(100, 3.0)], axis=1)
    task = task_of(values, stride=4)
    assert any("Constant in the training split, and predicted: 1." in n for n in task.notes())
    for name in ("seasonal-naive", "ridge-lags"):
        run = fit(name, task, out=tmp_path, progress=False)
        model = run.model()
        output = predict_series(model, task.preparation, SeriesSet.of([values]))
        ahead = task.preparation.answer(output[0])[0]["forecast"]["1"]
        assert ahead == pytest.approx([3.0] * 6, abs=1e-4)


def test_without_statsforecast_ets_is_one_sentence(monkeypatch, tmp_path):
    from undamped._base import packages

    monkeypatch.setattr(packages, "_is_installed", lambda package: package != "statsforecast")
    with pytest.raises(MissingPackageError, match=r"needs statsforecast.*pip install"):
        fit("ets", task_of(months()), out=tmp_path, progress=False)
    options = {"candidates": ("guess", *closed_form_candidates.FORECASTERS)}
    task = task_of(months(), stride=4)
    run = fit("auto", task, model_options=options, out=tmp_path, progress=False)
    why = {one["model"]: one.get("why_not", "") for one in run.settings["tried"]}
    assert "needs statsforecast" in why["ets"] and not why["ridge-lags"]


def test_months_are_even_steps():
    timestamps = (
        pd.date_range("2010-01-01", periods=100, freq="MS").astype("int64").to_numpy() / 1e9
    )
    task = SeriesTask(SeriesSet.of([months(100)[:, None]], times=[timestamps]), horizon=3)
    assert not task.preparation.at_times and task.season == 12


# The experiment and its data


def test_the_experiment_at_its_smallest(tmp_path, monkeypatch):
    from undamped.lab.papers import forecasts

    monkeypatch.setenv("UNDAMPED_DATA", str(tmp_path))
    done = []
    result = forecasts.run(
        sets=("load",),
        models=("guess", "seasonal-naive"),
        folds=1,
        origins=6,
        progress=lambda *output: done.append(output),
    )
    assert len(done) == 2 and "| load | 3,360, 24, 168, 6 |" in result.markdown()
    guess, naive = result.to_dict()["records"][0]["models"]
    assert naive["mase"] < guess["mase"]
    assert set(result.figures()) == {"forecasts_load"}
    with pytest.raises(DataError, match="undamped data fetch forecasts"):
        forecasts.run(sets=("load", "co2"))
    with pytest.raises(undamped._base.errors.UnknownNameError, match="sunspots"):
        forecasts.run(sets=("sunspot",))


def test_series_are_read_from_packages_without_running_them(tmp_path):
    from undamped.lab.data.published.conversions import series_to_forecast

    raw, files = tmp_path / "raw", tmp_path / "files"
    raw.mkdir()
    files.mkdir()
    (raw / "sunspots.csv").write_text('"YEAR","SUNACTIVITY"\n1700,5\n1701,11\n')
    (raw / "co2.csv").write_text("date,co2\n19580329,316.1\n19580405,\n")
    numbers = ", ".join(map(str, range(120)))
    for name in ("airpassengers", "taylor"):
        (raw / f"{name}.py.txt").write_text(f"raise SystemExit\nx = np.array([\n{numbers}])\n")
    series_to_forecast(raw, files)
    assert (files / "co2.csv").read_text() == "co2\n316.1\n\n"
    assert (files / "sunspots.csv").read_text() == "sunspots\n5\n11\n"
    assert len((files / "demand.csv").read_text().splitlines()) == 121
    (raw / "taylor.py.txt").write_text("x = [f(), 1]")
    with pytest.raises(DataError, match="a list of numbers"):
        series_to_forecast(raw, files)


# Splits, windows and short series


def test_every_series_gives_its_past_to_training_and_its_future_to_the_test():
    random = np.random.default_rng(0)
    shops = [random.normal(size=(length, 2)) for length in (200, 150, 40)]
    task = SeriesTask(SeriesSet.of(shops), horizon=5)
    assert any(line.startswith("Split by time (the past of every series") for line in task.notes())
    origin, lengths = task.series_set.origin, task.series_set.lengths
    for shop, values in enumerate(shops):
        last = {}
        for name, part in task.splits.items():
            stop = (origin[:, 1] + lengths)[part][origin[part, 0] == shop]
            assert len(stop), (shop, name)
            last[name] = stop.min() - 5, stop.max()
        assert last["train"][1] <= last["valid"][0] < last["valid"][1] <= last["test"][0]
        assert last["test"][1] == len(values)


def test_groups_are_split_as_they_were_and_numbers_have_no_classes():
    random = np.random.default_rng(0)
    series = [random.normal(size=(40, 1)) for _ in range(12)]
    grouped = SeriesSet.of(series, groups=[str(i % 4) for i in range(12)])
    assert SeriesTask(grouped, horizon=3).split_record["by"] == "group"
    numbers = SeriesTask(SeriesSet.of(series, targets=random.normal(size=12)))
    (output,) = [line for line in numbers.notes() if line.startswith("Split")]
    assert "classes" not in output and "at random" in output


@pytest.mark.parametrize(
    ("length", "horizon", "lost"),
    [
        (12, 3, []),
        (12, 5, ["test"]),
        (12, 10, ["valid", "test"]),
        (60, 24, ["test"]),
        (13, 4, ["test"]),
    ],
)
@pytest.mark.parametrize("missing", [False, True])
def test_the_race_answers_whatever_is_short(length, horizon, lost, missing, tmp_path):
    values = months(length)
    if missing:
        values[[2, 5]] = np.nan
    task = task_of(values, horizon=horizon)
    assert [name for name, part in task.splits.items() if not len(part)] == lost
    run = fit("auto", task, train={"seconds": 10}, out=tmp_path, progress=False)
    outputs = predict_series(run.model(), task.preparation, task.recordings)
    assert np.isfinite(outputs[0]).all() and outputs[0].size == horizon


@pytest.mark.slow
def test_what_cannot_learn_from_everything_leaves_its_place_to_the_next(tmp_path, monkeypatch):
    def refuse(self, part):
        raise DataError("ridge-lags: expected nothing, got something.")

    monkeypatch.setattr(undamped.lab.baselines.RidgeOnLags, "refit", refuse)
    options = {"train": {"seconds": 5}, "model_options": SMALL}
    run = fit("auto", task_of(months()), **options, out=tmp_path, progress=False)
    why = {one["model"]: one.get("why_not") for one in run.settings["tried"]}
    assert "expected nothing" in why["ridge-lags"]
    assert run.settings["model"]["name"] != "ridge-lags"
    assert [one.name for one in tmp_path.iterdir()] == [run.path.name]


def test_where_nothing_answers_the_sentence_ends_once(tmp_path):
    task = task_of(months(60), window=4, season=1)
    with pytest.raises(OptionError, match=r"can be used: .*[^.]\. Name a model"):
        options = {"candidates": ("minirocket",)}
        fit("auto", task, model_options=options, out=tmp_path, progress=False)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3])
def test_plain_forecasters_take_missing_values(share, tmp_path):
    random = np.random.default_rng(0)
    values = 20 + 10 * np.sin(2 * np.pi * np.arange(200) / 7) + random.normal(size=200)
    values[random.random(200) < share] = np.nan
    task = task_of(values, horizon=7)
    assert task.season == 7
    for name in ("seasonal-naive", "ridge-lags", "combination"):
        run = fit(name, task, out=tmp_path, progress=False)
        assert run.result["test"]["rmse"] < 5 < run.result["chance"]["rmse"]


def test_ets_fits_what_it_is_asked_twice_once(monkeypatch):
    ets, fits = undamped.lab.baselines.ETS, []
    once = ets._fit
    monkeypatch.setattr(ets, "_fit", lambda *args: fits.append(1) or once(*args))
    model = ets(shape_of(horizon=6, season=1))
    batch = Batch(torch.randn(20, 2, 1), torch.zeros(2, 6))
    model.fit_closed_form([batch])
    first, repeated = model(batch), model(batch)
    assert torch.equal(first, repeated) and len(fits) == 3


@pytest.mark.parametrize(
    ("timestamps", "ahead"),
    [
        (pd.date_range("2024-01-31", periods=60, freq="ME"), ["2029-01-31", "2029-02-28"]),
        (pd.date_range("2024-01-01", periods=60, freq="B"), ["2024-03-25", "2024-03-26"]),
        (
            pd.date_range("2024-01-01", periods=60, freq="h"),
            ["2024-01-03 12:00:00", "2024-01-03 13:00:00"],
        ),
        (
            pd.date_range("2024-01-01", periods=60, tz="Europe/Berlin"),
            ["2024-02-29 23:00:00+00:00", "2024-03-01 23:00:00+00:00"],
        ),
        (np.arange(10, 130, 2), [130.0, 132.0]),
    ],
)
def test_forecasts_go_on_in_time(timestamps, ahead, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    table = pd.DataFrame({"when": timestamps, "y": months(60)})
    table.drop(index=20).to_csv("y.csv", index=False)  # a hole does not matter to dates
    if not isinstance(timestamps, pd.DatetimeIndex):
        table.to_csv("y.csv", index=False)
    words = ("y.csv", "seasonal-naive", "time=when", "target=y", "horizon=2", "--no-page")
    code, _, err = undamped_says(monkeypatch, capsys, "train", *words)
    assert code == 0, err
    run = "runs/recordings-seasonal-naive-1"
    code, out, err = undamped_says(monkeypatch, capsys, "predict", run, "--out", "f.csv", "--json")
    assert code == 0 and json.loads(out)[0]["times"] == ahead, err
    assert pd.read_csv("f.csv")["when"].tolist() == ahead


def test_uneven_stamps_have_no_dates_ahead():
    timestamps = np.array([0.0, 1.0, 2.5, 7.0])
    assert (
        future_timestamps([timestamps], 3) is None
        and future_timestamps([timestamps[:1]], 3) is None
    )
    assert future_timestamps([timestamps[:2]], 2)[0].tolist() == [2.0, 3.0]


@pytest.mark.slow
def test_the_next_steps_after_a_race_are_its_best_models(tmp_path, monkeypatch):
    from lab.baselines.test_baselines import waves

    monkeypatch.chdir(tmp_path)
    series, classes = waves(40)
    np.savez("w.npz", x=np.stack(series).transpose(0, 2, 1), y=np.array(classes))
    named = ["bank", "minirocket", "guess"]
    options = {"task_options": {"file": "w.npz"}, "model_options": {"candidates": named[::-1]}}
    run = fit("auto", "recordings", **options, progress=False)
    compared = next_steps(run)[0].split()
    assert compared[:3] == ["undamped", "compare", "w.npz"]
    assert sorted(compared[3:6]) == sorted(named) and compared[5] == "guess"
    pd.DataFrame({"y": months(60)}).to_csv("y.csv", index=False)
    asked = {"file": "y.csv", "target": "y", "horizon": 3}
    run = fit("seasonal-naive", "recordings", task_options=asked, progress=False)
    first, second, _ = next_steps(run)
    assert first == "undamped backtest y.csv seasonal-naive ridge-lags target=y horizon=3"
    assert "--figure" in second


def test_series_that_are_too_short_for_a_window_are_said():
    shops = [months(100)[:, None], months(12)[:, None]]
    task = SeriesTask(SeriesSet.of(shops), horizon=6, window=20)
    assert "1 series are shorter than a window and are left out." in task.notes()
