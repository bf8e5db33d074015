"""Forecasts with covariates whose future is known, and forecasters of statsforecast."""

import json
import sys

import numpy as np
import pandas as pd
import pytest
import torch

import undamped
from undamped._base.contract import Batch, Forecast, TaskShape
from undamped._base.errors import DataError, OptionError, UndampedError
from undamped.lab.baselines.covariate_effects import fit_effects
from undamped.lab.cli import main
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.estimators.forecaster import SequenceForecaster
from undamped.lab.tasks.series import SeriesTask
from undamped.lab.training import Run, fit
from undamped.lab.training.backtest import backtest
from undamped.lab.training.portfolio import closed_form_candidates
from undamped.lab.training.prediction import predict_series

CHANNELS = ["sales", "price", "rain"]
KNOWN = {"known": ("price",), "observed": ("rain",)}


def shop(count=160, seed=0):
    """Return sales that fall by 4 per unit of the price, with a week and autocorrelated noise."""
    random = np.random.default_rng(seed)
    step, noise = np.arange(count), np.zeros(count)
    for t in range(1, count):
        noise[t] = 0.6 * noise[t - 1] + random.normal()
    price = 10 - 3.0 * (random.random(count) < 0.3)
    rain = random.normal(size=count)
    sales = 90 + 5 * np.sin(2 * np.pi * step / 7) - 4 * price + noise
    return np.stack([sales, price, rain], axis=1)


def task_of(table, **options):
    series_set = SeriesSet.of([table], channels=CHANNELS)
    return SeriesTask(series_set, **{"horizon": 5, "season": 7, "window": 20, **options})


def with_future(table, horizon=5):
    """Return a table whose last rows have known values only."""
    table = table.copy()
    table[-horizon:, [0, 2]] = np.nan
    return table


# Effects


def test_effects_are_those_of_a_regression_with_autocorrelated_errors():
    from statsmodels.regression.linear_model import GLSAR

    table = shop(400)
    y, z = table[:, :1] - 5 * np.sin(2 * np.pi * np.arange(400) / 7)[:, None], table[:, 1:]
    windows = [slice(start, start + 30) for start in range(371)]
    effects = fit_effects([y[w] for w in windows], [z[w] for w in windows], 1, 30)
    theirs = GLSAR(y[:, 0], np.column_stack([np.ones(400), z]), 1).iterative_fit(20)
    assert effects.slopes[0, 0] == pytest.approx(theirs.params[1], abs=0.02)
    assert effects.slopes[1, 0] == 0 and abs(theirs.tvalues[2]) < 2  # the rain has no effect
    assert not effects.factors.any()
    values = np.random.default_rng(0).normal(size=(2, 5, 1))
    covariates = np.ones((2, 5, 2))
    assert effects.restore(effects.remove(values, covariates), covariates) == pytest.approx(values)


def test_effects_on_growing_values_are_factors():
    random = np.random.default_rng(0)
    step, offer = np.arange(300), (random.random(300) < 0.3).astype(float)
    level = np.exp(np.cumsum(0.02 * random.normal(size=300)) + 0.01 * step)
    y = (level * 1.5**offer)[:, None]
    effects = fit_effects([y], [offer[:, None]], 1, 300)
    assert effects.factors.all() and np.exp(effects.slopes[0, 0]) == pytest.approx(1.5, abs=0.02)
    few = fit_effects([y[:15]], [offer[:15, None]], 1, 300)
    assert not few.slopes.any()


# Tasks and models


def test_later_values_are_inputs_and_nothing_else_of_the_future():
    table = shop()
    task = task_of(table, **KNOWN)
    assert task.preparation.channels == [*CHANNELS, "price+5"]
    assert task.preparation.forecast == ["sales"] and task.preparation.file_channels == CHANNELS
    assert task.task_shape.forecast.covariates == ((1, 3),)
    assert TaskShape.from_dict(task.task_shape.to_dict()) == task.task_shape
    batch = task.batch("train", 0, 4)
    raw = batch.inputs.numpy() * task.preparation.std + task.preparation.mean
    assert raw[5:, :, 1] == pytest.approx(raw[:-5, :, 3], abs=1e-4)
    assert any("after the last value of sales: price" in note for note in task.notes())
    assert any("not beyond: rain." in note for note in task.notes())


