"""The confusion matrix against scikit-learn's, on the page and for models with timestamps."""

import numpy as np
import pytest
import torch

import undamped
from lab.baselines.test_baselines import task_of, waves
from undamped.analysis.core.probe import InapplicableError
from undamped.lab.instruments.confusion import Confusion, confusion
from undamped.lab.report import diagnose
from undamped.lab.report.page import page
from undamped.lab.tasks import build


def asked(task, model):
    batch = task.batch("test", 0, 100)
    return batch.targets.numpy(), model(batch).argmax(1).numpy()


def test_counts_and_shares_are_those_of_scikit_learn():
    from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

    series, classes = waves(90, classes=3)
    task = task_of(series, np.array(["low", "middle", "high"])[classes])
    torch.manual_seed(3)
    model = undamped.models.for_task.model_for(task.task_shape, "gru", {"hidden_size": 4})
    result = confusion(model, task)
    truth, output = asked(task, model)
    np.testing.assert_array_equal(result.counts, confusion_matrix(truth, output, labels=[0, 1, 2]))
    assert result.classes == tuple(task.preparation.classes)
    precision, recall, f1, _ = precision_recall_fscore_support(
        truth, output, labels=[0, 1, 2], zero_division=0.0
    )
    np.testing.assert_allclose(np.nan_to_num(result.precision), precision)
    np.testing.assert_allclose(result.recall, recall)
    np.testing.assert_allclose(result.f1, f1)
    assert len(result.rows) == 3 and "recall" in result.judgement.verdict


def test_classes_that_are_not_there_have_no_share():
    result = Confusion(("a", "b", "c"), np.array([[8, 2, 0], [0, 0, 0], [1, 0, 4]]), "")
    assert result.rows[1] == ("b", "0", "–", "0.0 %", "0.0 %", "–")
    assert result.rows[0][5] == "b (2)" and result.balanced == pytest.approx(0.8)
    assert result.judgement.tone == "good"
    weak = Confusion(("a", "b"), np.array([[9, 1], [4, 1]]), "")
    assert weak.judgement.tone == "bad" and "recall of b is below" in weak.judgement.verdict


def test_the_page_of_a_classifier_has_the_table():
    series, classes = waves(30)
    series[:, 0, 3] = np.nan
    task = task_of(series, np.array(["slow", "<fast>"])[classes], missing="mask")
    model = undamped.models.for_task.model_for(task.task_shape, "gru", {"hidden_size": 4})
    report = diagnose(model, task=task, name="gru", compare=False, measured=["confusion"])
    assert not report.left_out
    text = page([report])
    assert "Confusion matrix, in numbers" in text and "&lt;fast&gt;" in text


def test_numbers_and_steps_have_no_classes_to_confuse():
    task = build("adding", length=20)
    model = undamped.models.for_task.model_for(task.task_shape, "gru", {"hidden_size": 4})
    with pytest.raises(InapplicableError, match="one class per sequence"):
        confusion(model, task)
