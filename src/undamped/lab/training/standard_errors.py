"""How far off an answer usually is, for models that know how they answer what they left out."""

from __future__ import annotations

from typing import Any

import numpy as np

from undamped.lab.data.recordings.preparation import Preparation
from undamped.models.task_model import TaskModel


def with_standard_error(
    answer: dict[str, Any], outputs: np.ndarray, model: TaskModel, preparation: Preparation
) -> dict[str, Any]:
    """Return an answer with its standard error beside it, where the model knows one.

    For a number it is the root mean square error of answers to series that were left out, in the
    units of the target. For a class it is that of the margin, the lead of the likeliest class over
    the next in log-odds: a margin of less than two standard errors is an open question.

    Args:
        answer: What is said, as `Preparation.answer` gives it.
        outputs: (1, outputs) what the model gave.
        model: The model.
        preparation: What was done to its data.
    """
    found = getattr(model, "error_covariance", None)
    if found is None or preparation.readout == "every" or bool(found.isnan().any()):
        return answer
    errors = found.double().cpu().numpy()
    if preparation.classes is not None:
        if errors.shape[0] < 2:
            return answer
        row = np.asarray(outputs, dtype=np.float64)[0]
        second, first = np.argsort(row)[-2:]
        spread = errors[first, first] + errors[second, second] - 2 * errors[first, second]
        margin = float(row[first] - row[second])
        return {**answer, "margin": margin, "standard_error": float(np.sqrt(max(0.0, spread)))}
    if preparation.kind == "regression":
        return {
            **answer,
            "standard_error": float(np.sqrt(errors[0, 0]) * preparation.target_std[0]),
        }
    return answer
