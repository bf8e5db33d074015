"""Backtests: forecasts from many origins of the past, each by a model that knew nothing later.

The end of every series is cut into folds. Before each fold a model is trained anew, on everything
that came before it; then it forecasts from one origin after the other through the fold, with its
weights as they are and all values up to the origin before its eyes. Bands come from validation
data before the fold, and move when what was forecast has come; so coverage is what a person would
have seen.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from undamped._base.errors import DataError, OptionError, UndampedError, explain
from undamped.lab.data.recordings.preparation import middle_of
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.tasks.series import SeriesTask
from undamped.lab.training.calibration import answers_and_truth, spread
from undamped.lab.training.fit import fit
from undamped.lab.training.forecast_scores import Ahead, seasonal_change, together
from undamped.lab.training.run import Run

_VALIDATION = 0.18  # of what is before a fold


@dataclass(frozen=True)
class Tested:
    """What one model came to.

    Args:
        model: Its registry name, or "auto".
        ahead: Its forecasts; None where it refused.
        seconds: Of its trainings, together.
        chosen: What "auto" chose, before each fold.
        refused: Why there are none, in a sentence.
    """

    model: str
    ahead: Ahead | None = None
    seconds: float = 0.0
    chosen: list[str] = field(default_factory=list)
    refused: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values: scores over all steps ahead, and of each of them."""
        if self.ahead is None:
            return {"model": self.model, "refused": self.refused}
        steps = range(self.ahead.said.shape[1])
        found: dict[str, Any] = {"model": self.model, **self.ahead.scores()}
        found["seconds"] = round(self.seconds, 3)
        found["steps"] = {h + 1: self.ahead.scores(slice(h, h + 1)) for h in steps}
        return {**found, "chosen": self.chosen} if self.chosen else found


