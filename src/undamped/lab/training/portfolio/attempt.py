"""What was tried on a task, and how it went."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from undamped._base.errors import OptionError, explain
from undamped.lab.tasks.task import Task
from undamped.lab.training.options import TrainOptions


@dataclass(frozen=True)
class Attempt:
    """A model that was tried, or that was not.

    Args:
        model: Its registry name.
        score: The task's metric on validation data, the mean where these were drawn several times.
        loss: The task's loss there, likewise.
        valid: The metric on the task's own validation part.
        draws: How often validation data were drawn.
        each: Metric and loss on every draw.
        seconds: How long it took.
        parameters: How many numbers were learnt.
        steps: Updates of a network; 0 for a model that learns at once.
        why_not: Why it was not tried, in a sentence; empty if it was.
        train: Options of training that were used, beyond those that the data suggests.
    """

    model: str
    score: float = math.nan
    loss: float = math.nan
    valid: float = math.nan
    draws: int = 0
    each: tuple[tuple[float, float], ...] = ()
    seconds: float = 0.0
    parameters: int = 0
    steps: int = 0
    why_not: str = ""
    train: dict[str, Any] = field(default_factory=dict)

    @property
    def usable(self) -> bool:
        """Whether it was tried, and gave numbers."""
        return not self.why_not and math.isfinite(self.score)

    def to_dict(self) -> dict[str, Any]:
        """Return what run.json remembers; numbers that are not there are left out."""
        found = {n: value for n, value in asdict(self).items() if n not in ("train", "each")}
        if not self.usable:
            return {"model": self.model, "why_not": self.why_not or "its answers are not finite"}
        del found["why_not"]
        return {**found, "seconds": round(self.seconds, 3)}


def in_short(why: str) -> str:
    """Return the first sentence of a refusal, without the name it begins with and the remedy."""
    sentence = why.partition(". ")[0].rstrip(".")
    name, colon, rest = sentence.partition(": ")
    return f"{rest if colon and ' ' not in name else sentence}."


def better(first: Attempt, second: Attempt, task: Task) -> bool:
    """Whether one attempt is better than another: by the metric, and by the loss if that is equal.

    Only draws of validation data that both have seen are compared.

    Args:
        first: One that is usable.
        second: Another one.
        task: The task, which knows what good is.
    """
    common = min(len(first.each), len(second.each))
    (score, loss), (other, other_loss) = (_over(one, common) for one in (first, second))
    if score != other:
        return (score > other) == task.higher_is_better
    return loss < other_loss


def _over(attempt: Attempt, draws: int) -> tuple[float, float]:
    """Return the mean metric and loss over the first draws, or over all if none is common."""
    if not draws:
        return attempt.score, attempt.loss
    scores, losses = zip(*attempt.each[:draws], strict=True)
    return sum(scores) / draws, sum(losses) / draws


def standard_error(score: float, count: int, task: Task) -> float:
    """Return how far chance moves a score, about.

    Args:
        score: A share of right answers, or an error.
        count: Of how many answers.
        task: The task whose metric it is.
    """
    if task.metric.endswith("accuracy"):
        # As if there had been one more answer of each kind: none of ten wrong is not none at all.
        share = (score * count + 1) / (count + 2)
        return math.sqrt(share * (1 - share) / (count + 2))
    return abs(score) / math.sqrt(2 * count)


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


def check_no_model_options(options: dict[str, Any]) -> None:
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
