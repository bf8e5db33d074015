"""What in a recording decided the answer of a trained model."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undamped._base.errors import OptionError
from undamped.lab.baselines.closed_form import ClosedFormModel, NaiveBaseline
from undamped.lab.data.recordings.preparation import Preparation
from undamped.lab.data.recordings.prepared import batch_of
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.training.explanations.bank_contributions import (
    bank_contributions,
    has_contributions,
)
from undamped.lab.training.explanations.deletion import (
    Segment,
    deciding_segment,
    delete,
    deletion_effects,
)
from undamped.lab.training.explanations.gradients import integrated_gradients
from undamped.lab.training.prediction import predict_series, windows_of
from undamped.models.task_model import TaskModel

EXACT, GRADIENTS, DELETION = "exact", "integrated gradients", "deletion"
_LISTED = 5  # oscillators of a bank
_INEXACT = 0.1  # relative error of the sum of contributions above which there are none


@dataclass(frozen=True)
class Explanation:
    """Why a model answered as it did to one recording.

    Args:
        id: The name of the recording.
        answer: The answer, as `Preparation.answer` returns it.
        quantity: What is explained, in words.
        value: Its value.
        method: How the contributions were computed: "exact" (a bank), "integrated gradients" (a
            network) or "deletion" (any other model, and networks whose gradients do not sum to the
            change of the value within a tenth).
        segment: The steps whose deletion changes the value most, and the check of them.
        answer_without: The answer after this segment is deleted.
        effects: (time,) how much the value falls when the surroundings of a step are deleted.
        contributions: (time, channels) contributions of samples to the value, empty for "deletion".
        time_contributions: (time,) contributions of the times at which responses were above
            thresholds; for a bank only.
        offset: The part of the value that does not depend on the recording.
        completeness_error: Value − offset − all contributions.
        oscillators: The oscillators of a bank with the largest contributions: number, period in
            steps, contribution.
    """

    id: str
    answer: dict[str, Any]
    quantity: str
    value: float
    method: str
    segment: Segment
    answer_without: dict[str, Any]
    effects: np.ndarray
    contributions: np.ndarray
    time_contributions: np.ndarray
    offset: float | None = None
    completeness_error: float | None = None
    oscillators: tuple[dict[str, float], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        arrays = ("effects", "contributions", "time_contributions")
        plain = {name: getattr(self, name).tolist() for name in arrays}
        segment = {**self.segment._asdict(), "decides": self.segment.decides}
        return {**asdict(replace(self, **dict.fromkeys(arrays))), **plain, "segment": segment}


def explain(
    model: TaskModel, preparation: Preparation, series_set: SeriesSet, row: int
) -> Explanation:
    """Return the explanation of the answer to one recording.

    For classes, the explained value is the margin of the answer over the second class in log-odds;
    for numbers, it is the answer in its units, for forecasts the mean over steps and channels, and
    with an answer at every step that of the last one.

    Args:
        model: The trained model, in evaluation mode.
        preparation: The preparation of its training data.
        series_set: The recordings.
        row: Which of them.
    """
    _refuse(model, preparation)
    single = preparation.arrange(series_set.take([row]))
    series = np.asarray(single.series[0])
    outputs = predict_series(model, preparation, single)[0][-1:]
    answer = preparation.answer(outputs)[0]
    direction, offset, quantity = _explained(preparation, answer, outputs[0])

    def predict(copies: list[np.ndarray]) -> np.ndarray:
        many = replace(single.take([0] * len(copies)), series=copies)
        return np.concatenate([o[-1:] for o in predict_series(model, preparation, many)])

    def evaluate(copies: list[np.ndarray]) -> np.ndarray:
        return predict(copies) @ direction + offset

    effects = deletion_effects(series, evaluate)
    segment = deciding_segment(series, effects, evaluate)
    without = predict([delete(series, segment.first, segment.last + 1)])
    explanation = Explanation(
        id=str(single.ids[0]),
        answer=answer,
        quantity=quantity,
        value=float(outputs[0] @ direction + offset),
        method=DELETION,
        segment=segment,
        answer_without=preparation.answer(without)[0],
        effects=effects,
        contributions=np.zeros((0, len(preparation.channels))),
        time_contributions=np.zeros(0),
    )
    return _with_contributions(explanation, model, preparation, single, (direction, offset))


def _refuse(model: TaskModel, preparation: Preparation) -> None:
    if isinstance(model, NaiveBaseline):
        raise OptionError(
            "The naive baseline gives every recording the same answer, so nothing in a recording "
            "explains it. Train another model, such as bank."
        )
    if preparation.each_window:
        raise OptionError(
            f"The model answers every window of {preparation.window} steps, and an explanation is "
            "of one answer. Cut the recording into files of one window."
        )
    if preparation.at_times:
        raise OptionError(
            "A model that forecasts at query times has no single answer to explain. Train with "
            "timestamps=false."
        )


def _explained(
    preparation: Preparation, answer: dict[str, Any], outputs: np.ndarray
) -> tuple[np.ndarray, float, str]:
    """Return weights of the outputs, an offset and the name of the explained value."""
    direction = np.zeros(len(outputs))
    if preparation.classes is not None:
        first = preparation.classes.index(answer["label"])
        order = [int(i) for i in np.argsort(outputs) if i != first]
        direction[first] = 1.0
        if not order:
            return direction, 0.0, f"log-odds of {answer['label']}"
        direction[order[-1]] = -1.0
        second = preparation.classes[order[-1]]
        return direction, 0.0, f"margin of {answer['label']} over {second} in log-odds"
    if preparation.kind != "forecast":
        direction[0] = preparation.target_std[0]
        return direction, preparation.target_mean[0], "answer"
    middle = np.zeros((len(outputs), len(outputs)))
    np.fill_diagonal(middle, 1.0)
    units = preparation.middle(middle) * np.array(preparation.target_std)
    return units.mean((1, 2)), float(np.mean(preparation.target_mean)), "mean of the forecast"


def _with_contributions(
    explanation: Explanation,
    model: TaskModel,
    preparation: Preparation,
    single: SeriesSet,
    explained: tuple[np.ndarray, float],
) -> Explanation:
    """Return the explanation with contributions, the mean over the windows of the recording."""
    if isinstance(model, ClosedFormModel) and not has_contributions(model):
        return explanation
    series, times = single.series[0], None if single.times is None else single.times[0]
    direction, offset = torch.from_numpy(explained[0]), explained[1]
    windows = windows_of(len(series), preparation)
    width = len(preparation.channels)
    samples, moments = np.zeros((len(series), width)), np.zeros(len(series))
    oscillators, periods = torch.zeros(0), torch.zeros(0)
    for window in windows:
        raw = np.asarray(series[window])
        prepared = preparation.prepare(raw, None if times is None else times[window])
        batch = batch_of([prepared]).cast(model.dtype)
        if has_contributions(model):
            exact: Any = bank_contributions(model, batch, direction)  # type: ignore[arg-type]
            moments[window] += exact.times.numpy() / len(windows)
            periods = exact.periods
            oscillators = exact.oscillators + (oscillators if len(oscillators) else 0)
        else:
            exact = integrated_gradients(model, batch, direction)
        samples[window] += exact.samples.numpy() / len(windows)
        offset += exact.offset / len(windows)
    error = explanation.value - offset - float(samples.sum() + moments.sum())
    if not len(periods) and not abs(error) <= _INEXACT * abs(explanation.value - offset):
        return explanation  # the output changes too fast between the mean and the recording
    return replace(
        explanation,
        method=EXACT if len(periods) else GRADIENTS,
        contributions=samples,
        time_contributions=moments if len(periods) else explanation.time_contributions,
        offset=offset,
        completeness_error=error,
        oscillators=_largest(oscillators / len(windows), periods),
    )


def _largest(contributions: Tensor, periods: Tensor) -> tuple[dict[str, float], ...]:
    order = contributions.abs().argsort(descending=True)[:_LISTED].tolist()
    return tuple(
        {"oscillator": i, "period": float(periods[i]), "contribution": float(contributions[i])}
        for i in order
    )
