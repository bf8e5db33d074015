"""How much time a race has."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from typing import Any

from undamped._base.errors import OptionError, explain
from undamped.lab.training.options import TrainOptions

DEFAULT_MINUTES = 5.0
BUDGETS = ("steps", "epochs", "seconds", "minutes")


@dataclass(frozen=True)
class Clock:
    """The budget of a race: seconds for all of it, or a number of updates for each network.

    Args:
        limit: Seconds, or infinity where updates are counted.
        updates: "steps" or "epochs" and how many, where updates are counted.
    """

    limit: float
    updates: dict[str, float]
    _begun: float = field(default_factory=time.perf_counter)

    @classmethod
    def of(cls, train: dict[str, Any]) -> Clock:
        """Read the budget from options of training; five minutes if nothing was said."""
        chosen = {name: train[name] for name in BUDGETS if train.get(name) is not None}
        options = TrainOptions(**(chosen or {"minutes": DEFAULT_MINUTES}))
        if options.time_limit is not None:
            return cls(options.time_limit, {})
        return cls(math.inf, chosen)

    @property
    def timed(self) -> bool:
        """Whether time is what is limited."""
        return math.isfinite(self.limit)

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self.limit - (time.perf_counter() - self._begun)

    def without(self, seconds: float) -> Clock:
        """Return the same clock with so much less time.

        Args:
            seconds: What is needed for something else.
        """
        return replace(self, limit=self.limit - seconds)


def without_budget(train: dict[str, Any]) -> dict[str, Any]:
    """Return options of training without those that limit it."""
    return {name: value for name, value in train.items() if name not in BUDGETS}


def refuse_model_options(options: dict[str, Any]) -> None:
    """Refuse options of a model where nobody knows yet which one it will be."""
    if options:
        name = next(iter(options))
        raise OptionError(
            explain(
                f"model.{name}",
                expected="no options of a model while models are raced",
                got=repr(options[name]),
                remedy="Name the model, such as unicornn, or leave the option out.",
            )
        )
