"""Answers of a trained model to recordings it has not seen."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from undamped._base.contract import Batch
from undamped.lab.data.recordings.bands import Bands
from undamped.lab.data.recordings.preparation import Preparation, middle_of
from undamped.lab.data.recordings.prepared import PreparedSeries, batch_of
from undamped.lab.data.recordings.series import SeriesSet
from undamped.models.task_model import TaskModel

_AT_ONCE = 1 << 23  # outputs of a network held at once, 32 MB


def predict_series(
    model: TaskModel, preparation: Preparation, series_set: SeriesSet
) -> list[np.ndarray]:
    """Return the outputs of a model for every series.

    A model that learnt from windows answers for every window of a series, and its answers are
    averaged, unless every window has a label of its own; one that forecasts sees the last window,
    and where it answers at given times it is asked for the values one usual gap after the other.

    Args:
        model: The trained model, in evaluation mode.
        preparation: What was done to the data it learnt from.
        series_set: The recordings.

    Returns:
        Per series (1, output), (time, output) for a model that answers at every step, or (windows,
        output) where every window of `windows_of` has an answer; `preparation.answer` says what
        they mean.
    """
    series_set = preparation.arrange(series_set)
    inputs, owner = [], []
    whole = model.reads_whole_past and preparation.kind == "forecast"
    for number, raw in enumerate(series_set.series):
        times = None if series_set.times is None else series_set.times[number]
        for span in [slice(None)] if whole else windows_of(len(raw), preparation):
            inputs.append(preparation.prepare(raw[span], None if times is None else times[span]))
            owner.append(number)
    outputs: list[list[np.ndarray]] = [[] for _ in series_set.series]
    for number, answer in zip(owner, answers_to(model, preparation, inputs), strict=True):
        outputs[number].append(answer)
    if preparation.each_window:
        return [np.concatenate(found) for found in outputs]
    return [np.mean(found, axis=0) for found in outputs]


def bounds_around(
    outputs: list[np.ndarray], preparation: Preparation, bands: Bands
) -> list[np.ndarray]:
    """Return the quantiles of forecasts, in original units.

    Args:
        outputs: What `predict_series` returned.
        preparation: What was done to the data.
        bands: The bands of the run.

    Returns:
        Per series (horizon, channels, levels).
    """
    bounds = bands.around(preparation.to_forecasts(np.concatenate(outputs)))
    unit = np.array(preparation.target_std)[:, None]
    return list(bounds * unit + np.array(preparation.target_mean)[:, None])


def values_ahead(
    outputs: list[np.ndarray], preparation: Preparation, bands: Bands | None
) -> list[np.ndarray]:
    """Return forecasts in original units: what was said, or the corrected median of quantiles.

    Args:
        outputs: What `predict_series` returned.
        preparation: What was done to the data.
        bands: The bands of the run, if it has such.

    Returns:
        Per series (horizon, channels).
    """
    rows = np.concatenate(outputs)
    if bands is not None and preparation.to_forecasts(rows).ndim == 4:
        bounds = bounds_around(outputs, preparation, bands)
        return [one[..., middle_of(bands.levels)] for one in bounds]
    said = preparation.middle(rows) * preparation.target_std + preparation.target_mean
    return list(said)


@torch.inference_mode()
def answers_to(
    model: TaskModel, preparation: Preparation, inputs: list[PreparedSeries]
) -> list[np.ndarray]:
    """Return what a model says to prepared series, in batches of like length.

    Returns:
        Per series (1, output), or (time, output) for a model that answers at every step.
    """
    answers: list[np.ndarray] = [np.empty(0)] * len(inputs)
    dtype = next(model.parameters()).dtype
    network = getattr(model, "network", model)
    for numbers in _batches(inputs, getattr(network, "output_size", 64)):
        chosen = [inputs[i] for i in numbers]
        batch = batch_of(chosen).cast(dtype)
        if preparation.at_times:
            batch = batch._replace(target_times=steps_ahead(batch, preparation.horizon))
        prediction = model(batch)
        for place, i in enumerate(numbers):
            if preparation.readout == "every":
                answer = prediction[: len(inputs[i].inputs), place]
            elif preparation.at_times:
                answer = prediction[:, place].reshape(1, -1)
            else:
                answer = prediction[place : place + 1]
            answers[i] = answer.double().numpy()
    return answers


def steps_ahead(batch: Batch, horizon: int) -> torch.Tensor:
    """Return times (horizon, batch), a usual gap apart, after the last input of each series."""
    assert batch.times is not None
    last = batch.times[-1]  # timestamps are padded with their last
    return last + torch.arange(1, horizon + 1, dtype=last.dtype).unsqueeze(1)


def windows_of(length: int, preparation: Preparation) -> list[slice]:
    """Return the windows of a series that a model is asked about; the whole where it has none.

    Args:
        length: Steps of the series.
        preparation: What was done to the data.
    """
    window = preparation.window
    if window is None or preparation.readout == "every" or length <= window:
        return [slice(0, length)]
    if preparation.kind == "forecast":
        return [slice(length - window, length)]
    windows = [slice(start, start + window) for start in range(0, length - window + 1, window)]
    if preparation.each_window and length % window:
        windows.append(slice(length - window, length))  # the end has an answer too
    return windows


def _batches(inputs: list[PreparedSeries], width: int) -> list[list[int]]:
    """Return numbers of series of like length, as many as give no more outputs than allowed."""
    batches: list[list[int]] = []
    for number in sorted(range(len(inputs)), key=lambda i: len(inputs[i].inputs)):
        size = len(inputs[number].inputs) * width
        if batches and size * (len(batches[-1]) + 1) <= _AT_ONCE:
            batches[-1].append(number)
        else:
            batches.append([number])
    return batches


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
