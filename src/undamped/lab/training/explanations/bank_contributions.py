"""Exact contributions of the samples of a recording to an output of a bank of oscillators.

The output is W φ + b, where each feature belongs to samples as follows. Sums are exact:

    max y, min y, last y    y_k(t) is linear in the samples up to t: Σ_s h_k(t − s) x_s, where h is
                            the impulse response of the oscillator, so each sample has its part
    mean of y               the mean of these sums
    fraction of y > θ       1/n for every time at which y is above θ
    longest run of y > θ    1/n for every time in that run
    location of max, min y  all of it for the time of the extreme

The last three are counts, which no sample has a part of: they belong to the times of the responses,
relative to their mean in training. A feature at its limit belongs to no sample.
"""

from __future__ import annotations

import copy
from typing import NamedTuple

import torch
from torch import Tensor

from undamped._base.contract import Batch
from undamped.lab.baselines.bank.dynamics import Oscillators
from undamped.lab.baselines.bank.oscillator_bank import LIMIT, OscillatorBank

_MOST_RESPONSES = 1 << 20  # (time, oscillators) in memory at once


class Contributions(NamedTuple):
    """The parts of an output.

    Args:
        samples: (time, channels) parts of the samples, relative to the mean of training.
        times: (time,) parts of the times at which responses were above thresholds.
        oscillators: (oscillators,) part of each oscillator, relative to the mean of training.
        periods: (oscillators,) periods in steps; infinite without oscillation.
        offset: What does not depend on the recording.
        output: The output, which is the sum of samples, times and offset.
    """

    samples: Tensor
    times: Tensor
    oscillators: Tensor
    periods: Tensor
    offset: float
    output: float


def has_contributions(model: object) -> bool:
    """Return whether a model is a bank whose contributions are exact."""
    return isinstance(model, OscillatorBank) and isinstance(model.dynamics, Oscillators)


def bank_contributions(model: OscillatorBank, sequence: Batch, direction: Tensor) -> Contributions:
    """Return the contributions to a combination of outputs.

    Args:
        model: A fitted bank of oscillators.
        sequence: A batch of one sequence.
        direction: (outputs,) the weights of the outputs.
    """
    bank = copy.deepcopy(model).double()
    dynamics, levels = bank.dynamics, bank.shape.answer != "class"
    assert isinstance(dynamics, Oscillators)
    sequence = sequence.cast(torch.float64)
    with torch.no_grad():
        features = dynamics.run(sequence).pools.features(levels=levels)[0]
        standard = (features - bank.centre) / bank.scale
        weight = direction.double() @ bank.readout.weight
        parts = weight * standard.clamp(-LIMIT, LIMIT)
        clipped = standard.abs() > LIMIT
        offset = float(direction.double() @ bank.readout.bias + parts[clipped].sum())
    slopes = torch.where(clipped, 0, weight / bank.scale).view(-1, dynamics.count)
    centres = bank.centre.view(-1, dynamics.count)
    steps, thresholds = len(sequence.inputs), len(dynamics.thresholds)
    samples, times = torch.zeros_like(sequence.inputs[:, 0]), torch.zeros(steps).double()
    size = max(1, _MOST_RESPONSES // steps)
    linear = len(slopes) - 2 * thresholds - 2 * dynamics.locations
    stop = linear + 2 * thresholds
    for index in torch.arange(dynamics.count).split(size):
        inputs = sequence.inputs.detach().clone().requires_grad_()
        responses = dynamics.responses(sequence._replace(inputs=inputs), index)
        slope, centre = slopes[:, index], centres[:, index]
        at = _linear_part(responses.detach(), slope[:linear])
        total = (at * responses).sum()
        (gradient,) = torch.autograd.grad(total, inputs)
        part = (gradient * inputs.detach())[:, 0]
        samples += part
        offset += float(total.detach() - part.sum() - (slope[:linear] * centre[:linear]).sum())
        over = responses.detach().unsqueeze(1) > dynamics.thresholds[:, index]
        counts = torch.cat((over, _longest_runs(over)), dim=1).double()
        times += (slope[linear:stop] * (counts - centre[linear:stop])).sum((1, 2)) / steps
        extremes = responses.detach().argmax(0), responses.detach().argmin(0)
        located = zip(extremes, slope[stop:], centre[stop:], strict=False)
        for at, location_slope, location_centre in located:
            times.index_add_(0, at, location_slope * ((at + 1).double() / steps - location_centre))
    period = 2 * torch.pi / dynamics.rates().frequency
    by_oscillator = parts.view(-1, dynamics.count).sum(0)
    output = float(direction.double() @ bank.readout(standard.clamp(-LIMIT, LIMIT)).detach())
    return Contributions(samples, times, by_oscillator, period, offset, output)


def _linear_part(responses: Tensor, slope: Tensor) -> Tensor:
    """Return the weight of every response (time, oscillators) in the linear features.

    Args:
        responses: (time, oscillators).
        slope: (features, oscillators) weights of mean and last, if there are four rows, then of
            the largest and the smallest response.
    """
    at = torch.zeros_like(responses)
    if len(slope) == 4:
        at += slope[0] / len(responses)
        at[-1] += slope[1]
    columns = torch.arange(responses.shape[1])
    at[responses.argmax(0), columns] += slope[-2]
    at[responses.argmin(0), columns] += slope[-1]
    return at


def _longest_runs(mask: Tensor) -> Tensor:
    """Return a mask of the first longest run of true values over time (time, …)."""
    steps = torch.arange(1, len(mask) + 1).view(-1, *[1] * (mask.ndim - 1))
    begin = torch.where(mask, 0, steps).cummax(0).values
    runs = steps - begin
    longest, index = runs.max(0)
    return (steps > index + 1 - longest) & (steps <= index + 1)