@pytest.mark.parametrize("name", ["seasonal-naive", "ridge-lags", "theta"])
def test_known_prices_make_forecasts_better(name, tmp_path):
    table, scores = shop(), []
    for options in ({"forecast": ("sales",)}, KNOWN):
        task = task_of(table, stride=8, **options)
        scores.append(fit(name, task, out=tmp_path, progress=False).result["test"]["rmse"])
    assert scores[1] < 0.6 * scores[0]


def test_a_forecast_depends_on_known_values_up_to_the_horizon(tmp_path):
    table = shop(170)
    run = fit("ridge-lags", task_of(table[:160], **KNOWN), out=tmp_path, progress=False)
    model, prepared = run.model(), Run.open(run.path).preparation()

    def forecast(future):
        series = np.concatenate([table[:160], future])
        outputs = predict_series(model, prepared, SeriesSet.of([series], channels=CHANNELS))
        return np.array(prepared.answer(outputs[0])[0]["forecast"]["sales"])

    future = with_future(table, 10)[160:]
    cheap, later = future.copy(), future.copy()
    cheap[2, 1] -= 3
    later[5:, 1] = 0  # beyond the horizon
    difference = forecast(cheap) - forecast(future)
    assert difference[2] == pytest.approx(12, abs=2) and np.abs(difference[[0, 1]]).max() < 3
    assert np.array_equal(forecast(later), forecast(future))
    with pytest.raises(
        DataError, match=r"'price' of series '0' is known for 3 steps after the last"
    ):
        forecast(future[:3])
    with pytest.raises(DataError, match=r"known for 0 steps.*Append rows with price and without"):
        forecast(future[:0])


def test_a_backtest_with_covariates():
    series_set = SeriesSet.of([shop()], channels=CHANNELS)
    options = {"season": 7, "window": 20, "stride": 4, **KNOWN}
    result = backtest(series_set, ["ridge-lags"], horizon=5, folds=1, options=options)
    assert result.channels == ["sales"]
    assert result.models[0].forecasts.scores()["mase"] < 0.5


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"known": ("cost",)}, "Unknown channel 'cost'"),
        ({"known": ("price",), "observed": ("price",)}, "'price' can have one role only"),
        ({"known": ("price",), "forecast": ("price",)}, "'price' can have one role only"),
        ({"known": CHANNELS}, "none is left to be predicted"),
        ({"known": ("price",), "window": 3}, "a window of at least horizon=5 steps, got 3"),
        ({"observed": ("rain",), "horizon": None}, "observed needs a forecast"),
    ],
)
def test_covariates_that_cannot_be_used_are_one_sentence(options, why):
    with pytest.raises(UndampedError, match=why):
        task_of(shop(), **options)


def test_known_values_need_regular_steps():
    times = np.cumsum(np.random.default_rng(0).random(160))
    series_set = SeriesSet.of([shop()], channels=CHANNELS, times=[times])
    with pytest.raises(OptionError, match="known needs regular time steps"):
        SeriesTask(series_set, horizon=5, **KNOWN)


# Files and estimators


