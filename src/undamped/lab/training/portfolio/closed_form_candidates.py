"""Candidates that are fitted in closed form: seconds each, scored on several validation splits."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from undamped._base.contract import Batch
from undamped._base.errors import UndampedError
from undamped._base.registry import models
from undamped.lab.baselines.closed_form import ClosedFormModel
from undamped.lab.tasks import optional
from undamped.lab.tasks.task import ArrayTask, Task
from undamped.lab.training.closed_form import SplitBatches, check_data
from undamped.lab.training.evaluation import evaluate, with_full_history
from undamped.lab.training.options import TrainOptions
from undamped.lab.training.portfolio.attempt import Attempt, Clock, Selection
from undamped.lab.training.portfolio.ensembles import ENSEMBLE, FINAL
from undamped.lab.training.recipes import merged
from undamped.models.for_task import check_options, model_for

CANDIDATES = (
    *("guess", "bank", "location-bank", "boosting", "minirocket"),
    *("multirocket-hydra", "quant", "rdst"),
)
"""The cheapest first."""
NOT_FOR_FORECASTS = ("quant", "rdst", "location-bank")
FORECASTERS = ("seasonal-naive", "ridge-lags", "combination", "ets", "theta", "mstl")
"""The candidates of a forecast, which are tried after the cheapest and before the others."""
INTERMITTENT = ("croston", "tsb")
"""Further candidates where many values are zero."""
ALWAYS = ("guess", "seasonal-naive")
"""Candidates that are tried even if no time remains."""
DRAWS = 5
_ENOUGH = 200  # validation series that distinguish models without further draws
_TRIAL_SERIES = 16  # series of the first measurement of speed
_TRIAL_PREDICTIONS = 4  # of them, to measure the time of predictions
_GROWTH = 4  # factor of the series from one measurement to the next
_CHEAP = 0.1  # fraction of the remaining time below which an estimate is good enough
_FIRST_TRIAL = 3.0  # seconds that compilation and measurement may take
_FEWEST_WINDOWS = 10  # training windows below which only forecasters are tried


def candidates(task: Task, names: Sequence[str] | None = None) -> list[str]:
    """Return the names of the candidates for a task, the cheapest first.

    Args:
        task: The task.
        names: Models to compare; None for the portfolio.
    """
    if names is not None:
        return [
            name for name in names if name != ENSEMBLE and issubclass(models[name], ClosedFormModel)
        ]
    if task.task_shape.forecast is None:
        return list(CANDIDATES)
    cheapest, *others = (name for name in CANDIDATES if name not in NOT_FOR_FORECASTS)
    intermittent = INTERMITTENT if optional.intermittent(task) else ()
    return [cheapest, *FORECASTERS, *intermittent, *(() if too_few_windows(task) else others)]


def too_few_windows(task: Task) -> bool:
    """Return whether a forecast has too few windows for models that are not forecasters."""
    few = (task.count("train", 1) or 0) < _FEWEST_WINDOWS
    return few and task.task_shape.forecast is not None


def try_closed_form(name: str, selection: Selection, clock: Clock) -> Attempt:
    """Fit to training data and score on validation data, on as many draws as time allows."""
    start, seed = time.perf_counter(), selection.seed
    task = with_full_history(name, selection.task)
    settings = merged(task, name, {"train": selection.train}, optional.suggest(task, name))
    options = TrainOptions(**settings["train"])
    draws = _draws_of(task)
    try:
        model = _build(name, task, settings["model"], options)
        check_data(name, task, options)
        if clock.timed and name not in ALWAYS:
            if clock.remaining < max(_FIRST_TRIAL, 2 * type(model).first_use_seconds):
                return Attempt(name, why_not="there was no time left for it.", late=True)
            cost = _cost(name, task, settings["model"], options, seed, clock)
            if cost * (1 + FINAL) > clock.remaining:
                why_not = f"it would have taken about {cost * (1 + FINAL):.0f} s."
                return Attempt(name, why_not=why_not, late=True)
            draws = max(1, min(draws, int(clock.remaining / 4 / max(cost, 1e-9))))
        scores, outputs = [], []
        for index in range(draws):
            draw = task if index == 0 else optional.redrawn(task, index)
            if draw is None:
                break
            model = _build(name, draw, settings["model"], options)
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                model.fit_closed_form(SplitBatches(draw, "train", options))
            record: list[Tensor] = []
            scores.append(evaluate(model, draw, "valid", options.batch_size, record=record))
            outputs.append(torch.cat(record))
    except (UndampedError, MemoryError) as error:
        return Attempt(name, why_not=str(error))
    return Attempt(
        name,
        score=sum(score.metric for score in scores) / len(scores),
        loss=sum(score.loss for score in scores) / len(scores),
        valid=scores[0].metric,
        draws=len(scores),
        each=tuple((score.metric, score.loss) for score in scores),
        seconds=time.perf_counter() - start,
        parameters=model.parameter_count(),
        outputs=tuple(outputs) if task.task_shape.readout == "last" else (),
    )


def _draws_of(task: Task) -> int:
    count = task.count("valid", 1) or 0
    return DRAWS if 0 < count < _ENOUGH and optional.redrawn(task, 1) is not None else 1


def _build(name: str, task: Task, options: dict[str, Any], train: TrainOptions) -> ClosedFormModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model: Any = model_for(task.task_shape, name, check_options(name, options))
    return model.double() if train.precision == "64-true" else model


def _cost(
    name: str, task: Task, options: dict[str, Any], train: TrainOptions, seed: int, clock: Clock
) -> float:
    """Return an estimate of the seconds of one draw, from fits to more and more series.

    Fixed costs, above all compilation, matter less with more series. The number of series grows
    until the estimate is small, too large, or based on a good part of the data.
    """

    def trial(count: int) -> tuple[float, float]:
        batch, total = _few(task, train, count)
        model = _build(name, task, options, train)
        start = time.perf_counter()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model.fit_closed_form([batch])
            fit_seconds = time.perf_counter() - start
            inputs = batch.part(slice(_TRIAL_PREDICTIONS), inputs_axis=1, targets_axis=0)
            model.run(inputs)
        seconds = time.perf_counter() - start
        # A fit uses the training split, and predictions are made for the validation split.
        per_prediction = (seconds - fit_seconds) / inputs.inputs.shape[1]
        predictions = task.count("valid", 1) or 0
        cost = fit_seconds * total / batch.inputs.shape[1] + per_prediction * predictions
        return seconds, cost

    trial(_TRIAL_SERIES)  # compiles
    count, (seconds, cost) = _TRIAL_SERIES, trial(_TRIAL_SERIES)
    _, total = _few(task, train, 1)
    while (
        count * _GROWTH < total
        and cost * (1 + FINAL) > _CHEAP * clock.remaining
        and seconds * _GROWTH * (1 + FINAL) < clock.remaining
    ):
        count *= _GROWTH
        seconds, cost = trial(count)
    return cost


def _few(task: Task, train: TrainOptions, count: int) -> tuple[Batch, int]:
    """Return a few evenly spread series of the training split, and the number of all."""
    if not isinstance(task, ArrayTask):
        batch = task.batch("train", 0, count)
        return batch, SplitBatches(task, "train", train).count * train.batch_size
    total = task.sequences("train")
    index = torch.linspace(0, total - 1, min(count, total)).long()
    return task.take("train", index, task.generator("train", 0)), total
