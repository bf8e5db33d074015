"""Five series forecast from rolling origins: `auto`, and what a person would otherwise pick.

    undamped data fetch forecasts
    undamped reproduce forecasts --out pictures/

Sunspots, carbon dioxide, airline passengers and the demand of electricity are real; the load of a
grid by the hour is generated from a seed: a day, a week, weather that lasts, and noise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from undamped._base.options import NonNegativeInt, PositiveFloat, PositiveInt, unknown_name
from undamped._base.registry import experiments

MODELS = ("seasonal-naive", "ridge-lags", "ets", "bank", "auto")
HORIZONS = {"sunspots": 11, "co2": 26, "passengers": 12, "demand": 48, "load": 24}
"""Of every set: a cycle, half a year, a year, a day, a day."""
# The cycle of the sun is too irregular for a test of seasons to find it in these years.
_SEASONS = {"sunspots": 11, "co2": 52, "passengers": 12, "demand": 336, "load": 168}
_DAYS = {"demand": 48, "load": 24}
"""The season that ETS is given where the set has a day and a week."""
_STRIDES = {"co2": 4, "demand": 8, "load": 6}
"""Steps from one window to the next where series are long: ETS is fitted anew for each."""
QUANTILES = (0.1, 0.5, 0.9)


@dataclass(frozen=True)
class ForecastExperiment:
    """Backtests of all models on all sets.

    Args:
        minutes: What `auto` had for one training.
        tests: By the name of the set.
    """

    minutes: float
    tests: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        sets = {name: one.to_dict() for name, one in self.tests.items()}
        return {"minutes": self.minutes, "sets": sets, "summary": self.summary()}

    def summary(self) -> dict[str, Any]:
        """Return on how many sets `auto` is no worse than others, and where its bands hold."""
        found: dict[str, Any] = {}
        scores = {
            name: {m["model"]: m for m in one.to_dict()["models"] if "refused" not in m}
            for name, one in self.tests.items()
        }
        for other in ("seasonal-naive", "ets"):
            both = [s for s in scores.values() if "auto" in s and other in s]
            better = sum(s["auto"]["mae"] <= s[other]["mae"] for s in both)
            found[f"no worse than {other}"] = f"{better} of {len(both)}"
        held = [s["auto"]["coverage"] for s in scores.values() if "auto" in s]
        inside = sum(0.75 <= share <= 0.85 for share in held)
        found["80 % band holds 75 to 85 %"] = f"{inside} of {len(held)}"
        return found

    def markdown(self) -> str:
        """Return the table for the documentation."""
        names = [one.model for one in next(iter(self.tests.values())).models]
        lines = [
            f"| set | steps, horizon, season, origins | {' | '.join(names)} |",
            "|---|---|" + "---:|" * len(names),
        ]
        for name, test in self.tests.items():
            plain = test.to_dict()
            about = f"{len(test.series[0]):,}, {test.horizon}, {test.season}, {plain['origins']}"
            lines.append(f"| {name} | {about} | {' | '.join(map(_cell, plain['models']))} |")
        told = ", ".join(f"{what}: {count}" for what, count in self.summary().items())
        lines += ["", "MASE over all steps ahead, and the share of values inside the 80 % band."]
        return "\n".join([*lines, "", f"auto, by MAE: {told}."]) + "\n"

    def figures(self) -> dict[str, Any]:
        """Return a picture of every set: the last forecasts of every model."""
        from undamped.lab.report.forecast_picture import draw_backtest

        return {f"forecasts_{name}": draw_backtest(one) for name, one in self.tests.items()}


@experiments.register("forecasts")
def run(
    *,
    sets: Sequence[str] = tuple(HORIZONS),
    models: Sequence[str] = MODELS,
    folds: PositiveInt = 3,
    origins: PositiveInt = 30,
    minutes: PositiveFloat = 0.5,
    seed: NonNegativeInt = 0,
    tick: Callable[..., None] | None = None,
) -> ForecastExperiment:
    """Five series from rolling origins: auto beside seasonal naive, ETS, ridge on lags, the bank.

    Args:
        sets: Of sunspots, co2, passengers, demand and load.
        models: Registry names, and auto.
        folds: How often every model is trained anew.
        origins: Forecasts in every fold, at most.
        minutes: Time for one training of auto.
        seed: Where random numbers come from.
        tick: Called with what is done next and the share of all, for a progress bar.

    Example:
        >>> result = run(sets=("load",), models=("seasonal-naive", "ridge-lags"), folds=1)

    Reference:
        L. J. Tashman. Out-of-sample tests of forecasting accuracy. International Journal of
        Forecasting, 2000.
    """
    from undamped._base.registry import models as known
    from undamped.lab.data.recordings.series import SeriesSet
    from undamped.lab.training.backtest import backtest
    from undamped.lab.training.fit import AUTO

    for name in models:
        if name != AUTO:
            known[name]
    series = {name: series_of(name, seed) for name in sets}  # a missing set is said at once
    tests = {}
    for place, (name, values) in enumerate(series.items()):

        def say(done: str, share: float, place: int = place, name: str = name) -> None:
            if tick is not None:
                tick(f"{name}, {done}", (place + share) / len(series))

        tests[name] = backtest(
            SeriesSet.of([values[:, None]], channels=[name], source=name),
            models,
            horizon=HORIZONS[name],
            folds=folds,
            origins=origins,
            options={
                "quantiles": QUANTILES,
                "season": _SEASONS.get(name),
                "stride": _STRIDES.get(name),
            },
            model_options={
                # Its criterion would rather have none than so many numbers of a day.
                "ets": {"season": _DAYS[name], "form": "ZZA"} if name in _DAYS else {}
            },
            train={"minutes": minutes} if AUTO in models else {},
            seed=seed,
            tick=say,
        )
    return ForecastExperiment(minutes, tests)


def series_of(name: str, seed: int) -> np.ndarray:
    """Return one of the series, NaN where a value is missing.

    Args:
        name: Of `HORIZONS`.
        seed: For what is generated.
    """
    if name not in HORIZONS:
        raise unknown_name("set of this experiment", name, list(HORIZONS))
    if name == "load":
        return grid_load(seed)
    from undamped.lab.data.published.cache import folder
    from undamped.lab.data.recordings.read import read_recordings

    read = read_recordings(folder("forecasts") / f"{name}.csv", forecast=True)
    return np.asarray(read.series[0][:, 0], dtype=np.float64)


def grid_load(seed: int, weeks: int = 20) -> np.ndarray:
    """Return the load of an invented grid by the hour.

    Two humps a day, less at the end of the week, weather with a memory of about two days, noise
    that grows with the load.

    Args:
        seed: Where random numbers come from.
        weeks: How long.
    """
    random = np.random.default_rng(seed)
    hours = np.arange(weeks * 168)
    day, week = hours % 24, hours // 24 % 7
    humps = np.exp(-((day - 9) ** 2) / 12) + 1.3 * np.exp(-((day - 19) ** 2) / 10)
    plan = 40 + 18 * humps * np.where(week >= 5, 0.6, 1.0) - 4 * (week >= 5)
    weather, kept = np.zeros(len(hours)), np.exp(-1 / 48)
    pushes = random.normal(size=len(hours)) * np.sqrt(1 - kept**2)
    for hour in range(1, len(hours)):
        weather[hour] = kept * weather[hour - 1] + pushes[hour]
    return plan * (1 + 0.06 * weather) * (1 + 0.01 * random.normal(size=len(hours)))


def _cell(found: dict[str, Any]) -> str:
    if "refused" in found:
        return "–"
    mase = "–" if found["mase"] is None else f"{found['mase']:.3f}"
    chosen = f" ({', '.join(dict.fromkeys(found['chosen']))})" if "chosen" in found else ""
    return f"{mase}, {100 * found['coverage']:.0f} %{chosen}"
