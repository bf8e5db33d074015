"""All sets of the UCR and UEA archives that can be had: who answers recordings best.

Official splits; every model has one configuration for all sets, its defaults, of which none was
chosen on a test part but where `docs/results.md` says so. Trainings that are in the folder are not
made again, so that a stopped experiment goes on where it was.

    undamped reproduce archive --out pictures/
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from undamped._base.options import NonNegativeInt, PositiveFloat, PositiveInt
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
    "ArrowHead",
    "Trace",
    "Coffee",
    "Lightning7",
    "FaceFour",
    "PickupGestureWiimoteZ",
    "OSULeaf",
    "Beef",
    "OliveOil",
    "Car",
    "Lightning2",
    "PLAID",
    "ACSF1",
    "PigCVP",
)
"""From short series to long ones."""
MODELS = (
    "bank",
    "minirocket",
    "multirocket-hydra",
    "boosting",
    "dtw",
    "auto",
    "unicornn",
    "linoss",
)
_ALWAYS_THE_SAME = ("dtw", "guess")


@dataclass(frozen=True)
class Answers:
    """What one model came to on one set.

    Args:
        accuracy: On the test part, one for every seed.
        seconds: Of one training, the mean.
        cpu_seconds: Of the processor, likewise; without the race of `auto`.
        models: What `auto` chose, one for every seed.
        refused: Why there is no answer.
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


@dataclass(frozen=True)
class ArchiveSet:
    """One set: what it is, and what every model came to."""

    name: str
    length: int
    classes: int
    train: int
    test: int
    chance: float
    answers: dict[str, Answers]


@dataclass(frozen=True)
class ArchiveExperiment:
    """All models on all sets."""

    seeds: int
    steps: int | None
    network_seconds: float
    minutes: float
    sets: tuple[ArchiveSet, ...]

    @property
    def models(self) -> list[str]:
        """The models, in the order of the table."""
        return list(self.sets[0].answers)

    def common(self) -> list[ArchiveSet]:
        """Return the sets about which every model has an answer."""
        return [one for one in self.sets if all(a.accuracy for a in one.answers.values())]

    def means(self) -> dict[str, float]:
        """Return the mean accuracy of every model over the common sets."""
        return {
            name: float(np.mean([one.answers[name].mean for one in self.common()]))
            for name in self.models
        }

    def ranks(self) -> dict[str, float]:
        """Return the mean rank of every model over the common sets; 1 is best, equals share."""
        from scipy.stats import rankdata

        rows = [[-one.answers[name].mean for name in self.models] for one in self.common()]
        ranks = np.mean([rankdata(np.round(row, 9)) for row in rows], axis=0)
        return dict(zip(self.models, (float(rank) for rank in ranks), strict=True))

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return {
            "seeds": self.seeds,
            "steps": self.steps,
            "network_seconds": self.network_seconds,
            "minutes": self.minutes,
            "sets": [
                {**vars(one), "answers": {name: vars(a) for name, a in one.answers.items()}}
                for one in self.sets
            ],
            "common": [one.name for one in self.common()],
            "mean": self.means() if self.common() else {},
            "rank": self.ranks() if self.common() else {},
        }

    def markdown(self) -> str:
        """Return the table for the documentation."""
        names = self.models
        lines = [
            f"| set | train + test, steps, classes | {' | '.join(names)} | a guess |",
            "|---|---|" + "---:|" * (len(names) + 1),
        ]
        for one in self.sets:
            shape = f"{one.train} + {one.test}, {one.length}, {one.classes}"
            cells = [_cell(one.answers[name]) for name in names]
            lines.append(f"| {one.name} | {shape} | {' | '.join(cells)} | {one.chance:.1%} |")
        common = self.common()
        if common:
            means, ranks = self.means(), self.ranks()
            guess = float(np.mean([one.chance for one in common]))
            about = f"of {len(common)} sets that all answer"
            cells = [f"{means[name]:.1%}" for name in names]
            lines.append(f"| mean | {about} | {' | '.join(cells)} | {guess:.1%} |")
            cells = [f"{ranks[name]:.2f}" for name in names]
            lines.append(f"| mean rank | 1 is best | {' | '.join(cells)} | |")
        cells = []
        for name in names:
            took = [one.answers[name].seconds for one in self.sets if one.answers[name].accuracy]
            cells.append(f"{np.median(took):.1f}" if took else "–")
        lines.append(f"| seconds of a training | median | {' | '.join(cells)} | |")
        return "\n".join(lines) + "\n"

    def figures(self) -> dict[str, Any]:
        """Return the picture: one row per set, one mark per model."""
        models = {name: [one.answers[name].mean for one in self.sets] for name in self.models}
        beside = {"a guess": ("x", [one.chance for one in self.sets])}
        title = "Test accuracy with one configuration for all sets"
        return {"archive": accuracy_marks([one.name for one in self.sets], models, beside, title)}


