"""Estimators in the manner of scikit-learn: fit, predict, score, pipelines and grid search."""

from undamped.lab.estimators.classifier import SequenceClassifier, SequenceRegressor
from undamped.lab.estimators.forecaster import SequenceForecaster

__all__ = ["SequenceClassifier", "SequenceForecaster", "SequenceRegressor"]
