"""The last season again."""

from __future__ import annotations

import numpy as np

from undamped._base.checked import checked
from undamped._base.contract import TaskShape
from undamped._base.registry import models
from undamped.lab.baselines.continuation import Continuation, Pasts, refuse_short, repeat_season
from undamped.lab.baselines.learns_at_once import Part


@models.register("seasonal-naive")
class SeasonalNaive(Continuation):
    """Seasonal naive forecast: what was a season ago comes again.

    Equation:
        ŷ_{T+h} = y_{T+h−ms},  m the smallest whole number for which that is known

    Symbols:
        s the season in steps, 1 where there is none: then the last value stays.

    Promise:
        None.

    Nothing is learnt. It wants a past of at least a season, and cannot follow a stream.

    Args:
        shape: The shape of the task.

    Example:
        >>> shape = undamped.lab.baselines.SeasonalNaive.example_shape()
        >>> model = undamped.lab.baselines.SeasonalNaive(shape)
        >>> model(torch.randn(20, 8, 1)).shape
        torch.Size([8, 3])

    Reference:
        R. J. Hyndman, G. Athanasopoulos. Forecasting: principles and practice, 3rd edition, 2021,
        section 5.2.
    """

    @checked
    def __init__(self, shape: TaskShape) -> None:
        super().__init__(shape)

    def learn(self, part: Part) -> None:
        """There is nothing to learn."""

    def refit(self, part: Part) -> None:
        """There is nothing to learn."""

    def _continued(self, pasts: Pasts) -> np.ndarray:
        season = self.forecast.season
        refuse_short("seasonal-naive", min(map(len, pasts.known)), season, "a season")
        return np.stack([repeat_season(one, season, self.shape.horizon) for one in pasts.known])

    def findings(self) -> list[str]:
        """Say which season comes again."""
        season = self.forecast.season
        return [f"A season of {season} steps comes again." if season > 1 else "No season."]
