"""Readouts for a stream that is not over: one for each of some fractions of a usual sequence.

A readout that was fitted on whole sequences is as sure of itself after two samples as after all of
them. So there is one for features after 1/16, 1/8, 1/4 and 1/2 of the usual number of samples too,
each with its own penalty and its own temperature, both chosen on sequences left out. In between,
the outputs of the two nearest readouts are interpolated; before the first the answer is what is
known without any sample.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.contract import TaskShape
from undamped.lab.baselines.ridge import class_shares, fit_ridge, sharpness

Scales = Callable[[Tensor, Tensor], Tensor]
"""Returns scales of features (features,) from their means and standard deviations."""
FRACTIONS = (1 / 16, 1 / 8, 1 / 4, 1 / 2)
_SEQUENCES = 1000
"""At most so many, drawn at random, are fitted: enough to calibrate, and little memory and time."""
_FEWEST = 4  # sequences from which a readout is fitted
_UNUSED = -1


class EarlyReadouts(nn.Module):
    """Ridge readouts of what is known of a sequence before its end.

    Args:
        shape: The shape of the task.
        features: How many features a sequence has.
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
        outputs, number = shape.output_size, len(FRACTIONS)
        # Samples after which each readout holds, and at last those of a usual sequence, from which
        # on the readout of whole sequences does.
        self.register_buffer("counts", torch.full((number + 1,), _UNUSED))
        self.register_buffer("centre", torch.zeros(number, features))
        self.register_buffer("scale", torch.ones(number, features))
        self.register_buffer("weight", torch.zeros(number, outputs, features))
        self.register_buffer("bias", torch.zeros(number, outputs))
        self.register_buffer("prior", torch.zeros(outputs))
        self._random = torch.Generator()
        self.forget()

    def forget(self, length: int = 0) -> None:
        """Begin to learn anew.

        Args:
            length: Samples of a usual sequence.
        """
        self.counts.fill_(_UNUSED)
        self._stops = [round(fraction * length) for fraction in FRACTIONS]
        self._length = length
        # Of the sequences that were drawn, after each count: random keys, features, answers,
        # weights.
        self._rows: list[list[tuple[Tensor, ...]]] = [[] for _ in FRACTIONS]
        self._random.manual_seed(0)

    @property
    def stops(self) -> list[int]:
        """After how many samples features are wanted, while learning."""
        return sorted({stop for stop in self._stops if 0 < stop < self._length})

    @property
    def fitted(self) -> bool:
        """Whether there are such readouts; a bank saved by an earlier version has none."""
        return bool(self.counts[-1] > 0)

    def add(
        self,
        stop: int,
        features: Tensor,
        answers: Tensor,
        weights: Tensor | None,
        rows: Tensor,
        keys: Tensor,
    ) -> None:
        """Take features after so many samples.

        Args:
            stop: How many samples.
            features: (batch, features).
            answers: (batch, outputs).
            weights: (batch,) what each sequence counts.
            rows: (batch,) which sequences are to be learnt from.
            keys: (batch,) random numbers, one of each sequence.
        """
        each = keys.new_ones(len(keys)) if weights is None else weights
        place = self._stops.index(stop)
        found = [part[rows] for part in (keys, features, answers, each)]
        table = self._rows[place]
        table.append(tuple(found))
        if sum(len(one[0]) for one in table) > 2 * _SEQUENCES:
            self._rows[place] = [_drawn(table)]

    def keys(self, count: int) -> Tensor:
        """Return a random number for each of some sequences; the smallest ones are learnt from."""
        return torch.rand(count, generator=self._random, dtype=torch.float64)

    @torch.no_grad()
    def solve(self, farthest: float, scales: Scales) -> None:
        """Fit a readout after every count from what was added, and let go of that.

        Args:
            farthest: Standard deviations to which a feature is believed.
            scales: How features are scaled.
        """
        solved = 0
        for place, table in enumerate(self._rows):
            _, features, answers, each = _drawn(table) if table else [torch.empty(0)] * 4
            if len(features) < _FEWEST:
                continue
            centre = features.mean(0)
            scale = scales(centre, features.std(0, correction=0))
            scaled = ((features - centre) / scale).clamp(-farthest, farthest)
            found = fit_ridge(scaled, answers, weights=each)
            factor = sharpness(self.shape, found, answers, each)
            self.centre[place], self.scale[place] = centre, scale
            self.weight[place] = found.weight * factor
            self.bias[place] = found.bias * factor
            self.counts[place] = self._stops[place]
            self.prior.copy_(_prior(self.shape, answers, each))
            solved += 1
        if solved:
            self.counts[-1] = self._length
        self._rows = [[] for _ in FRACTIONS]

    def mixture(self, samples: int) -> list[tuple[int, float]]:
        """Return which readouts answer after so many samples, and their shares.

        Args:
            samples: How many were observed.

        Returns:
            Pairs of a readout and its share: the place of an early one, `WHOLE` or `PRIOR`.
        """
        knots = [(count, at) for at, count in enumerate(self.counts.tolist()) if count > 0]
        if not knots or samples >= knots[-1][0]:
            return [(WHOLE, 1.0)]
        if samples < knots[0][0]:
            return [(PRIOR, 1.0)]
        above = next(number for number, knot in enumerate(knots) if knot[0] > samples)
        (low, first), (high, second) = knots[above - 1], knots[above]
        share = (samples - low) / (high - low)
        second = WHOLE if above == len(knots) - 1 else second
        return [(first, 1 - share), (second, share)] if share else [(first, 1.0)]

    def _load_from_state_dict(  # type: ignore[override]
        self, state_dict: dict[str, Any], prefix: str, *rest: Any
    ) -> None:
        # What was saved before these readouts existed has none, and answers without them.
        for name, buffer in self.named_buffers():
            state_dict.setdefault(prefix + name, torch.full_like(buffer, _UNUSED))
        super()._load_from_state_dict(state_dict, prefix, *rest)


WHOLE = len(FRACTIONS)
PRIOR = -1


def _drawn(table: list[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """Return the rows with the smallest keys, at most `_SEQUENCES`, in the order they came."""
    parts = [torch.cat(part) for part in zip(*table, strict=True)]
    kept = parts[0].argsort()[:_SEQUENCES].sort().values
    return tuple(part[kept] for part in parts)


def _prior(shape: TaskShape, answers: Tensor, weights: Tensor) -> Tensor:
    """Return outputs of somebody who saw nothing: logs of shares of classes, or mean numbers."""
    if shape.answer != "class":
        return weights @ answers / weights.sum()
    return class_shares(shape, answers, weights).log()
