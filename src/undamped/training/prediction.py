"""Answers of a trained model to recordings it has not seen."""

from __future__ import annotations

import numpy as np
import torch

from undamped.data.recordings.preparation import Preparation
from undamped.data.recordings.series import SeriesSet
from undamped.networks.sequence_model import SequenceModel

_AT_ONCE = 1 << 23  # outputs of a network held at once, 32 MB


def predict_series(
    model: SequenceModel, preparation: Preparation, series_set: SeriesSet
) -> list[np.ndarray]:
    """Return the outputs of a model for every series.

    A model that learnt from windows answers for every window of a series, and its answers are
    averaged; one that forecasts sees the last window.

    Args:
        model: The trained model, in evaluation mode.
        preparation: What was done to the data it learnt from.
        series_set: The recordings.

    Returns:
        Per series (1, output), or (time, output) for a model that answers at every step;
        `preparation.answer` says what they mean.
    """
    series_set = preparation.arrange(series_set)
    inputs, owner = [], []
    for number, raw in enumerate(series_set.series):
        times = None if series_set.times is None else series_set.times[number]
        for span in _spans(len(raw), preparation):
            stamps = None if times is None else times[span]
            inputs.append(torch.from_numpy(preparation.transform(raw[span], stamps)))
            owner.append(number)
    outputs: list[list[np.ndarray]] = [[] for _ in series_set.series]
    for number, answer in zip(owner, answers_to(model, inputs), strict=True):
        outputs[number].append(answer)
    return [np.mean(found, axis=0) for found in outputs]


@torch.inference_mode()
def answers_to(model: SequenceModel, inputs: list[torch.Tensor]) -> list[np.ndarray]:
    """Return what a model says to prepared series (time, features), in batches of like length.

    Returns:
        Per series (1, output), or (time, output) for a model that answers at every step.
    """
    answers: list[np.ndarray] = [np.empty(0)] * len(inputs)
    for batch in _batches(inputs, model.network.output_size):
        lengths = torch.tensor([len(inputs[i]) for i in batch])
        padded = torch.nn.utils.rnn.pad_sequence([inputs[i] for i in batch])
        equal = bool((lengths == lengths[0]).all())
        prediction = model(padded, None if equal else lengths)
        for place, i in enumerate(batch):
            if model.readout == "every":
                answer = prediction[: lengths[place], place]
            else:
                answer = prediction[place : place + 1]
            answers[i] = answer.double().numpy()
    return answers


def _spans(length: int, preparation: Preparation) -> list[slice]:
    window = preparation.window
    if window is None or preparation.readout == "every" or length <= window:
        return [slice(0, length)]
    if preparation.kind == "forecast":
        return [slice(length - window, length)]
    return [slice(start, start + window) for start in range(0, length - window + 1, window)]


def _batches(inputs: list[torch.Tensor], width: int) -> list[list[int]]:
    """Return numbers of series of like length, as many as give no more outputs than allowed."""
    batches: list[list[int]] = []
    for number in sorted(range(len(inputs)), key=lambda i: len(inputs[i])):
        size = len(inputs[number]) * width
        if batches and size * (len(batches[-1]) + 1) <= _AT_ONCE:
            batches[-1].append(number)
        else:
            batches.append([number])
    return batches