@dataclass(frozen=True)
class Backtest:
    """What several models came to on one set of series.

    Args:
        source: The set.
        channels: What was predicted.
        horizon: Values to come.
        season: As it was said or found before the last fold.
        folds: How often every model was trained.
        levels: The quantiles of the bands.
        series: The series, each (time, predicted channels), for pictures.
        models: What each came to.
    """

    source: str
    channels: list[str]
    horizon: int
    season: int
    folds: int
    levels: tuple[float, ...]
    series: list[np.ndarray]
    models: list[Tested]

    @property
    def wanted(self) -> float:
        """What share of the values should lie within the band."""
        return self.levels[-1] - self.levels[0]

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON but the forecasts themselves."""
        return {
            "source": self.source,
            "channels": self.channels,
            "horizon": self.horizon,
            "season": self.season,
            "folds": self.folds,
            "quantiles": list(self.levels),
            "origins": max((len(m.ahead.origins) for m in self.models if m.ahead), default=0),
            "models": [one.to_dict() for one in self.models],
        }


def backtest(
    series_set: SeriesSet,
    models: Sequence[str],
    *,
    horizon: int,
    folds: int = 3,
    share: float = 0.3,
    origins: int = 100,
    options: Mapping[str, Any] | None = None,
    model_options: Mapping[str, Mapping[str, Any]] | None = None,
    train: Mapping[str, Any] | None = None,
    seed: int = 0,
    tick: Callable[..., None] | None = None,
) -> Backtest:
    """Forecast from many origins in the last part of every series.

    Args:
        series_set: The recordings.
        models: Registry names, and "auto".
        horizon: Values to come.
        folds: How often models are trained anew.
        share: How much of every series is forecast, at its end.
        origins: Forecasts in every fold, at most; they are spread evenly.
        options: Further options of the task: season, quantiles, window, forecast, ….
        model_options: Options of each model, by its name.
        train: Options of training.
        seed: Where random numbers come from.
        tick: Called with what is done next and the share of all.

    Example:
        >>> wave = np.sin(np.arange(200) / 3)[:, None]
        >>> found = backtest(SeriesSet.of([wave]), ["seasonal-naive", "ridge-lags"], horizon=6)
    """
    if not 0 < share < 0.9:
        raise OptionError(
            explain(
                "share",
                expected="a number between 0 and 0.9",
                got=share,
                remedy="For example 0.3, the last three tenths of every series.",
            )
        )
    tasks = _tasks(series_set, horizon, folds, share, dict(options or {}), seed)
    found = []
    for place, model in enumerate(models):

        def say(fold: int, model: str = model, place: int = place) -> None:
            if tick is not None:
                done = (place * folds + fold) / (len(models) * folds)
                tick(f"{model}, fold {fold + 1} of {folds}", done)

        chosen = (model_options or {}).get(model, {})
        found.append(_tested(model, tasks, origins, chosen, dict(train or {}), seed, say))
    last = tasks[-1]
    places = [series_set.channels.index(name) for name in last.preparation.forecast]
    levels = next((m.ahead.levels for m in found if m.ahead is not None), ())
    if not levels:
        raise DataError(found[0].refused)
    return Backtest(
        series_set.source,
        last.preparation.forecast,
        horizon,
        last.season,
        folds,
        levels,
        [np.asarray(one[:, places], dtype=np.float64) for one in series_set.series],
        found,
    )


def _tasks(
    series_set: SeriesSet,
    horizon: int,
    folds: int,
    share: float,
    options: dict[str, Any],
    seed: int,
) -> list[SeriesTask]:
    """Return a task for every fold: what was before it to learn from, the fold as its test."""
    longest = int(series_set.lengths.max())
    first, last = round((1 - share) * longest), longest - horizon
    if last - first + 1 < folds:
        raise DataError(
            explain(
                f"{series_set.source}: backtest",
                expected=f"at least {folds} origins, one for every fold, with {horizon} known "
                "values after them",
                got=max(0, last - first + 1),
                remedy="Choose a shorter horizon, a larger share or fewer folds.",
            )
        )
    edges = np.linspace(first, last + 1, folds + 1).round() / longest
    tasks = []
    for begin, stop in itertools.pairwise(edges.tolist()):
        # The last origin of a fold is its last step, so that forecasts reach beyond it.
        end = min(1.0, stop + (horizon - 1) / longest)
        whole = replace(_until(series_set, end), targets=None, parts=None)
        valid = begin / end * _VALIDATION
        task = SeriesTask(
            whole,
            horizon=horizon,
            split="time",
            fractions=(begin / end - valid, valid, 1 - begin / end),
            seed=seed,
            **options,
        )
        if task.preparation.at_times:
            raise DataError(
                explain(
                    f"{series_set.source}: backtest",
                    expected="steps of even length",
                    got="uneven timestamps, of which models are told",
                    remedy="Say timestamps=false if steps count and not the time between them.",
                )
            )
        tasks.append(task)
    return tasks


def _until(series_set: SeriesSet, share: float) -> SeriesSet:
    """Return the beginning of every series."""
    stops = [max(1, round(share * len(one))) for one in series_set.series]
    cut = [one[:stop] for one, stop in zip(series_set.series, stops, strict=True)]
    times = series_set.times
    if times is not None:
        times = [one[:stop] for one, stop in zip(times, stops, strict=True)]
    return replace(series_set, series=cut, times=times)


def _tested(
    model: str,
    tasks: list[SeriesTask],
    origins: int,
    options: Mapping[str, Any],
    train: dict[str, Any],
    seed: int,
    say: Callable[[int], None],
) -> Tested:
    parts, seconds, chosen = [], 0.0, []
    moved = np.zeros(1)  # bands of a fold begin where those of the last one ended
    for fold, task in enumerate(tasks):
        say(fold)
        with tempfile.TemporaryDirectory(prefix="undamped-") as folder:
            try:
                run = fit(
                    model,
                    task,
                    model_options=options,
                    train=train,
                    seed=seed,
                    out=Path(folder),
                    progress=False,
                )
            except UndampedError as error:
                return Tested(model, refused=str(error))
            settings = run.settings
            if settings["status"] != "finished":
                raise KeyboardInterrupt
            race = sum(one.get("seconds", 0.0) for one in settings.get("tried", []))
            seconds += settings["result"]["seconds"] + race
            if model == "auto":
                chosen.append(settings["model"]["name"])
            ahead, moved = _ahead(run, task, origins, moved)
            parts.append(ahead)
    return Tested(model, together(parts), seconds, chosen)


def _ahead(run: Run, task: SeriesTask, origins: int, moved: np.ndarray) -> tuple[Ahead, np.ndarray]:
    """Return the forecasts of a run from origins of its test part, and how bands moved."""
    model, bands, prepared = run.model(), run.bands(), task.preparation
    assert bands is not None
    answers, truth = answers_and_truth(model, task, "test", 64, origins)
    zero, one = np.array(prepared.target_mean), np.array(prepared.target_std)
    said = prepared.middle(answers.reshape(len(answers), -1))
    cut = task.series_set
    assert cut.origin is not None
    train, test = task.splits["train"], task.splits["test"]
    test = test[spread(len(test), origins).numpy()]
    first = cut.origin[test, 1] + cut.lengths[test] - task.horizon
    end = cut.origin[train, 1] + cut.lengths[train]
    places = [cut.channels.index(name) for name in prepared.forecast]
    known = [
        np.asarray(whole[: int(end.max()), places], dtype=np.float64)
        for whole in task.recordings.series
    ]
    bounds, ends = np.zeros((*truth.shape, len(bands.levels))), []
    for recording in np.unique(cut.origin[test, 0]):
        own = np.flatnonzero(cut.origin[test, 0] == recording)
        bounds[own], after = bands.moved(moved).tracked(answers[own], truth[own], first[own])
        ends.append(after.moved_since(bands))
    if answers.ndim == 4:  # of a model that answers with quantiles
        said = bounds[..., middle_of(bands.levels)]
    ahead = Ahead(
        np.stack([cut.origin[test, 0], first], axis=1),
        said * one + zero,
        bounds * one[:, None] + zero[:, None],
        truth * one + zero,
        tuple(bands.levels),
        seasonal_change(known, task.season),
    )
    return ahead, np.mean(ends, axis=0)