def test_a_file_with_its_future(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def command(*words):
        monkeypatch.setattr(sys, "argv", ["undamped", *words])
        try:
            main()
        except SystemExit as end:
            assert not end.code, capsys.readouterr().err
        return capsys.readouterr().out

    table = pd.DataFrame(with_future(shop()), columns=CHANNELS)
    table.insert(0, "day", pd.date_range("2024-01-01", periods=160).strftime("%Y-%m-%d"))
    table.to_csv("shop.csv", index=False)
    words = ["shop.csv", "ridge-lags", "horizon=5", "known=price", "observed=rain", "window=20"]
    command("train", *words, "--no-page")
    own = json.loads(command("predict", "runs/recordings-ridge-lags-1", "--json"))[0]
    assert list(own["forecast"]) == ["sales"] and own["times"][0] == table["day"][155]
    assert np.abs(np.array(own["forecast"]["sales"]) - shop()[-5:, 0]).mean() < 3
    other = json.loads(command("predict", "runs/recordings-ridge-lags-1", "shop.csv", "--json"))[0]
    assert other["forecast"] == own["forecast"] and other["times"] == own["times"]
    table[:157].to_csv("short.csv", index=False)
    with pytest.raises(AssertionError, match="'price' of series '0' is known for 2 steps"):
        command("predict", "runs/recordings-ridge-lags-1", "short.csv")


@pytest.mark.parametrize("model", ["ridge-lags", pytest.param("gru", marks=pytest.mark.slow)])
def test_an_estimator_with_covariates(model):
    days = pd.date_range("2024-01-01", periods=160)
    frame = pd.DataFrame(with_future(shop()), index=days, columns=CHANNELS)
    options = {"steps": 1, "hidden_size": 2} if model == "gru" else {}
    forecaster = SequenceForecaster(5, window=20, model=model, **KNOWN, **options).fit(frame)
    forecast = forecaster.predict()
    assert list(forecast.columns) == ["sales"] and list(forecast.index) == list(days[-5:])
    assert forecaster.predict(frame).equals(forecast)
    complete = pd.DataFrame(shop(), index=days, columns=CHANNELS)
    assert forecaster.score(complete) > (0.5 if model == "ridge-lags" else -5)
    assert forecaster.predict(quantiles=(0.1, 0.9)).shape == (5, 2)
    with pytest.raises(DataError, match="known for 0 steps"):
        forecaster.predict(complete)
    with pytest.raises(OptionError, match="at most 5 steps, as in fit, since future values"):
        forecaster.predict(frame, horizon=6)


# Forecasters of statsforecast


def forecast_of(model, values, horizon):
    unit = float(values.mean()), float(values.std())
    inputs = torch.from_numpy((values - unit[0]) / unit[1]).view(-1, 1, 1)
    model.fit_closed_form([Batch(inputs, torch.zeros(1, horizon))])
    return model.double()(Batch(inputs)).detach().numpy()[0] * unit[1] + unit[0]


def shape_of(values, season, horizon=6):
    unit = ((float(values.mean()), float(values.std())),)
    forecast = Forecast(season, (0,), unit, unit)
    return TaskShape(1, horizon, answer="number", horizon=horizon, forecast=forecast)


def demand(count=120):
    random = np.random.default_rng(0)
    return random.poisson(3, count) * (random.random(count) < 0.3) * 1.0


def hours():
    step = np.arange(24 * 7 * 5)
    day = np.sin(2 * np.pi * step / 24)
    return 20 + 5 * day + 4 * (step // 24 % 7 > 4) + np.random.default_rng(0).normal(size=len(step))


@pytest.mark.parametrize(
    ("name", "library", "options", "values", "season"),
    [
        ("Theta", "AutoTheta", {"season_length": 7}, shop()[:, 0], 7),
        ("Croston", "CrostonSBA", {}, demand(), 1),
        ("MSTL", "MSTL", {"season_length": [24, 168]}, hours(), 24),
    ],
)
def test_forecasters_are_those_of_statsforecast(name, library, options, values, season):
    from statsforecast import models

    shape = shape_of(values, season)
    model = getattr(undamped.lab.baselines, name)(shape)
    theirs = getattr(models, library)(**options).forecast(values, 6)["mean"]
    assert forecast_of(model, values, 6) == pytest.approx(theirs, rel=1e-3)
    assert model.findings()


def test_the_rates_of_tsb_have_the_smallest_error():
    from statsforecast.models import TSB

    values = np.concatenate([demand(100), np.zeros(40)])  # no longer sold
    model = undamped.lab.baselines.TSB(shape_of(values, 1))
    forecast = forecast_of(model, values, 6)
    size, probability = model.arrays["rates"][0].tolist()
    theirs = TSB(alpha_d=size, alpha_p=probability).forecast(values, 6)["mean"]
    assert forecast == pytest.approx(theirs, rel=1e-3)
    croston = forecast_of(undamped.lab.baselines.Croston(shape_of(values, 1)), values, 6)
    assert forecast[0] < 0.2 * croston[0]
    with pytest.raises(DataError, match="tsb forecasts demand, which is zero or more, got -1"):
        forecast_of(undamped.lab.baselines.TSB(shape_of(values - 1, 1)), values - 1, 6)


def test_intermittent_demand_has_its_own_candidates():
    sparse = SeriesTask(SeriesSet.of([demand()[:, None]]), horizon=3)
    names = closed_form_candidates.candidates(sparse)
    assert set(closed_form_candidates.INTERMITTENT) < set(names)
    dense = closed_form_candidates.candidates(task_of(shop(), **KNOWN))
    assert not set(closed_form_candidates.INTERMITTENT) & set(dense) and "mstl" in dense
    model = undamped.lab.baselines.MSTL(shape_of(demand(), 1))
    with pytest.raises(OptionError, match="mstl needs a season, but none was detected"):
        forecast_of(model, demand(), 6)
