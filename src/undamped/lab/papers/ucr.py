"""Datasets of the UCR and UEA archives: three networks with one configuration, beside 1-NN.

Every network has the same width, depth, optimiser, batch size and number of updates on every
dataset; nothing is selected per dataset but the best validation of a run. The baseline compares a
test series with every training series: by the Euclidean distance where all series have the same
length, by dynamic time warping where they do not.

    undamped reproduce ucr --out figures/
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from undamped._base.errors import OptionError
from undamped._base.options import PositiveInt
from undamped._base.registry import models, tasks
from undamped.lab.data.published import cache
from undamped.lab.papers.runs import SeedOptions, experiment, fit_once
from undamped.lab.report.charts import marker_chart
from undamped.lab.report.table import Report, Table
from undamped.lab.training.fit import AUTO

SETS = (
    *("ItalyPowerDemand", "JapaneseVowels", "SyntheticControl", "ECG200", "BasicMotions", "Plane"),
    *("GunPoint", "Coffee"),
)
NETWORKS = ("unicornn", "lstm", "cornn")
WARPING_WINDOW = 0.2
"""Largest shift of dynamic time warping, as a fraction of the length."""


@dataclass(frozen=True)
class DatasetScores:
    """Test accuracies on one dataset."""

    name: str
    about: str
    length: int
    classes: int
    train: int
    test: int
    chance: float
    nearest: float
    distance: str
    accuracy: dict[str, float]
    valid: dict[str, float]
    seconds: dict[str, float]
    parameters: dict[str, int]

    @property
    def shape(self) -> str:
        """The size of the dataset: series, steps, classes."""
        return f"{self.train} + {self.test}, {self.length}, {self.classes}"


@experiment("ucr")
def run(
    *,
    sets: Sequence[str] = SETS,
    networks: Sequence[str] = NETWORKS,
    steps: PositiveInt = 300,
    hidden_size: PositiveInt = 64,
    num_layers: PositiveInt = 2,
    **options: Unpack[SeedOptions],
) -> Report:
    """Datasets of the UCR and UEA archives: three networks beside the nearest neighbour.

    Args:
        sets: Names of datasets that have been fetched.
        networks: Registry names of recurrent networks.
        steps: Updates of each network.
        hidden_size: Units per layer, the same for all.
        num_layers: Layers, the same for all.
        options: Seed, folder and progress; see `SeedOptions`.

    Example:
        >>> result = run(sets=("GunPoint",), steps=300)

    Reference:
        H. A. Dau and others. The UCR time series archive. IEEE/CAA Journal of Automatica Sinica,
        2019.
    """
    check_available(sets, networks)
    datasets: list[DatasetScores] = []
    for name in sets:
        finished = {
            network: fit_once(
                network,
                "ucr",
                model_options={"hidden_size": hidden_size, "num_layers": num_layers},
                task_options={"dataset": name},
                train={"steps": steps, "validate_every": max(1, steps // 10)},
                seed=options["seed"],
                out=options["out"],
            )
            for network in networks
        }
        datasets.append(_scores(name, finished))
        options["progress"](name)
    means = {n: float(np.mean([data.accuracy[n] for data in datasets])) for n in networks}
    rows = [
        (
            data.name,
            data.shape,
            *(f"{data.accuracy[network]:.1%}" for network in networks),
            f"{data.nearest:.1%} ({data.distance})",
            f"{data.chance:.1%}",
        )
        for data in datasets
    ]
    nearest, chance = (
        np.mean([getattr(d, key) for d in datasets]) for key in ("nearest", "chance")
    )
    cells = [f"{value:.1%}" for value in (*means.values(), nearest, chance)]
    header = ("set", "train + test, steps, classes", *networks, "1-NN", "majority class")
    title = f"Test accuracy after {steps} updates, seed {options['seed']}."
    return Report(
        datasets,
        [Table(header, [*rows, ("mean", "", *cells)], title, text_columns=2)],
        {"ucr": lambda: _figure(datasets, networks)},
        {"mean": means},
    )


def check_available(sets: Sequence[str], networks: Sequence[str]) -> None:
    """Raise an error for missing datasets and unknown models before an hour of training."""
    for name in sets:
        cache.folder(f"ucr/{name}")
    for name in networks:
        if name != AUTO:
            models[name]


def dataset_size(task: Any) -> dict[str, Any]:
    """Return length, classes, number of series and baseline accuracy of a dataset."""
    return {
        "length": int(task.series_set.lengths.max()),
        "classes": task.output_size,
        "train": len(task.splits["train"]) + len(task.splits["valid"]),
        "test": len(task.splits["test"]),
        "chance": task.chance.metric,
    }


def _scores(name: str, finished: dict[str, Any]) -> DatasetScores:
    task = tasks["ucr"](dataset=name)
    nearest, distance = nearest_neighbour(task)
    results = {network: run.result for network, run in finished.items()}
    return DatasetScores(
        name=name,
        about=task.notes()[0],
        **dataset_size(task),
        nearest=nearest,
        distance=distance,
        accuracy={network: result["test"]["accuracy"] for network, result in results.items()},
        valid={network: result["valid"]["accuracy"] for network, result in results.items()},
        seconds={network: result["seconds"] for network, result in results.items()},
        parameters={n: run.settings["model"]["parameters"] for n, run in finished.items()},
    )


def nearest_neighbour(task: Any) -> tuple[float, str]:
    """Return the test accuracy of the nearest training series, and the distance.

    Args:
        task: A `SeriesTask` of classification; validation series are used as training series.
    """
    training = np.concatenate([task.splits["train"], task.splits["valid"]])
    tests = task.splits["test"]
    prepared = {
        number: task.preparation.transform(task.series_set.series[number])
        for number in [*training, *tests]
    }
    train, test = [prepared[n] for n in training], [prepared[n] for n in tests]
    if len({len(series) for series in prepared.values()}) == 1:
        from scipy.spatial.distance import cdist

        flat = [np.stack(split).reshape(len(split), -1) for split in (test, train)]
        distances = cdist(flat[0], flat[1])
        name = "Euclidean"
    else:
        distances, name = _warped(test, train), "DTW"
    labels = np.asarray(task.series_set.targets)
    correct = labels[training][distances.argmin(1)] == labels[tests]
    return float(correct.mean()), name


def _warped(test: list[np.ndarray], train: list[np.ndarray]) -> np.ndarray:
    try:
        from aeon.distances import dtw_pairwise_distance
    except ModuleNotFoundError:
        raise OptionError(
            "Series of unequal length need the aeon package. Install it with "
            "pip install 'undamped[aeon]', or leave such sets out."
        ) from None
    columns = [
        [np.asarray(series.T, dtype=np.float64) for series in split] for split in (test, train)
    ]
    return dtw_pairwise_distance(columns[0], columns[1], window=WARPING_WINDOW)


def _figure(datasets: Sequence[DatasetScores], networks: Sequence[str]) -> Any:
    scores = {network: [data.accuracy[network] for data in datasets] for network in networks}
    baselines = {
        "1-nearest neighbour": ("|", [data.nearest for data in datasets]),
        "majority class": ("x", [data.chance for data in datasets]),
    }
    title = "The same configuration for all sets: right of the bar is better than 1-NN"
    return marker_chart([data.name for data in datasets], scores, baselines, title)
