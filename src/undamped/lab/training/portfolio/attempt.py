"""The attempts of a model selection, and its budget."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from torch import Tensor

from undamped._base.errors import OptionError
from undamped._base.options import convert
from undamped._base.registry import models
from undamped.lab.tasks.task import Task
from undamped.lab.training.options import BUDGETS, TrainOptions

DEFAULT_MINUTES = 5.0


@dataclass(frozen=True)
class Attempt:
    """A model that was tried, or that could not be tried.

    Args:
        model: Its registry name.
        score: The task's metric on validation data, the mean over all draws of it.
        loss: The task's loss there.
        valid: The metric on the validation split of the task itself.
        draws: The number of draws of validation data.
        each: Metric and loss on every draw.
        seconds: The time it took.
        parameters: The number of fitted parameters.
        steps: Optimizer steps of a network; 0 for a model that is fitted in closed form.
        why_not: Why it was not tried, in a sentence; empty if it was.
        late: Whether it was not tried because it takes more time than remains.
        train: The training options, beyond those that the data suggests.
        options: The options of the model.
        outputs: The predictions on every draw, of a model that is fitted in closed form.
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
    late: bool = False
    train: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    outputs: tuple[Tensor, ...] = field(default=(), repr=False, compare=False)

    @property
    def usable(self) -> bool:
        """Whether the model was tried, with finite scores."""
        return not self.why_not and math.isfinite(self.score)

    def to_dict(self) -> dict[str, Any]:
        """Return the entries for run.json."""
        if not self.usable:
            return {"model": self.model, "why_not": self.why_not or "its answers are not finite"}
        entries = asdict(replace(self, outputs=()))
        for name in ("train", "each", "why_not", "late", "outputs"):
            del entries[name]
        if not self.options:
            del entries["options"]
        return {**entries, "seconds": round(self.seconds, 3)}


def in_short(why: str) -> str:
    """Return the first sentence of a message, without a name at its beginning."""
    sentence = why.partition(". ")[0].rstrip(".")
    name, colon, rest = sentence.partition(": ")
    return f"{rest if colon and ' ' not in name else sentence}."


def best_of(attempts: list[Attempt], task: Task) -> Attempt | None:
    """Return the best of the usable attempts, the first of equals; None if there is none."""
    best = None
    for attempt in attempts:
        if attempt.usable and (best is None or is_better(attempt, best, task)):
            best = attempt
    return best


def is_better(first: Attempt, second: Attempt, task: Task) -> bool:
    """Compare by the metric, and by the loss if it is equal, on the draws that both have."""
    draws = min(len(first.each), len(second.each))
    score, loss = mean_scores(first, draws)
    second_score, second_loss = mean_scores(second, draws)
    if score != second_score:
        return (score > second_score) == task.higher_is_better
    return loss < second_loss


def mean_scores(attempt: Attempt, draws: int) -> tuple[float, float]:
    """Return the mean metric and loss over the first draws; over all draws for 0."""
    if not draws:
        return attempt.score, attempt.loss
    scores, losses = zip(*attempt.each[:draws], strict=True)
    return sum(scores) / draws, sum(losses) / draws


def standard_error(score: float, count: int, task: Task) -> float:
    """Return an approximate standard error of a score.

    Args:
        score: An accuracy, or an error.
        count: The number of predictions.
        task: The task of the metric.
    """
    if task.metric.endswith("accuracy"):
        # With one more prediction of each kind, so that 0 errors in 10 do not mean certainty.
        rate = (score * count + 1) / (count + 2)
        return math.sqrt(rate * (1 - rate) / (count + 2))
    return abs(score) / math.sqrt(2 * count)


@dataclass(frozen=True)
class Selection:
    """The settings of a model selection.

    Args:
        task: The task.
        train: Training options of the user, without a budget.
        seed: The seed of all random numbers.
        report: Called with every attempt.
        verbose: Whether to print the name of each model first, and progress bars of networks.
        candidates: Registry names of the models to compare; None for the portfolio.
    """

    task: Task
    train: dict[str, Any]
    seed: int
    report: Callable[[Attempt], None] = lambda attempt: None
    verbose: bool = False
    candidates: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Clock:
    """The budget of a model selection: seconds in all, or optimizer steps of each network.

    Args:
        limit: Seconds, or infinity if steps are limited.
        updates: "steps" or "epochs" and their number, if steps are limited.
    """

    limit: float
    updates: dict[str, float]
    _start: float = field(default_factory=time.perf_counter)

    @classmethod
    def of(cls, train: dict[str, Any]) -> Clock:
        """Read the budget from training options; the default is five minutes."""
        budget = {name: train[name] for name in BUDGETS if train.get(name) is not None}
        options = TrainOptions(**(budget or {"minutes": DEFAULT_MINUTES}))
        if options.time_limit is not None:
            return cls(options.time_limit, {})
        return cls(math.inf, budget)

    @property
    def timed(self) -> bool:
        """Whether time is limited."""
        return math.isfinite(self.limit)

    @property
    def remaining(self) -> float:
        """Remaining seconds."""
        return self.limit - (time.perf_counter() - self._start)

    def without(self, seconds: float) -> Clock:
        """Return the same clock with less time.

        Args:
            seconds: Time that is reserved for something else.
        """
        return replace(self, limit=self.limit - seconds)


def check_auto_options(options: Mapping[str, Any], *, text: bool = False) -> dict[str, Any]:
    """Return the checked options of `auto`: only `candidates`, the models that it compares.

    Args:
        options: The options, by name.
        text: Whether values may be text of a command line.
    """
    for name in options:
        if name != "candidates":
            raise OptionError(
                f"model.{name}={options[name]} cannot be set with auto, which compares several "
                "models. Name a model, such as unicornn, or omit the option."
            )
    if not options:
        return {}
    names = convert(tuple[str, ...], options["candidates"], "model.candidates", text=text)
    if not names:
        raise OptionError("model.candidates must name at least one model, got none.")
    for name in names:
        models[name]  # an unknown name is an error
    return {"candidates": tuple(dict.fromkeys(names))}
