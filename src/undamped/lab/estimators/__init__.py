"""Estimators in the manner of scikit-learn: fit, predict, score, pipelines and grid search."""

from undamped.lab.estimators.classifier import SequenceClassifier
from undamped.lab.estimators.forecaster import SequenceForecaster
from undamped.lab.estimators.regressor import SequenceRegressor

__all__ = ["SequenceClassifier", "SequenceForecaster", "SequenceRegressor"]
