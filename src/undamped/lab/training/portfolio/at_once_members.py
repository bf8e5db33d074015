"""Members of the race that learn at once: seconds each, and judged on several draws of data."""

from __future__ import annotations

import time
from typing import Any

import torch

from undamped._base.contract import Batch
from undamped._base.errors import UndampedError
from undamped.lab.baselines.closed_form import ClosedFormModel
from undamped.lab.tasks import optional
from undamped.lab.tasks.task import ArrayTask, Task
from undamped.lab.training.at_once import TaskPart, check_data
from undamped.lab.training.evaluation import evaluate, with_full_history
from undamped.lab.training.options import TrainOptions
from undamped.lab.training.portfolio.attempt import Attempt, Clock
from undamped.lab.training.recipes import merged
from undamped.models.for_task import check_options, model_for

MEMBERS = ("guess", "bank", "boosting", "minirocket", "multirocket-hydra")
"""The cheapest first."""
FORECASTERS = ("seasonal-naive", "ridge-lags", "combination", "ets")
"""What is tried before those where values to come are asked for."""
ALWAYS = ("guess", "seasonal-naive")
"""What is tried however little time is left."""
DRAWS = 5
_ENOUGH = 200  # validation series that tell models apart without being drawn again
_PROBED = 16  # series on which the pace of a member is measured first
_ASKED = 4  # of them, for answers
_LARGER = 4  # times as many the next time, while that is not nearly all
_CHEAP = 0.1  # of the time that is left: what costs less needs no closer look
_FIRST_LOOK = 3.0  # seconds that compiling and probing may take
FINAL = 3.0
"""Times the price of one draw: learning again from all, scoring, and reading bands."""
_FEWEST_WINDOWS = 10  # to learn from, below which only plain forecasters are tried


def members(task: Task) -> list[str]:
    """Return the members that are tried on a task, the cheapest first.

    Args:
        task: The task.
    """
    if task.task_shape.forecast is None:
        return list(MEMBERS)
    cheapest, *others = MEMBERS
    return [cheapest, *FORECASTERS, *(() if too_few_windows(task) else others)]


def too_few_windows(task: Task) -> bool:
    """Whether a forecast has so few windows that only plain forecasters can learn from them.

    Args:
        task: The task.
    """
    few = (task.count("train", 1) or 0) < _FEWEST_WINDOWS
    return few and task.task_shape.forecast is not None


def try_at_once(name: str, task: Task, train: dict[str, Any], seed: int, clock: Clock) -> Attempt:
    """Learn from the training part, score on validation data, as often as pays and time allows.

    Args:
        name: Registry name of the member.
        task: The task.
        train: Options of training that were said, without a budget.
        seed: Where random numbers come from.
        clock: The time that is left.
    """
    begun = time.perf_counter()
    task = with_full_history(name, task)
    settings = merged(task, name, {"train": train}, optional.suggest(task, name))
    options = TrainOptions(**settings["train"])
    draws = _draws_of(task)
    try:
        model = _built(name, task, settings["model"], options)
        check_data(name, task, options)
        if clock.timed and name not in ALWAYS:
            if clock.left < _FIRST_LOOK:
                return Attempt(name, why_not="there was no time left for it.")
            price = _price(name, task, settings["model"], options, seed, clock)
            if price * (1 + FINAL) > clock.left:
                said = f"it would have taken about {price * (1 + FINAL):.0f} s."
                return Attempt(name, why_not=said)
            draws = max(1, min(draws, int(clock.left / 4 / max(price, 1e-9))))
        found = []
        for number in range(draws):
            drawn = task if number == 0 else optional.redrawn(task, number)
            if drawn is None:
                break
            model = _built(name, drawn, settings["model"], options)
            _learn(model, drawn, options, seed)
            found.append(evaluate(model, drawn, "valid", options.batch_size))
    except (UndampedError, MemoryError) as error:
        return Attempt(name, why_not=str(error))
    return Attempt(
        name,
        score=sum(one.metric for one in found) / len(found),
        loss=sum(one.loss for one in found) / len(found),
        valid=found[0].metric,
        draws=len(found),
        each=tuple((one.metric, one.loss) for one in found),
        seconds=time.perf_counter() - begun,
        parameters=model.parameter_count(),
    )


def _draws_of(task: Task) -> int:
    few = task.count("valid", 1) or 0
    return DRAWS if 0 < few < _ENOUGH and optional.redrawn(task, 1) is not None else 1


def _built(name: str, task: Task, options: dict[str, Any], train: TrainOptions) -> ClosedFormModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model: Any = model_for(task.task_shape, name, check_options(name, options))
    return model.double() if train.precision == "64-true" else model


def _learn(model: ClosedFormModel, task: Task, options: TrainOptions, seed: int) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model.fit_closed_form(TaskPart(task, "train", options))


def _price(
    name: str, task: Task, options: dict[str, Any], train: TrainOptions, seed: int, clock: Clock
) -> float:
    """Return about how many seconds one draw will take, from looks at more and more series.

    What a look costs whatever it looks at (compiling, above all) weighs less the more it sees, so
    that looks are made until the estimate is small, too large, or made of a good part of all.
    """

    def look(count: int) -> tuple[float, float]:
        batch, total = _few(task, train, count)
        model = _built(name, task, options, train)
        begun = time.perf_counter()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model.fit_closed_form([batch])
            learnt = time.perf_counter() - begun
            asked = batch.part(slice(_ASKED), inputs_axis=1, targets_axis=0)
            model.run(asked)
        seconds = time.perf_counter() - begun
        # Learning is about the training part, and answers are asked for validation.
        answer = (seconds - learnt) / asked.inputs.shape[1]
        price = learnt * total / batch.inputs.shape[1] + answer * (task.count("valid", 1) or 0)
        return seconds, price

    look(_PROBED)  # compiles
    count, (seconds, price) = _PROBED, look(_PROBED)
    _, total = _few(task, train, 1)
    while (
        count * _LARGER < total
        and price * (1 + FINAL) > _CHEAP * clock.left
        and seconds * _LARGER * (1 + FINAL) < clock.left
    ):
        count *= _LARGER
        seconds, price = look(count)
    return price


def _few(task: Task, train: TrainOptions, count: int) -> tuple[Batch, int]:
    """Return a few series from all over the training part, and how many it has."""
    if not isinstance(task, ArrayTask):
        batch = task.batch("train", 0, count)
        return batch, TaskPart(task, "train", train).count * train.batch_size
    total = task.sequences("train")
    index = torch.linspace(0, total - 1, min(count, total)).long()
    return task.take("train", index, task.generator("train", 0)), total
