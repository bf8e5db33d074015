"""Readouts for the beginning of a sequence.

A readout that is fitted on complete sequences is overconfident after the first few samples. The
bank therefore has further readouts for the features after 1/16, 1/8, 1/4 and 1/2 of the median
number of samples, each with its own penalty and temperature, chosen by leave-one-out predictions.
Between two of them, outputs are interpolated; before the first, the prediction is the prior.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.contract import TaskShape
from undamped.lab.baselines.ridge import class_frequencies, fit_ridge, logit_scale

Scales = Callable[[Tensor, Tensor], Tensor]
"""Returns scales of features (features,) from their means and standard deviations."""
FRACTIONS = (1 / 16, 1 / 8, 1 / 4, 1 / 2)
FULL = len(FRACTIONS)
"""The readout of complete sequences."""
PRIOR = -1
"""The prediction without any sample."""
_SEQUENCES = 1000
"""A random subset of this size is enough for calibration, and saves memory and time."""
_FEWEST = 4  # sequences that a readout needs
_UNUSED = -1


class EarlyReadouts(nn.Module):
    """Ridge readouts of the features after a part of a sequence.

    Args:
        shape: The shape of the task.
        features: Number of features of a sequence.
    """

    counts: Tensor
    centre: Tensor
    scale: Tensor
    weight: Tensor
    bias: Tensor
    prior: Tensor

    def __init__(self, shape: TaskShape, features: int) -> None:
        super().__init__()
        self.shape = shape
        outputs, readouts = shape.output_size, len(FRACTIONS)
        # Samples after which each readout holds, and last the median length, from which on the
        # readout of complete sequences holds.
        self.register_buffer("counts", torch.full((readouts + 1,), _UNUSED))
        self.register_buffer("centre", torch.zeros(readouts, features))
        self.register_buffer("scale", torch.ones(readouts, features))
        self.register_buffer("weight", torch.zeros(readouts, outputs, features))
        self.register_buffer("bias", torch.zeros(readouts, outputs))
        self.register_buffer("prior", torch.zeros(outputs))
        self._random = torch.Generator()
        self.reset()

    def reset(self, length: int = 0) -> None:
        """Prepare for a new fit.

        Args:
            length: The median number of samples of a sequence.
        """
        self.counts.fill_(_UNUSED)
        self._stops = [round(fraction * length) for fraction in FRACTIONS]
        self._length = length
        # For each fraction: random keys, features, targets and weights of sequences.
        self._rows: list[list[tuple[Tensor, ...]]] = [[] for _ in FRACTIONS]
        self._random.manual_seed(0)

    @property
    def stops(self) -> list[int]:
        """The numbers of samples after which a fit needs features."""
        return sorted({stop for stop in self._stops if 0 < stop < self._length})

    @property
    def fitted(self) -> bool:
        """Whether there are readouts; a bank saved by an earlier version has none."""
        return bool(self.counts[-1] > 0)

    def add(
        self,
        stop: int,
        features: Tensor,
        targets: Tensor,
        weights: Tensor | None,
        rows: Tensor,
        keys: Tensor,
    ) -> None:
        """Add training data for the readout after a number of samples.

        Args:
            stop: The number of samples.
            features: (batch, features).
            targets: (batch, outputs).
            weights: (batch,) weights of the sequences.
            rows: (batch,) mask of the sequences to use.
            keys: (batch,) one random number per sequence, from `keys`.
        """
        weights = keys.new_ones(len(keys)) if weights is None else weights
        readout = self._stops.index(stop)
        table = self._rows[readout]
        table.append(tuple(part[rows] for part in (keys, features, targets, weights)))
        if sum(len(row_keys) for row_keys, *_ in table) > 2 * _SEQUENCES:
            self._rows[readout] = [_subset(table)]

    def keys(self, count: int) -> Tensor:
        """Return a random number per sequence; those with the smallest ones are used."""
        return torch.rand(count, generator=self._random, dtype=torch.float64)

    @torch.no_grad()
    def solve(self, limit: float, scales: Scales) -> None:
        """Fit all readouts to the data that was added, and release that data.

        Args:
            limit: Standard deviations at which features are clipped.
            scales: How features are scaled.
        """
        for readout, table in enumerate(self._rows):
            _, features, targets, weights = _subset(table) if table else [torch.empty(0)] * 4
            if len(features) < _FEWEST:
                continue
            centre = features.mean(0)
            scale = scales(centre, features.std(0, correction=0))
            standard = ((features - centre) / scale).clamp(-limit, limit)
            ridge = fit_ridge(standard, targets, weights=weights)
            factor = logit_scale(self.shape, ridge, targets, weights)
            self.centre[readout], self.scale[readout] = centre, scale
            self.weight[readout] = ridge.weight * factor
            self.bias[readout] = ridge.bias * factor
            self.counts[readout] = self._stops[readout]
            self.counts[-1] = self._length
            self.prior.copy_(_prior(self.shape, targets, weights))
        self._rows = [[] for _ in FRACTIONS]

    def mixture(self, samples: int) -> list[tuple[int, float]]:
        """Return pairs of a readout and its weight for the prediction after some samples.

        A readout is the index of an early one, `FULL` or `PRIOR`.
        """
        knots = [(count, at) for at, count in enumerate(self.counts.tolist()) if count > 0]
        if not knots or samples >= knots[-1][0]:
            return [(FULL, 1.0)]
        if samples < knots[0][0]:
            return [(PRIOR, 1.0)]
        above = next(index for index, knot in enumerate(knots) if knot[0] > samples)
        (low, first), (high, second) = knots[above - 1], knots[above]
        weight = (samples - low) / (high - low)
        second = FULL if above == len(knots) - 1 else second
        return [(first, 1 - weight), (second, weight)] if weight else [(first, 1.0)]

    def _load_from_state_dict(  # type: ignore[override]
        self, state_dict: dict[str, Any], prefix: str, *rest: Any
    ) -> None:
        # A bank that was saved before these readouts existed has none, and predicts without them.
        for name, buffer in self.named_buffers():
            state_dict.setdefault(prefix + name, torch.full_like(buffer, _UNUSED))
        super()._load_from_state_dict(state_dict, prefix, *rest)


def _subset(table: list[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """Return the rows with the smallest keys, at most `_SEQUENCES`, in their order."""
    parts = [torch.cat(part) for part in zip(*table, strict=True)]
    rows = parts[0].argsort()[:_SEQUENCES].sort().values
    return tuple(part[rows] for part in parts)


def _prior(shape: TaskShape, targets: Tensor, weights: Tensor) -> Tensor:
    """Return the log of class frequencies, or the mean target."""
    if shape.answer != "class":
        return weights @ targets / weights.sum()
    return class_frequencies(shape, targets, weights).log()
