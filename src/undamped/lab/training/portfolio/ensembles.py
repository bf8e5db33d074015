"""The ensemble of the candidates, scored by the predictions that they made on validation data."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.contract import Batch, TaskShape
from undamped.lab.baselines.ensemble import mean_prediction
from undamped.lab.tasks import optional
from undamped.lab.tasks.task import Task
from undamped.lab.training.evaluation import evaluate
from undamped.lab.training.portfolio.attempt import (
    Attempt,
    Clock,
    Selection,
    best_of,
    mean_scores,
    standard_error,
)
from undamped.models.task_model import TaskModel

ENSEMBLE = "ensemble"
FINAL = 3.0
"""Cost of the final run in draws: fit to all data, scores and bands."""
_POWER = 4  # of an accuracy, or of the inverse of an error, in the weight of a model
_LEAST_WEIGHT = 0.05  # relative to the largest; a model with less is not worth its time
_BATCH = 256


def final_seconds(attempts: Sequence[Attempt]) -> float:
    """Return the estimated seconds of the final run of models that were tried."""
    return FINAL * sum(attempt.seconds / max(1, attempt.draws) for attempt in attempts)


def try_ensemble(attempts: list[Attempt], selection: Selection, clock: Clock) -> Attempt | None:
    """Score the weighted mean of the predictions; None if there are fewer than two models.

    Models that take too much time for a final run together are left out, the slowest first.

    Args:
        attempts: All attempts so far.
        selection: The task, and the models to compare, which have to name `ensemble`: it cannot
            follow a stream, and validation did not show that it is better than the best model.
        clock: The budget.
    """
    start, task = time.perf_counter(), selection.task
    if task.task_shape.forecast is not None or ENSEMBLE not in (selection.candidates or ()):
        return None
    candidates = [a for a in attempts if a.usable and a.outputs and a.model != "guess"]
    draws = min((len(candidate.outputs) for candidate in candidates), default=0)
    candidates, weights = _weighted(candidates, draws, task, clock)
    if len(candidates) < 2:
        return None
    scores = []
    for index in range(draws):
        draw = task if index == 0 else optional.redrawn(task, index)
        assert draw is not None  # the candidates were scored on it
        outputs = [candidate.outputs[index] for candidate in candidates]
        scores.append(evaluate(_Replay(task.task_shape, outputs, weights), draw, "valid", _BATCH))
    return Attempt(
        ENSEMBLE,
        score=sum(score.metric for score in scores) / draws,
        loss=sum(score.loss for score in scores) / draws,
        valid=scores[0].metric,
        draws=draws,
        each=tuple((score.metric, score.loss) for score in scores),
        seconds=time.perf_counter() - start,
        parameters=sum(candidate.parameters for candidate in candidates),
        options={"of": [candidate.model for candidate in candidates], "weights": weights},
    )


def _weighted(
    candidates: list[Attempt], draws: int, task: Task, clock: Clock
) -> tuple[list[Attempt], list[float]]:
    """Return the candidates that are worth their time and fit into it, and their weights."""
    powers = {candidate.model: _power(candidate, draws, task) for candidate in candidates}
    least = _LEAST_WEIGHT * max(powers.values(), default=0.0)
    candidates = [candidate for candidate in candidates if powers[candidate.model] > least]
    best = best_of(candidates, task)
    while len(candidates) > 1 and final_seconds(candidates) > clock.remaining:
        slower = (candidate for candidate in candidates if candidate is not best)
        candidates.remove(max(slower, key=lambda candidate: candidate.seconds / candidate.draws))
    total = sum(powers[candidate.model] for candidate in candidates)
    return candidates, [round(powers[candidate.model] / total, 4) for candidate in candidates]


def choose(attempts: list[Attempt], task: Task) -> tuple[Attempt | None, str]:
    """Return the best of the attempts and the reason, which is empty if it is just the best.

    The best single model on validation data is often best by luck, which a mean is not. The
    ensemble is therefore taken unless it is worse by more than a standard error, or the best single
    model is always right.
    """
    best = best_of([attempt for attempt in attempts if attempt.model != ENSEMBLE], task)
    ensemble = best_of([attempt for attempt in attempts if attempt.model == ENSEMBLE], task)
    if best is None or ensemble is None:
        return best, ""
    score, _ = mean_scores(best, ensemble.draws)
    loss = score - ensemble.score if task.higher_is_better else ensemble.score - score
    perfect = task.metric.endswith("accuracy") and score == 1
    if perfect or loss > standard_error(score, valid_count(task), task):
        return best, ""
    names = ", ".join(ensemble.options["of"])
    return ensemble, (
        f"The mean of {names} was not worse than the best of them, {best.model}, by more than a "
        f"standard error on {data_of(ensemble)}."
    )


def data_of(attempt: Attempt) -> str:
    """Return the name of the data that an attempt was scored on."""
    if attempt.draws > 1:
        return f"{attempt.draws} draws of validation data"
    return "validation data"


def valid_count(task: Task) -> int:
    """Return the number of validation targets."""
    count = task.count("valid", 64) or 1
    return max(1, sum(task.answers(task.batch("valid", index, 64)) for index in range(count)))


def _power(attempt: Attempt, draws: int, task: Task) -> float:
    score, _ = mean_scores(attempt, draws)
    ratio = score if task.higher_is_better else 1 / max(score, 1e-12)
    return max(0.0, ratio) ** _POWER


class _Replay(TaskModel):
    """A model that repeats the weighted mean of recorded predictions, batch by batch."""

    def __init__(self, shape: TaskShape, outputs: list[Tensor], weights: list[float]) -> None:
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(1))  # its device is that of the batches
        self.mean = mean_prediction(shape, outputs, torch.tensor(weights))
        self.position = 0

    def run(self, batch: Batch, state: Any = None) -> tuple[Tensor, None]:
        """Return the predictions of the next sequences."""
        begin = self.position
        self.position += batch.inputs.shape[1]
        return self.mean[begin : self.position], None