@experiments.register("archive")
def run(
    *,
    sets: Sequence[str] = SETS,
    models: Sequence[str] = MODELS,
    seeds: PositiveInt = 3,
    seed: NonNegativeInt = 0,
    steps: PositiveInt | None = None,
    network_seconds: PositiveFloat = 60.0,
    minutes: PositiveFloat = 1.0,
    out: str = "runs/archive",
    tick: Callable[..., None] | None = None,
) -> ArchiveExperiment:
    """All sets of the UCR and UEA archives that can be had: bank, rivals, auto and a network.

    Args:
        sets: Names of sets that have been fetched.
        models: Registry names, and `auto`.
        seeds: How many seeds; what draws nothing at random has one.
        seed: The first of them.
        steps: Updates of trained networks, instead of a time.
        network_seconds: Time for a trained network on each set.
        minutes: Time for `auto` on each set.
        out: The folder for the runs; what is there already is not trained again.
        tick: Called with what was done and the share of all, for a progress bar.

    Example:
        >>> result = run(sets=("GunPoint",), models=("bank", "minirocket"))

    Reference:
        H. A. Dau and others. The UCR time series archive. IEEE/CAA Journal of Automatica Sinica,
        2019. A. Bagnall and others. The UEA multivariate time series classification archive, 2018.
    """
    from undamped._base.registry import models as known
    from undamped._base.registry import tasks
    from undamped.lab.data.published.cache import folder
    from undamped.lab.training.fit import AUTO

    for name in sets:
        folder(f"ucr/{name}")  # a missing set should be said before an hour of training
    for name in models:
        if name != AUTO:
            known[name]
    budget = {"seconds": network_seconds} if steps is None else {"steps": steps}
    outcomes, total = [], len(sets) * len(models)
    for place, name in enumerate(sets):
        answers: dict[str, Answers] = {}
        for number, model in enumerate(models):
            if tick is not None:
                tick(f"{name}, {model}", (place * len(models) + number) / total)
            answers[model] = _answers(name, model, range(seed, seed + seeds), budget, minutes, out)
        task = tasks["ucr"](dataset=name)
        outcomes.append(
            ArchiveSet(
                name,
                length=int(task.series_set.lengths.max()),
                classes=task.output_size,
                train=len(task.parts["train"]) + len(task.parts["valid"]),
                test=len(task.parts["test"]),
                chance=task.chance.metric,
                answers=answers,
            )
        )
    return ArchiveExperiment(seeds, steps, network_seconds, minutes, tuple(outcomes))


def _answers(
    name: str, model: str, seeds: Sequence[int], budget: dict[str, Any], minutes: float, out: str
) -> Answers:
    from undamped._base.errors import DataError, MissingPackageError, NonFiniteError, OptionError
    from undamped._base.registry import models
    from undamped.lab.baselines.learns_at_once import LearnsAtOnce
    from undamped.lab.papers.kept_runs import kept_fit
    from undamped.lab.training.fit import AUTO

    train: dict[str, Any] = {"minutes": minutes} if model == AUTO else {}
    trained = model != AUTO and not issubclass(models[model], LearnsAtOnce)
    if trained:
        train = budget
    found: list[Any] = []
    try:
        for seed in seeds[:1] if model in _ALWAYS_THE_SAME else seeds:
            run = kept_fit(
                model,
                "ucr",
                model_options={},
                task_options={"dataset": name},
                train=train,
                seed=seed,
                out=out,
            )
            found.append(run.settings)
    except (DataError, MissingPackageError, NonFiniteError, OptionError) as error:
        return Answers(refused=str(error))
    return Answers(
        accuracy=[one["result"]["test"]["accuracy"] for one in found],
        seconds=float(np.mean([_seconds(one) for one in found])),
        cpu_seconds=float(np.mean([one["result"]["cpu_seconds"] for one in found])),
        models=[one["model"]["name"] for one in found] if model == AUTO else [],
    )


def _seconds(settings: dict[str, Any]) -> float:
    """Return how long a training took, and the race before it if there was one."""
    race = sum(one.get("seconds", 0.0) for one in settings.get("tried", []))
    return settings["result"]["seconds"] + race


def _cell(answers: Answers) -> str:
    if not answers.accuracy:
        return "–"
    share = f"{answers.mean:.1%}"
    if len(answers.accuracy) > 1:
        share += f" ± {100 * np.std(answers.accuracy, ddof=1):.1f}"
    if not answers.models:
        return share
    counts = Counter(answers.models).most_common()
    chosen = (name if len(counts) == 1 else f"{count} {name}" for name, count in counts)
    return f"{share} ({', '.join(chosen)})"
