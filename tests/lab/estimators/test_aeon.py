"""aeon's own checks on the wrappers, and what they do not look at."""

import warnings

import numpy as np
import pytest

pytest.importorskip("aeon")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # aeon and what it imports talk while they are imported
    from aeon.testing.estimator_checking import parametrize_with_checks

    from undamped.lab.estimators.aeon import (
        UndampedClassifier,
        UndampedForecaster,
        UndampedRegressor,
    )

    every_check = parametrize_with_checks(
        [UndampedClassifier, UndampedRegressor, UndampedForecaster]
    )


@pytest.mark.slow
@every_check
def test_aeon_checks(check):
    check()


def waves(lengths, channels=2, seed=0):
    random = np.random.default_rng(seed)
    return [random.normal(size=(channels, n)) for n in lengths]


def test_channels_come_first_and_lengths_may_differ():
    from undamped import SequenceClassifier

    X, y = waves([20, 31, 12, 25] * 4), np.array(["a", "b", "a", "b"] * 4)
    X[0][1, 3] = np.nan
    options = {"model": "unicornn", "hidden_size": 4, "steps": 3, "random_state": 0}
    wrapped = UndampedClassifier(**options).fit(X, y)
    plain = SequenceClassifier(**options).fit([x.T for x in X], y)
    np.testing.assert_array_equal(wrapped.predict_proba(X), plain.predict_proba([x.T for x in X]))


def test_the_options_are_those_of_the_estimators():
    from undamped import SequenceClassifier, SequenceRegressor

    assert UndampedClassifier().get_params() == SequenceClassifier().get_params()
    assert UndampedRegressor().get_params() == SequenceRegressor().get_params()


def test_a_forecast_of_the_whole_horizon():
    wave = np.sin(np.arange(60) / 3)
    forecaster = UndampedForecaster(
        model="unicornn", options={"steps": 3, "hidden_size": 4}, random_state=0
    )
    assert forecaster.series_to_series_forecast(wave, 5).shape == (5,)
    assert forecaster.iterative_forecast(wave, 3).shape == (3,)
