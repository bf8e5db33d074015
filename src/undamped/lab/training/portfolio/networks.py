"""Members of the race that are trained: each a little, the best of them longer."""

from __future__ import annotations

import copy
import math
import tempfile
import time
from collections.abc import Callable
from typing import Any

from undamped._base.errors import UndampedError
from undamped._base.registry import models
from undamped.lab.tasks.task import Task
from undamped.lab.training.portfolio.attempt import Attempt, Clock, better

_MEMBERS = ("unicornn", "linoss", "gru")
LONGER = 3
"""How much more the best of the first round gets in the second."""
_LEAST_SECONDS = 4.0  # for which a round of one network is worth starting


def members() -> list[str]:
    """Return the networks of the race, as far as there are such."""
    return [name for name in _MEMBERS if name in models]


def try_networks(
    task: Task,
    train: dict[str, Any],
    seed: int,
    clock: Clock,
    reserve: float,
    say: Callable[[Attempt], None],
    bar: bool = False,
) -> list[Attempt]:
    """Train every network for a round, and the best of them for a longer one.

    Args:
        task: The task.
        train: Options of training that were said, without a budget.
        seed: Where random numbers come from.
        clock: The budget.
        reserve: Seconds that are needed afterwards.
        say: Called with every attempt.
        bar: Whether to draw a progress bar for each.
    """
    names = members()
    first: list[Attempt] = []
    # One round for each, a longer one for the best, and as long again for its run at the end.
    round_seconds = (clock.left - reserve) / (len(names) + 2 * LONGER)
    if clock.timed and round_seconds < _LEAST_SECONDS:
        left = [Attempt(name, why_not="there was no time left for it.") for name in names]
        for attempt in left:
            say(attempt)
        return left
    for name in names:
        budget = _share(clock, 1 / LONGER) if not clock.timed else {"seconds": round_seconds}
        first.append(_try(name, task, {**train, **budget}, seed, bar))
        say(first[-1])
    usable = [one for one in first if one.usable]
    if not usable:
        return first
    best = usable[0]
    for one in usable[1:]:
        best = one if better(one, best, task) else best
    budget = dict(clock.updates) if not clock.timed else {"seconds": LONGER * round_seconds}
    second = _try(best.model, task, {**train, **budget}, seed, bar)
    say(second)
    return [*first, second]


def _share(clock: Clock, share: float) -> dict[str, float]:
    return {
        name: max(1, math.ceil(value * share)) if name == "steps" else value * share
        for name, value in clock.updates.items()
    }


def _try(name: str, task: Task, train: dict[str, Any], seed: int, bar: bool) -> Attempt:
    from undamped.lab.training.fit import fit

    begun = time.perf_counter()
    try:
        with tempfile.TemporaryDirectory(prefix="undamped-") as folder:
            run = fit(name, _untested(task), train=train, seed=seed, out=folder, progress=bar)
            settings, rows = run.settings, run.metrics()
    except UndampedError as error:
        return Attempt(name, why_not=str(error))
    if settings["status"] != "finished":
        raise KeyboardInterrupt
    result = settings["result"]
    score = result["valid"][task.metric]
    at_best = next((row for row in rows if row["step"] == result["best_step"]), rows[-1])
    steps = int(result["steps"])
    return Attempt(
        name,
        score=score,
        loss=at_best["valid_loss"],
        valid=score,
        draws=1,
        seconds=time.perf_counter() - begun,
        parameters=settings["model"]["parameters"],
        steps=steps,
        # Counted in updates, what is trained again ends with the same weights.
        train={**{k: v for k, v in train.items() if k not in ("seconds", "epochs")}, "steps": steps}
        if "seconds" in train
        else train,
    )


def _untested(task: Task) -> Task:
    """Return the task without its test part, which nobody may look at before the end.

    What it has to say about its data was said before.
    """
    shy: Any = copy.copy(task)
    shy.test_tasks, shy.notes = dict, list
    return shy
