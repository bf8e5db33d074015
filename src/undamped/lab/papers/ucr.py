"""Sets of the UCR and UEA archives: three networks with one configuration, beside 1-NN.

Every network has the same width, depth, optimiser, batch size and number of updates on every set;
nothing is chosen per set but the best of a run's validations. The baseline compares a test series
with every training series: Euclidean distance where all have one length, dynamic time warping
where they have not.

    undamped reproduce ucr --out pictures/
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from undamped._base.options import NonNegativeInt, PositiveInt
from undamped._base.registry import experiments
from undamped.lab.papers.accuracy_marks import accuracy_marks

SETS = (
    "ItalyPowerDemand",
    "JapaneseVowels",
    "SyntheticControl",
    "ECG200",
    "BasicMotions",
    "Plane",
    "GunPoint",
    "Coffee",
)
NETWORKS = ("unicornn", "lstm", "cornn")
WARPING_WINDOW = 0.2
"""How far dynamic time warping may shift, as a share of the length."""


@dataclass(frozen=True)
class SetOutcome:
    """Test accuracies on one set."""

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


@dataclass(frozen=True)
class UCRExperiment:
    """All networks on all sets."""

    steps: int
    seed: int
    outcomes: tuple[SetOutcome, ...]

    @property
    def networks(self) -> list[str]:
        """The networks, in the order of training."""
        return list(self.outcomes[0].accuracy)

    def mean(self, network: str) -> float:
        """Return the mean accuracy of a network over all sets."""
        return float(np.mean([one.accuracy[network] for one in self.outcomes]))

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return {
            "steps": self.steps,
            "seed": self.seed,
            "sets": [vars(one) for one in self.outcomes],
            "mean": {name: self.mean(name) for name in self.networks},
        }

    def markdown(self) -> str:
        """Return the table for the documentation."""
        names = self.networks
        lines = [
            f"Test accuracy after {self.steps} updates, seed {self.seed}.",
            "",
            f"| set | train + test, steps, classes | {' | '.join(names)} | 1-NN | a guess |",
            "|---|---|" + "---:|" * (len(names) + 2),
        ]
        for one in self.outcomes:
            shape = f"{one.train} + {one.test}, {one.length}, {one.classes}"
            cells = [f"{one.accuracy[name]:.1%}" for name in names]
            nearest = f"{one.nearest:.1%} ({one.distance})"
            lines.append(
                f"| {one.name} | {shape} | {' | '.join(cells)} | {nearest} | {one.chance:.1%} |"
            )
        cells = [f"{self.mean(name):.1%}" for name in names]
        nearest = np.mean([one.nearest for one in self.outcomes])
        guess = np.mean([one.chance for one in self.outcomes])
        lines.append(f"| mean | | {' | '.join(cells)} | {nearest:.1%} | {guess:.1%} |")
        return "\n".join(lines) + "\n"

    def figures(self) -> dict[str, Any]:
        """Return the picture: one row per set, one mark per network and for the baseline."""
        networks = {n: [one.accuracy[n] for one in self.outcomes] for n in self.networks}
        beside = {
            "1-nearest neighbour": ("|", [one.nearest for one in self.outcomes]),
            "a guess": ("x", [one.chance for one in self.outcomes]),
        }
        title = "One configuration for all sets: right of the bar beats 1-NN"
        rows = [one.name for one in self.outcomes]
        return {"ucr": accuracy_marks(rows, networks, beside, title)}


@experiments.register("ucr")
def run(
    *,
    sets: Sequence[str] = SETS,
    networks: Sequence[str] = NETWORKS,
    steps: PositiveInt = 300,
    hidden_size: PositiveInt = 64,
    num_layers: PositiveInt = 2,
    seed: NonNegativeInt = 0,
    out: str = "runs",
    tick: Callable[[str], None] | None = None,
) -> UCRExperiment:
    """Sets of the UCR and UEA archives: three networks beside the nearest neighbour.

    Args:
        sets: Names of sets that have been fetched.
        networks: Registry names of recurrent networks.
        steps: Updates of each network.
        hidden_size: Units per layer, the same for all.
        num_layers: Layers, the same for all.
        seed: Where all random numbers come from.
        out: The folder for the runs.
        tick: Called with a set's name when it is done, for a progress bar.

    Example:
        >>> result = run(sets=("GunPoint",), steps=300)

    Reference:
        H. A. Dau and others. The UCR time series archive. IEEE/CAA Journal of Automatica Sinica,
        2019.
    """
    from undamped._base.registry import models
    from undamped.lab.data.published.cache import folder
    from undamped.lab.training import fit

    for name in sets:
        folder(f"ucr/{name}")  # a missing set should be said before an hour of training
    for name in networks:
        models[name]
    outcomes = []
    for name in sets:
        finished = {
            network: fit(
                network,
                "ucr",
                model_options={"hidden_size": hidden_size, "num_layers": num_layers},
                task_options={"dataset": name},
                train={"steps": steps, "validate_every": max(1, steps // 10)},
                seed=seed,
                out=out,
                progress=False,
            )
            for network in networks
        }
        outcomes.append(_outcome(name, finished))
        if tick is not None:
            tick(name)
    return UCRExperiment(steps, seed, tuple(outcomes))


def _outcome(name: str, finished: dict[str, Any]) -> SetOutcome:
    from undamped._base.registry import tasks

    task = tasks["ucr"](dataset=name)
    nearest, distance = nearest_neighbour(task)
    results = {network: run.result for network, run in finished.items()}
    return SetOutcome(
        name=name,
        about=task.notes()[0],
        length=int(task.series_set.lengths.max()),
        classes=task.output_size,
        train=len(task.parts["train"]) + len(task.parts["valid"]),
        test=len(task.parts["test"]),
        chance=task.chance.metric,
        nearest=nearest,
        distance=distance,
        accuracy={network: result["test"]["accuracy"] for network, result in results.items()},
        valid={network: result["valid"]["accuracy"] for network, result in results.items()},
        seconds={network: result["seconds"] for network, result in results.items()},
        parameters={n: r.settings["model"]["parameters"] for n, r in finished.items()},
    )


def nearest_neighbour(task: Any) -> tuple[float, str]:
    """Return the test accuracy of the nearest training series, and the distance that was used.

    Args:
        task: A `SeriesTask` of classification; validation series count as training series here.
    """
    known = np.concatenate([task.parts["train"], task.parts["valid"]])
    asked = task.parts["test"]
    prepared = {
        number: task.preparation.transform(task.series_set.series[number])
        for number in [*known, *asked]
    }
    train, test = [prepared[n] for n in known], [prepared[n] for n in asked]
    if len({len(series) for series in prepared.values()}) == 1:
        from scipy.spatial.distance import cdist

        flat = [np.stack(part).reshape(len(part), -1) for part in (test, train)]
        distances = cdist(flat[0], flat[1])
        name = "Euclidean"
    else:
        distances, name = _warped(test, train), "DTW"
    labels = np.asarray(task.series_set.targets)
    right = labels[known][distances.argmin(1)] == labels[asked]
    return float(right.mean()), name


def _warped(test: list[np.ndarray], train: list[np.ndarray]) -> np.ndarray:
    from undamped._base.errors import OptionError

    try:
        from aeon.distances import dtw_pairwise_distance
    except ModuleNotFoundError:
        raise OptionError(
            "ucr: expected the aeon package for series of unequal length, got none. Install it "
            "with pip install 'undamped[aeon]', or leave such sets out."
        ) from None
    columns = [[np.asarray(one.T, dtype=np.float64) for one in part] for part in (test, train)]
    return dtw_pairwise_distance(columns[0], columns[1], window=WARPING_WINDOW)
