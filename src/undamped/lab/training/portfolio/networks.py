"""Candidates that are trained by gradients: each for a short time, the best of them longer."""

from __future__ import annotations

import copy
import math
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from undamped._base.errors import UndampedError
from undamped._base.registry import models
from undamped.lab.baselines.closed_form import ClosedFormModel
from undamped.lab.tasks.task import Task
from undamped.lab.training.portfolio.attempt import Attempt, Clock, Selection, best_of

CANDIDATES = ("unicornn", "linoss", "gru")
LONGER = 3
"""The budget of the second round, in budgets of the first."""
_LEAST_SECONDS = 4.0  # of the first round of a network


def candidates(names: Sequence[str] | None = None) -> list[str]:
    """Return the names of the networks among `names`; those of the portfolio for None."""
    if names is None:
        return list(CANDIDATES)
    return [name for name in names if not issubclass(models[name], ClosedFormModel)]


def try_networks(selection: Selection, clock: Clock, reserve: float) -> list[Attempt]:
    """Train every network for a round, and the best of them for a longer one.

    Args:
        selection: Task, options and seed.
        clock: The budget.
        reserve: Seconds that are needed afterwards.
    """
    names = candidates(selection.candidates)
    # One round for each, a longer one for the best, and as long for its final run.
    round_seconds = (clock.remaining - reserve) / (len(names) + 2 * LONGER)
    if clock.timed and round_seconds < _LEAST_SECONDS:
        attempts = [Attempt(name, why_not="there was no time left for it.") for name in names]
        for attempt in attempts:
            selection.report(attempt)
        return attempts

    def train_rounds(name: str, rounds: float) -> Attempt:
        budget = {"seconds": rounds * round_seconds}
        if not clock.timed:
            budget = _scaled(clock.updates, rounds / LONGER)
        attempt = _try(name, replace(selection, train={**selection.train, **budget}))
        selection.report(attempt)
        return attempt

    attempts = [train_rounds(name, 1) for name in names]
    best = best_of(attempts, selection.task)
    return attempts if best is None else [*attempts, train_rounds(best.model, LONGER)]


def _scaled(updates: dict[str, float], fraction: float) -> dict[str, float]:
    """Return a fraction of steps or epochs; steps are whole numbers."""
    return {
        name: max(1, math.ceil(value * fraction)) if name == "steps" else value * fraction
        for name, value in updates.items()
    }


def _try(name: str, selection: Selection) -> Attempt:
    from undamped.lab.training.fit import fit

    start, train = time.perf_counter(), selection.train
    try:
        with tempfile.TemporaryDirectory(prefix="undamped-") as folder:
            run = fit(
                name,
                _untested(selection.task),
                train=train,
                seed=selection.seed,
                out=folder,
                progress=selection.verbose,
            )
            settings, rows = run.settings, run.metrics()
    except UndampedError as error:
        return Attempt(name, why_not=str(error))
    if settings["status"] != "finished":
        raise KeyboardInterrupt
    result = settings["result"]
    score = result["valid"][selection.task.metric]
    best_row = next((row for row in rows if row["step"] == result["best_step"]), rows[-1])
    steps = int(result["steps"])
    if "seconds" in train:  # with a number of steps, a second training ends with the same weights
        train = {name: value for name, value in train.items() if name not in ("seconds", "epochs")}
        train["steps"] = steps
    return Attempt(
        name,
        score=score,
        loss=best_row["valid_loss"],
        valid=score,
        draws=1,
        seconds=time.perf_counter() - start,
        parameters=settings["model"]["parameters"],
        steps=steps,
        train=train,
    )


def _untested(task: Task) -> Task:
    """Return the task without its test split, which must not be used before the end.

    Its notes about the data were printed before.
    """
    untested: Any = copy.copy(task)
    untested.test_tasks, untested.notes = dict, list
    return untested
