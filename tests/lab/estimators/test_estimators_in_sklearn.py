"""scikit-learn's own checks, one by one, and a ledger of those that do not apply."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from undamped import SequenceClassifier, SequenceRegressor

# Nearly all checks give tables (samples, features); here each row is a series of one channel.
LEDGER = {
    "check_n_features_in": "n_features_in_ counts channels, not the columns of a table",
    "check_n_features_in_after_fitting": "columns are time steps, which may be more or fewer",
    "check_dtype_object": "wants a TypeError; bad values are a DataError, which is a ValueError",
    "check_sample_weight_equivalence_on_dense_data": "series are held back and left out one by "
    "one, and two copies of a series are not one that counts twice",
}
CLASSIFIER = {
    "check_classifiers_train": "wants other numbers of columns refused, but lengths may differ",
}
ONE_BATCH = {"check_regressors_train": "wants a high score after one batch"}
IN_SINGLE_PRECISION = {
    "check_methods_subset_invariance": "wants 1e-7; products in single precision round differently "
    "in batches of other sizes, by 1e-6",
}

TINY = {"model": "unicornn", "hidden_size": 2, "num_layers": 1, "steps": 1, "random_state": 0}
BANK = {"model": "bank", "model_options": {"oscillators": 30}, "random_state": 0}


def reasons(estimator):
    ledger = {**LEDGER, **(IN_SINGLE_PRECISION if estimator.model == "bank" else {})}
    if isinstance(estimator, SequenceClassifier):
        return {**ledger, **CLASSIFIER}
    return {**ledger, **(ONE_BATCH if estimator.model == "unicornn" else {})}


@pytest.mark.slow
@parametrize_with_checks(
    [
        kind(**options)
        for kind in (SequenceClassifier, SequenceRegressor)
        for options in (TINY, BANK)
    ],
    expected_failed_checks=reasons,
)
# scikit-learn hands over columns of targets and numbers that end in overflow on purpose.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataConversionWarning")
@pytest.mark.filterwarnings("ignore::RuntimeWarning:sklearn")
@pytest.mark.filterwarnings("ignore::FutureWarning:sklearn")
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)
