"""The mean of several plain forecasts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import nn

from undamped._base.checked import checked
from undamped._base.contract import TaskShape
from undamped._base.errors import OptionError, explain
from undamped._base.registry import models
from undamped.lab.baselines.continuation import Continuation, Pasts
from undamped.lab.baselines.learns_at_once import Part


@models.register("combination")
class Combination(Continuation):
    """Combination of forecasts: the mean of what plain forecasters say.

    Equation:
        ŷ_{T+h} = (1/n) Σ_i ŷ^i_{T+h}

    Symbols:
        ŷ^i the forecast of the i-th of n forecasters.

    Promise:
        None.

    Where past data cannot tell which of two forecasters is the better one, their mean is seldom
    worse than both and often better than either: errors that are not the same cancel. Each learns
    for itself. It cannot follow a stream.

    Args:
        shape: The shape of the task.
        of: Which forecasters, by their names: such as look at no more than a window of the past.

    Example:
        >>> shape = undamped.lab.baselines.Combination.example_shape()
        >>> model = undamped.lab.baselines.Combination(shape)
        >>> model(torch.randn(20, 8, 1)).shape
        torch.Size([8, 3])

    Reference:
        J. M. Bates, C. W. J. Granger. The combination of forecasts. Operational Research Quarterly,
        1969.
    """

    @checked
    def __init__(
        self, shape: TaskShape, *, of: Sequence[str] = ("seasonal-naive", "ridge-lags")
    ) -> None:
        super().__init__(shape)
        self.members = nn.ModuleList(_forecaster(name)(shape) for name in _checked(of))

    def _forecasters(self) -> list[Continuation]:
        return [one for one in self.members if isinstance(one, Continuation)]

    def learnt_numbers(self) -> int:
        """Return how many numbers all of them learnt."""
        return sum(one.learnt_numbers() for one in self._forecasters())

    def learn(self, part: Part) -> None:
        """Let each of them learn."""
        for one in self._forecasters():
            one.learn(part)

    def refit(self, part: Part) -> None:
        """Let each of them learn from further data."""
        for one in self._forecasters():
            one.refit(part)

    def findings(self) -> list[str]:
        """Say what each of them found."""
        return [said for one in self._forecasters() for said in one.findings()]

    def _continued(self, pasts: Pasts) -> np.ndarray:
        return np.mean([one._continued(pasts) for one in self._forecasters()], axis=0)


def _checked(names: Sequence[str]) -> Sequence[str]:
    if len(set(names)) != len(names) or len(names) < 2:
        raise OptionError(
            explain(
                "combination.of",
                expected="two or more forecasters, each once",
                got=", ".join(names) or "none",
                remedy="For example seasonal-naive,ridge-lags.",
            )
        )
    return names


def _forecaster(name: str) -> type[Continuation]:
    plain = {one: models[one] for one in models if one != "combination" and _fits(models[one])}
    if name not in plain:
        raise OptionError(
            explain(
                "combination.of",
                expected="forecasters that look at no more than a window of the past",
                got=name,
                remedy=f"Choose of {', '.join(plain)}.",
            )
        )
    return plain[name]


def _fits(member: object) -> bool:
    kind = isinstance(member, type) and issubclass(member, Continuation)
    return kind and not getattr(member, "reads_whole_past", False)
