"""scikit-learn's own checks, one by one, and a ledger of those that do not apply."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from undamped import SequenceClassifier, SequenceRegressor

# Nearly all checks give tables (samples, features); here each row is a series of one channel.
LEDGER = {
    "check_n_features_in": "n_features_in_ counts channels, not the columns of a table",
    "check_n_features_in_after_fitting": "columns are time steps, which may be more or fewer",
    "check_dtype_object": "wants a TypeError; bad values are a DataError, which is a ValueError",
    "check_classifiers_train": "wants a high accuracy on two-step series after one batch",
    "check_regressors_train": "wants a high score on tables after one batch",
}

TINY = {"model": "unicornn", "hidden_size": 2, "num_layers": 1, "steps": 1, "random_state": 0}


def reasons(estimator):
    own = (
        "check_regressors_train"
        if isinstance(estimator, SequenceClassifier)
        else ("check_classifiers_train")
    )
    return {name: why for name, why in LEDGER.items() if name != own}


@parametrize_with_checks(
    [SequenceClassifier(**TINY), SequenceRegressor(**TINY)], expected_failed_checks=reasons
)
# scikit-learn hands over columns of targets and numbers that end in overflow on purpose.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataConversionWarning")
@pytest.mark.filterwarnings("ignore::RuntimeWarning:sklearn")
@pytest.mark.filterwarnings("ignore::FutureWarning:sklearn")
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)
