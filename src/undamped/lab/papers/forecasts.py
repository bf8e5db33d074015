"""Five series forecast from rolling origins: `auto` beside common baselines.

    undamped data fetch forecasts
    undamped reproduce forecasts --out figures/

Sunspots, carbon dioxide, airline passengers and electricity demand are recorded; the hourly load of
a power grid is generated from a seed, with daily and weekly cycles, autocorrelated weather and
noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from undamped._base.options import NonNegativeInt, PositiveFloat, PositiveInt
from undamped.lab.data.published import cache
from undamped.lab.data.recordings.read import read_recordings
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.papers.runs import check_names, experiment
from undamped.lab.papers.ucr import check_available
from undamped.lab.report.forecast_figure import draw_backtest
from undamped.lab.report.table import Progress, Report, Table, silent
from undamped.lab.training.backtest import backtest
from undamped.lab.training.fit import AUTO

MODELS = ("seasonal-naive", "ridge-lags", "ets", "bank", "auto")
HORIZONS = {"sunspots": 11, "co2": 26, "passengers": 12, "demand": 48, "load": 24}
"""Steps ahead: a cycle, half a year, a year, a day, a day."""
# The sunspot cycle is too irregular to be detected by a test of seasonality in these years.
_SEASONS = {"sunspots": 11, "co2": 52, "passengers": 12, "demand": 336, "load": 168}
_DAYS = {"demand": 48, "load": 24}
"""The season of ETS for the sets with a daily and a weekly cycle."""
_STRIDES = {"co2": 4, "demand": 8, "load": 6}
"""Steps between windows where series are long: ETS is fitted again for each window."""
QUANTILES = (0.1, 0.5, 0.9)


@experiment("forecasts")
def run(
    *,
    sets: Sequence[str] = tuple(HORIZONS),
    models: Sequence[str] = MODELS,
    folds: PositiveInt = 3,
    origins: PositiveInt = 30,
    minutes: PositiveFloat = 0.5,
    seed: NonNegativeInt = 0,
    progress: Progress = silent,
) -> Report:
    """Five series from rolling origins: auto beside seasonal naive, ETS, ridge on lags, the bank.

    Args:
        sets: Names of series: sunspots, co2, passengers, demand, load.
        models: Registry names, and auto.
        folds: How often every model is trained.
        origins: Largest number of forecasts in every fold.
        minutes: Time for one training of auto.
        seed: Seed of all random numbers.
        progress: Called with a line of text and the finished fraction.

    Example:
        >>> result = run(sets=("load",), models=("seasonal-naive", "ridge-lags"), folds=1)

    Reference:
        L. J. Tashman. Out-of-sample tests of forecasting accuracy. International Journal of
        Forecasting, 2000.
    """
    check_available((), models)
    series = {name: series_of(name, seed) for name in sets}  # raises for missing sets first
    tests = {}
    for number, (name, values) in enumerate(series.items()):

        def report(line: str, fraction: float, number: int = number, name: str = name) -> None:
            progress(f"{name}, {line}", (number + fraction) / len(series))

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
                # Its information criterion would select no season rather than so many states.
                "ets": {"season": _DAYS[name], "form": "ZZA"} if name in _DAYS else {}
            },
            train={"minutes": minutes} if AUTO in models else {},
            seed=seed,
            progress=report,
        )
    results = {name: test.to_dict() for name, test in tests.items()}
    comparison = compare_auto(results)
    return Report(
        [{"name": name, **result} for name, result in results.items()],
        [_table(tests, results, comparison)],
        {f"forecasts_{name}": lambda t=test: draw_backtest(t) for name, test in tests.items()},
        {"summary": comparison},
    )


def compare_auto(results: Mapping[str, Any]) -> dict[str, str]:
    """Return on how many sets `auto` is no worse than others, and where its bands are calibrated.

    Args:
        results: The backtest of every set, as written to JSON.
    """
    scores = [
        {entry["model"]: entry for entry in result["models"] if "refused" not in entry}
        for result in results.values()
    ]
    summary = {}
    for baseline in ("seasonal-naive", "ets"):
        both = [score for score in scores if "auto" in score and baseline in score]
        better = sum(score["auto"]["mae"] <= score[baseline]["mae"] for score in both)
        summary[f"no worse than {baseline}"] = f"{better} of {len(both)}"
    coverage = [score["auto"]["coverage"] for score in scores if "auto" in score]
    calibrated = sum(0.75 <= fraction <= 0.85 for fraction in coverage)
    summary["80 % band holds 75 to 85 %"] = f"{calibrated} of {len(coverage)}"
    return summary


def _table(
    tests: Mapping[str, Any], results: Mapping[str, Any], comparison: Mapping[str, str]
) -> Table:
    rows = []
    for name, test in tests.items():
        origins = results[name]["origins"]
        about = f"{len(test.series[0]):,}, {test.horizon}, {test.season}, {origins}"
        rows.append((name, about, *map(_cell, results[name]["models"])))
    models = [entry.model for entry in next(iter(tests.values())).models]
    summary = ", ".join(f"{what}: {count}" for what, count in comparison.items())
    notes = (
        "MASE over all steps ahead, and the fraction of values inside the 80 % band.",
        f"auto, by MAE: {summary}.",
    )
    header = ("set", "steps, horizon, season, origins", *models)
    return Table(header, rows, notes=notes, text_columns=2)


def series_of(name: str, seed: int) -> np.ndarray:
    """Return one of the series, NaN where a value is missing.

    Args:
        name: Of `HORIZONS`.
        seed: For the generated series.
    """
    check_names("set of this experiment", [name], list(HORIZONS))
    if name == "load":
        return grid_load(seed)
    recordings = read_recordings(cache.folder("forecasts") / f"{name}.csv", forecast=True)
    return np.asarray(recordings.series[0][:, 0], dtype=np.float64)


def grid_load(seed: int, weeks: int = 20) -> np.ndarray:
    """Return the hourly load of a synthetic power grid.

    Two peaks a day, less load at weekends, weather with a correlation time of two days, and noise
    proportional to the load.

    Args:
        seed: Seed of the random numbers.
        weeks: Length of the series.
    """
    random = np.random.default_rng(seed)
    hours = np.arange(weeks * 168)
    day, week = hours % 24, hours // 24 % 7
    peaks = np.exp(-((day - 9) ** 2) / 12) + 1.3 * np.exp(-((day - 19) ** 2) / 10)
    cycle = 40 + 18 * peaks * np.where(week >= 5, 0.6, 1.0) - 4 * (week >= 5)
    weather, decay = np.zeros(len(hours)), np.exp(-1 / 48)
    noise = random.normal(size=len(hours)) * np.sqrt(1 - decay**2)
    for hour in range(1, len(hours)):
        weather[hour] = decay * weather[hour - 1] + noise[hour]
    return cycle * (1 + 0.06 * weather) * (1 + 0.01 * random.normal(size=len(hours)))


def _cell(result: Mapping[str, Any]) -> str:
    if "refused" in result:
        return "–"
    mase = "–" if result["mase"] is None else f"{result['mase']:.3f}"
    selected = f" ({', '.join(dict.fromkeys(result['chosen']))})" if "chosen" in result else ""
    return f"{mase}, {100 * result['coverage']:.0f} %{selected}"
