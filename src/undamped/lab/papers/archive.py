"""All fetched datasets of the UCR and UEA archives: time-series classifiers compared.

Official splits; every model has one configuration for all datasets, its defaults, none of which was
selected on a test set except where `docs/results.md` says so.

    undamped reproduce archive --out figures/
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Unpack

import numpy as np

from undamped._base.errors import DataError, MissingPackageError, NonFiniteError, OptionError
from undamped._base.options import Default, NonNegativeInt, PositiveFloat, PositiveInt
from undamped._base.registry import models as model_registry
from undamped._base.registry import tasks
from undamped.lab.baselines.closed_form import ClosedFormModel
from undamped.lab.papers import runs
from undamped.lab.papers.runs import RunOptions, experiment
from undamped.lab.papers.ucr import check_available, dataset_size
from undamped.lab.report.charts import marker_chart
from undamped.lab.report.table import Report, Table
from undamped.lab.training.fit import AUTO

SETS = (
    *("ItalyPowerDemand", "JapaneseVowels", "SyntheticControl", "ECG200", "BasicMotions", "Plane"),
    *("GunPoint", "ArrowHead", "Trace", "Coffee", "Lightning7", "FaceFour"),
    *("PickupGestureWiimoteZ", "OSULeaf", "Beef", "OliveOil", "Car", "Lightning2", "PLAID"),
    *("ACSF1", "PigCVP"),
)
"""From short series to long ones."""
MODELS = (
    *("bank", "minirocket", "multirocket-hydra", "boosting", "dtw", "auto"),
    *("unicornn", "linoss"),
)
_DETERMINISTIC = ("dtw", "guess")
TRAINING_ERRORS = (DataError, MissingPackageError, NonFiniteError, OptionError)
"""Errors of one training that do not stop an experiment."""


class ArchiveOptions(RunOptions):
    """Folder and progress."""

    out: Annotated[str, Default("runs/archive", "Folder for the runs.")]


@dataclass(frozen=True)
class ModelScores:
    """The scores of one model on one dataset.

    Args:
        accuracy: On the test set, one for every seed.
        seconds: Of one training, the mean.
        cpu_seconds: CPU time of one training, the mean; without the model selection of `auto`.
        models: What `auto` selected, one for every seed.
        refused: Why there is no score.
    """

    accuracy: list[float] = field(default_factory=list)
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    models: list[str] = field(default_factory=list)
    refused: str = ""

    @property
    def mean(self) -> float:
        """The mean accuracy, or NaN."""
        return float(np.mean(self.accuracy)) if self.accuracy else float("nan")

    def cell(self) -> str:
        """Return the cell of the table: mean, deviation, and what `auto` selected."""
        if not self.accuracy:
            return "–"
        text = f"{self.mean:.1%}"
        if len(self.accuracy) > 1:
            text += f" ± {100 * np.std(self.accuracy, ddof=1):.1f}"
        if not self.models:
            return text
        counts = Counter(self.models).most_common()
        names = (name if len(counts) == 1 else f"{count} {name}" for name, count in counts)
        return f"{text} ({', '.join(names)})"


@dataclass(frozen=True)
class Dataset:
    """One dataset: its size, and the scores of every model."""

    name: str
    length: int
    classes: int
    train: int
    test: int
    chance: float
    scores: dict[str, ModelScores]


@experiment("archive")
def run(
    *,
    sets: Sequence[str] = SETS,
    models: Sequence[str] = MODELS,
    seeds: PositiveInt = 3,
    seed: NonNegativeInt = 0,
    steps: PositiveInt | None = None,
    network_seconds: PositiveFloat = 60.0,
    minutes: PositiveFloat = 1.0,
    **options: Unpack[ArchiveOptions],
) -> Report:
    """All fetched datasets of the UCR and UEA archives: bank, baselines, auto and networks.

    Args:
        sets: Names of datasets that have been fetched.
        models: Registry names, and `auto`.
        seeds: Number of seeds; deterministic models have one.
        seed: The first of them.
        steps: Updates of trained networks, instead of a time.
        network_seconds: CPU time for a trained network on each dataset.
        minutes: Time for `auto` on each dataset.
        options: Folder and progress; see `RunOptions`.

    Example:
        >>> result = run(sets=("GunPoint",), models=("bank", "minirocket"))

    Reference:
        H. A. Dau and others. The UCR time series archive. IEEE/CAA Journal of Automatica Sinica,
        2019. A. Bagnall and others. The UEA multivariate time series classification archive, 2018.
    """
    check_available(sets, models)
    budget = {"cpu_seconds": network_seconds} if steps is None else {"steps": steps}
    datasets: list[Dataset] = []
    total = len(sets) * len(models)
    for index, name in enumerate(sets):
        scores = {}
        for number, model in enumerate(models):
            options["progress"](f"{name}, {model}", (index * len(models) + number) / total)
            all_seeds = range(seed, seed + seeds)
            scores[model] = _train(name, model, all_seeds, budget, minutes, options["out"])
        task = tasks["ucr"](dataset=name)
        datasets.append(Dataset(name, **dataset_size(task), scores=scores))
    common = [data for data in datasets if all(score.accuracy for score in data.scores.values())]
    means, ranks = _means(common, models), _ranks(common, models)
    title = "Test accuracy with one configuration for all sets"
    accuracies = {name: [data.scores[name].mean for data in datasets] for name in models}
    baselines = {"majority class": ("x", [data.chance for data in datasets])}
    return Report(
        datasets,
        [_table(datasets, common, models, means, ranks)],
        {"archive": lambda: marker_chart(list(sets), accuracies, baselines, title)},
        {"common": [data.name for data in common], "mean": means, "rank": ranks},
    )


def _train(
    name: str, model: str, seeds: Sequence[int], budget: dict[str, Any], minutes: float, out: str
) -> ModelScores:
    train: dict[str, Any] = {}
    if model == AUTO:
        train = {"minutes": minutes}
    elif not issubclass(model_registry[model], ClosedFormModel):
        train = budget
    settings: list[Any] = []
    try:
        for seed in seeds[:1] if model in _DETERMINISTIC else seeds:
            run = runs.fit_once(
                model,
                "ucr",
                model_options={},
                task_options={"dataset": name},
                train=train,
                seed=seed,
                out=out,
            )
            settings.append(run.settings)
    except TRAINING_ERRORS as error:
        return ModelScores(refused=str(error))
    return ModelScores(
        accuracy=[entry["result"]["test"]["accuracy"] for entry in settings],
        seconds=float(np.mean([_seconds(entry) for entry in settings])),
        cpu_seconds=float(np.mean([entry["result"]["cpu_seconds"] for entry in settings])),
        models=[entry["model"]["name"] for entry in settings] if model == AUTO else [],
    )


def _seconds(settings: dict[str, Any]) -> float:
    """Return the duration of a training, and of the model selection before it."""
    selection = sum(entry.get("seconds", 0.0) for entry in settings.get("tried", []))
    return settings["result"]["seconds"] + selection


def _means(common: Sequence[Dataset], models: Sequence[str]) -> dict[str, float]:
    """Return the mean accuracy of every model over the common datasets."""
    if not common:
        return {}
    return {name: float(np.mean([data.scores[name].mean for data in common])) for name in models}


def _ranks(common: Sequence[Dataset], models: Sequence[str]) -> dict[str, float]:
    """Return the mean rank of every model over the common datasets; 1 is best, ties share."""
    from scipy.stats import rankdata

    if not common:
        return {}
    rows = [[-data.scores[name].mean for name in models] for data in common]
    ranks = np.mean([rankdata(np.round(row, 9)) for row in rows], axis=0)
    return dict(zip(models, (float(rank) for rank in ranks), strict=True))


def _table(
    datasets: Sequence[Dataset],
    common: Sequence[Dataset],
    models: Sequence[str],
    means: dict[str, float],
    ranks: dict[str, float],
) -> Table:
    rows: list[tuple[str, ...]] = [
        (
            data.name,
            f"{data.train} + {data.test}, {data.length}, {data.classes}",
            *(data.scores[name].cell() for name in models),
            f"{data.chance:.1%}",
        )
        for data in datasets
    ]
    if common:
        chance = float(np.mean([data.chance for data in common]))
        cells = [f"{value:.1%}" for value in (*means.values(), chance)]
        rows.append(("mean", f"of {len(common)} sets that all models answer", *cells))
        rows.append(("mean rank", "1 is best", *(f"{rank:.2f}" for rank in ranks.values()), ""))
    cells = []
    for name in models:
        seconds = [d.scores[name].seconds for d in datasets if d.scores[name].accuracy]
        cells.append(f"{np.median(seconds):.1f}" if seconds else "–")
    rows.append(("seconds of a training", "median", *cells, ""))
    header = ("set", "train + test, steps, classes", *models, "majority class")
    return Table(header, rows, text_columns=2)
