"""Estimators in the manner of scikit-learn: fit, predict, score, pipelines and grid search."""

from undamped._base.packages import require

require("undamped.estimators", "lightning", "pandas", "sklearn")

from undamped.estimators.classifier import SequenceClassifier
from undamped.estimators.forecaster import SequenceForecaster
from undamped.estimators.regressor import SequenceRegressor

__all__ = ["SequenceClassifier", "SequenceForecaster", "SequenceRegressor"]
