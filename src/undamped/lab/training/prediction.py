"""Predictions of a trained model for recordings."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from undamped._base.contract import Batch
from undamped.lab.data.recordings.bands import Bands
from undamped.lab.data.recordings.covariates import check_future
from undamped.lab.data.recordings.preparation import Preparation, middle_of
from undamped.lab.data.recordings.prepared import PreparedSeries, batch_of
from undamped.lab.data.recordings.series import SeriesSet
from undamped.models.task_model import TaskModel

_MOST_OUTPUTS = 1 << 23  # of a batch, 32 MB


def predict_series(
    model: TaskModel, preparation: Preparation, series_set: SeriesSet
) -> list[np.ndarray]:
    """Return the outputs of a model for every series.

    For a model that was trained on windows, predictions of all windows of a series are averaged,
    unless every window has its own label. A forecast uses the last window; a model of query times
    predicts values that are one typical gap apart.

    Args:
        model: The trained model, in evaluation mode.
        preparation: The preparation of its training data.
        series_set: The recordings.

    Returns:
        Per series (1, output), (time, output) for a model that predicts at every step, or (windows,
        output) where every window of `windows_of` has a prediction; `preparation.answer` returns
        their meaning.
    """
    series_set = preparation.arrange(series_set)
    names, predicted = preparation.covariates, preparation.forecast
    check_future(series_set, names, preparation.horizon, predicted)
    inputs, owners = [], []
    full_history = model.reads_whole_past and preparation.kind == "forecast"
    for index, raw in enumerate(series_set.series):
        times = None if series_set.times is None else series_set.times[index]
        for span in [slice(None)] if full_history else windows_of(len(raw), preparation):
            inputs.append(preparation.prepare(raw[span], None if times is None else times[span]))
            owners.append(index)
    outputs: list[list[np.ndarray]] = [[] for _ in series_set.series]
    for owner, prediction in zip(owners, predict_prepared(model, preparation, inputs), strict=True):
        outputs[owner].append(prediction)
    if preparation.each_window:
        return [np.concatenate(parts) for parts in outputs]
    return [np.mean(parts, axis=0) for parts in outputs]


def bounds_around(
    outputs: list[np.ndarray], preparation: Preparation, bands: Bands
) -> list[np.ndarray]:
    """Return the quantiles of forecasts, in original units.

    Args:
        outputs: The outputs of `predict_series`.
        preparation: The preparation of the data.
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
    """Return forecasts in original units: the values, or the calibrated median of quantiles.

    Args:
        outputs: The outputs of `predict_series`.
        preparation: The preparation of the data.
        bands: The bands of the run, if it has any.

    Returns:
        Per series (horizon, channels).
    """
    rows = np.concatenate(outputs)
    if bands is not None and preparation.to_forecasts(rows).ndim == 4:
        bounds = bounds_around(outputs, preparation, bands)
        return [part[..., middle_of(bands.levels)] for part in bounds]
    return list(preparation.middle(rows) * preparation.target_std + preparation.target_mean)


@torch.inference_mode()
def predict_prepared(
    model: TaskModel, preparation: Preparation, inputs: list[PreparedSeries]
) -> list[np.ndarray]:
    """Return the outputs of a model for prepared series, in batches of similar lengths.

    Returns:
        Per series (1, output), or (time, output) for a model that predicts at every step.
    """
    outputs: list[np.ndarray] = [np.empty(0)] * len(inputs)
    dtype = next(model.parameters()).dtype
    network = getattr(model, "network", model)
    for indices in _batches(inputs, getattr(network, "output_size", 64)):
        batch = batch_of([inputs[i] for i in indices]).cast(dtype)
        if preparation.at_times:
            batch = batch._replace(target_times=steps_ahead(batch, preparation.horizon))
        prediction = model(batch)
        for row, i in enumerate(indices):
            if preparation.readout == "every":
                output = prediction[: len(inputs[i].inputs), row]
            elif preparation.at_times:
                output = prediction[:, row].reshape(1, -1)
            else:
                output = prediction[row : row + 1]
            outputs[i] = output.double().numpy()
    return outputs


def steps_ahead(batch: Batch, horizon: int) -> torch.Tensor:
    """Return times (horizon, batch), a typical gap apart, after the last input of each series."""
    assert batch.times is not None
    last = batch.times[-1]  # timestamps are padded with their last
    return last + torch.arange(1, horizon + 1, dtype=last.dtype).unsqueeze(1)


def windows_of(length: int, preparation: Preparation) -> list[slice]:
    """Return the windows of a series that a model reads; without windows, all of it.

    Args:
        length: Steps of the series.
        preparation: The preparation of the data.
    """
    window = preparation.window
    if window is None or preparation.readout == "every" or length <= window:
        return [slice(0, length)]
    if preparation.kind == "forecast":
        return [slice(length - window, length)]
    windows = [slice(start, start + window) for start in range(0, length - window + 1, window)]
    if preparation.each_window and length % window:
        windows.append(slice(length - window, length))  # so that the end has a prediction too
    return windows


def _batches(inputs: list[PreparedSeries], width: int) -> list[list[int]]:
    """Return batches of indices of series with similar lengths, limited by their outputs."""
    batches: list[list[int]] = []
    for index in sorted(range(len(inputs)), key=lambda i: len(inputs[i].inputs)):
        size = len(inputs[index].inputs) * width
        if batches and size * (len(batches[-1]) + 1) <= _MOST_OUTPUTS:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def with_standard_error(
    answer: dict[str, Any], outputs: np.ndarray, model: TaskModel, preparation: Preparation
) -> dict[str, Any]:
    """Return an answer with its standard error, if the model has one.

    For a number it is the root mean square of leave-one-out errors, in the units of the target. For
    a class it is that of the margin between the two most likely classes in log-odds: with a margin
    of less than two standard errors, the class is uncertain.

    Args:
        answer: The answer of `Preparation.answer`.
        outputs: (1, outputs) the outputs of the model.
        model: The model.
        preparation: The preparation of its data.
    """
    covariance = getattr(model, "error_covariance", None)
    if covariance is None or preparation.readout == "every" or bool(covariance.isnan().any()):
        return answer
    errors = covariance.double().cpu().numpy()
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
