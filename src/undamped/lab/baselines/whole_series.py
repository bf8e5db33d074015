"""What models that look at a whole series at once have in common."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from undamped._base.contract import Answer, Batch, InputKind, TaskShape
from undamped._base.errors import DataError, explain
from undamped.lab.baselines.learns_at_once import ClosedFormModel, Part, check_one_answer
from undamped.lab.baselines.learnt_arrays import LearntArrays
from undamped.lab.baselines.ridge import row_weights, wanted_answers


class Collected(NamedTuple):
    """A part of the data in one piece.

    Args:
        series: Each (channels, time), without padding.
        observed: What of it was measured, each (channels, time); all of it where there is no word.
        answers: (series, outputs) what is to be answered; ±1 for classes.
        weights: (series,) what each counts beside its class; None where all count alike.
    """

    series: list[np.ndarray]
    observed: list[np.ndarray]
    answers: Tensor
    weights: Tensor | None = None

    def __add__(self, other: Any) -> Collected:
        """Return the series of both."""
        return Collected(
            self.series + other.series,
            self.observed + other.observed,
            torch.cat((self.answers, other.answers)),
            None if self.weights is None else torch.cat((self.weights, other.weights)),
        )


class WholeSeriesModel(ClosedFormModel):
    """A model that needs a whole series before it answers, so that it cannot follow a stream.

    Args:
        shape: The shape of the task.
    """

    answers: ClassVar[frozenset[Answer]] = frozenset({"class", "number"})
    input_kinds = frozenset[InputKind]({"vectors", "pixels"})
    sequential = True

    def __init__(self, shape: TaskShape) -> None:
        super().__init__()
        check_one_answer(type(self).__name__, shape)
        self.shape = shape
        self.learnt = LearntArrays()
        self.offset = nn.Parameter(torch.zeros(shape.output_size))
        self._kept: Collected | None = None

    @property
    def why_no_stream(self) -> str:
        """What keeps the model from answering samples one by one."""
        return "one that needs a whole series before it answers"

    def learnt_numbers(self) -> int:
        """Return how many numbers were learnt from the data: weights, biases, trees, series."""
        arrays = (a.numel() for a in self.learnt.buffers() if a.is_floating_point())
        return super().learnt_numbers() + sum(arrays)

    def run(self, batch: Batch, state: Any = None) -> tuple[Tensor, None]:
        """Return an answer for every series; before anything was learnt, the same for all."""
        if not len(self.learnt):
            return self.offset.expand(batch.inputs.shape[1], -1), None
        found = self._answers(*_series_of(batch))
        return found.to(self.offset.dtype) + self.offset, None

    @abstractmethod
    def _answers(self, series: list[np.ndarray], observed: list[np.ndarray]) -> Tensor:
        """Return answers (series, outputs) without their common offset."""

    @abstractmethod
    def _learn_from(self, collected: Collected, *, choose: bool) -> None:
        """Learn from series in place of what was learnt; what is chosen is chosen only once."""

    @torch.no_grad()
    def learn(self, part: Part) -> None:
        """Learn from the training part, and choose on it whatever has to be chosen."""
        self._kept = self._collect(part)
        self._learn_from(self._kept, choose=True)

    @torch.no_grad()
    def refit(self, part: Part) -> None:
        """Learn from both parts, with what was chosen on the first."""
        kept, self._kept = self._kept, None
        batches = list(part)
        if kept is not None and batches:
            self._learn_from(kept + self._collect(batches, fewest=0), choose=False)

    def _collect(self, part: Part, fewest: int = 2) -> Collected:
        """Return the series whose answer is known, or refuse fewer than there have to be."""
        series: list[np.ndarray] = []
        observed: list[np.ndarray] = []
        answers = [torch.zeros(0, self.shape.output_size, dtype=torch.float64)]
        weights: list[Tensor] = []
        for batch in part:
            rows, known = wanted_answers(self.shape, batch)
            counted = row_weights(self.shape, rows, batch.weights)
            if counted is not None:
                known = known & (counted > 0)
            found, seen = _series_of(batch)
            numbers = known.nonzero().squeeze(1).tolist()
            series += [found[number] for number in numbers]
            observed += [seen[number] for number in numbers]
            answers.append(rows[known])
            if batch.weights is not None:
                weights.append(batch.weights[known])
        if len(series) < fewest:
            raise DataError(
                explain(
                    type(self).__name__,
                    expected="at least two series with an answer",
                    got=len(series),
                    remedy="Give more data to learn from.",
                )
            )
        each = torch.cat(weights) if weights else None
        return Collected(series, observed, torch.cat(answers), each)


def lengths_of(batch: Batch) -> list[int]:
    """Return how many samples each series of a batch has."""
    steps, count = batch.inputs.shape[:2]
    return [steps] * count if batch.lengths is None else batch.lengths.tolist()


def _series_of(batch: Batch) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return series and what was measured of them, each (channels, time)."""
    values = batch.inputs.detach().cpu().float().permute(1, 2, 0).numpy()
    seen = ~np.isnan(values)
    if batch.observed is not None:
        seen &= batch.observed.cpu().permute(1, 2, 0).numpy()
    lengths = lengths_of(batch)
    return (
        [one[:, :length] for one, length in zip(values, lengths, strict=True)],
        [one[:, :length] for one, length in zip(seen, lengths, strict=True)],
    )
