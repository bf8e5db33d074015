"""What plain forecasters have in common: they continue series, in the units of the recordings."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from undamped._base.contract import Answer, Batch, Forecast, InputKind, TaskShape
from undamped._base.errors import DataError, OptionError, explain
from undamped.lab.baselines.learns_at_once import ClosedFormModel
from undamped.lab.baselines.learnt_arrays import LearntArrays
from undamped.lab.baselines.whole_series import lengths_of


class Pasts(NamedTuple):
    """What was before some forecasts.

    Args:
        known: Each (time, predicted channels), in the units of the recordings, float64.
        inputs: Each (time, channels), all channels as they go in, float64.
    """

    known: list[np.ndarray]
    inputs: list[np.ndarray]


class Continuation(ClosedFormModel):
    """A model that says how series go on, and nothing else.

    Args:
        shape: The shape of the task, a forecast of regular steps.
    """

    answers: ClassVar[frozenset[Answer]] = frozenset({"number"})
    input_kinds = frozenset[InputKind]({"vectors"})
    sequential = True

    def __init__(self, shape: TaskShape) -> None:
        super().__init__()
        if shape.forecast is None or not shape.horizon or shape.forecast.quantiles:
            raise OptionError(
                explain(
                    type(self).__name__,
                    expected="a forecast of values to come, one for every step",
                    got="another question",
                    remedy="Give horizon=, or choose another model; 'undamped list' shows all.",
                )
            )
        self.shape = shape
        self.forecast: Forecast = shape.forecast
        self.learnt = LearntArrays()
        self.offset = nn.Parameter(torch.zeros(shape.output_size))

    @classmethod
    def example_shape(cls) -> TaskShape:
        """Return the shape of a small forecast."""
        unit = ((0.0, 1.0),)
        return TaskShape(1, 3, answer="number", horizon=3, forecast=Forecast(4, (0,), unit, unit))

    @property
    def why_no_stream(self) -> str:
        """What keeps the model from answering samples one by one."""
        return "one that needs the past before it answers"

    def learnt_numbers(self) -> int:
        """Return how many numbers were learnt from the data."""
        return sum(a.numel() for a in self.learnt.buffers() if a.is_floating_point())

    def run(self, batch: Batch, state: Any = None) -> tuple[Tensor, None]:
        """Return the values to come of every series."""
        found = self._continued(self._pasts(batch))  # (series, horizon, channels)
        zero, one = (np.array(part) for part in zip(*self.forecast.answer_units, strict=True))
        standard = torch.from_numpy((found - zero) / one).flatten(1)
        return standard.to(self.offset) + self.offset, None

    @abstractmethod
    def _continued(self, pasts: Pasts) -> np.ndarray:
        """Return (series, horizon, channels) in the units of the recordings."""

    def _pasts(self, batch: Batch) -> Pasts:
        values = batch.inputs.detach().cpu().double().permute(1, 0, 2).numpy()
        inputs = [one[:n] for one, n in zip(values, lengths_of(batch), strict=True)]
        zero, one = (np.array(part) for part in zip(*self.forecast.input_units, strict=True))
        places = list(self.forecast.channels)
        return Pasts([values[:, places] * one + zero for values in inputs], inputs)

    def _truth(self, batch: Batch) -> np.ndarray:
        """Return the values that came (series, horizon, channels), in units of the recordings."""
        zero, one = (np.array(part) for part in zip(*self.forecast.answer_units, strict=True))
        rows = batch.targets.detach().cpu().double().numpy()
        return rows.reshape(len(rows), self.shape.horizon, -1) * one + zero


def repeat_season(known: np.ndarray, season: int, horizon: int) -> np.ndarray:
    """Return the last season of a series again and again, (horizon, channels).

    Args:
        known: (time, channels).
        season: Its steps.
        horizon: Values to come.
    """
    return known[len(known) - season + np.arange(horizon) % season]


def refuse_short(name: str, steps: int, needed: int, why: str) -> None:
    """Refuse a past that is too short.

    Args:
        name: Who needs more.
        steps: How many there are.
        needed: How many there should be.
        why: What they are needed for.
    """
    if steps < needed:
        raise DataError(
            explain(
                name,
                expected=f"a past of at least {needed} steps, {why}",
                got=steps,
                remedy="Give longer series, a larger window= or a shorter season=.",
            )
        )
