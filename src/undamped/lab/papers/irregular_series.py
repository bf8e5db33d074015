"""Sets of the archives with steps left out: networks that flow over gaps, and others that are told.

Of every series a share of the steps is dropped, at random; what is left keeps its time stamps. All
networks have one width, one optimiser and as many updates; those without a flow get the time since
the sample before as one more feature.

    undamped reproduce irregular-series --out pictures/
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from undamped._base.options import NonNegativeInt, PositiveFloat, PositiveInt
from undamped._base.registry import experiments
from undamped.lab.papers.accuracy_marks import accuracy_marks
from undamped.lab.papers.kept_runs import kept_fit

SETS = ("JapaneseVowels", "BasicMotions")
NETWORKS = ("ode-rnn", "neural-cde", "gru-d", "decay-rnn", "modes-rnn", "cfc", "unicornn", "gru")
DROPPED = (0.3, 0.5, 0.7)


@dataclass(frozen=True)
class IrregularOutcome:
    """Test accuracies on one set with a share of its steps dropped."""

    name: str
    dropped: float
    chance: float
    accuracy: dict[str, float]
    cpu_seconds: dict[str, float]


@dataclass(frozen=True)
class IrregularSeriesExperiment:
    """All networks on all sets."""

    steps: int
    seed: int
    outcomes: tuple[IrregularOutcome, ...]

    @property
    def networks(self) -> list[str]:
        """The networks, in the order of training."""
        return list(self.outcomes[0].accuracy)

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return {
            "steps": self.steps,
            "seed": self.seed,
            "sets": [vars(one) for one in self.outcomes],
        }

    def markdown(self) -> str:
        """Return the table for the documentation."""
        names = self.networks
        lines = [
            f"Test accuracy after {self.steps} updates, seed {self.seed}.",
            "",
            f"| set, steps dropped | {' | '.join(names)} | a guess |",
            "|---|" + "---:|" * (len(names) + 1),
        ]
        for one in self.outcomes:
            cells = [f"{one.accuracy[name]:.1%}" for name in names]
            lines.append(
                f"| {one.name}, {one.dropped:.0%} | {' | '.join(cells)} | {one.chance:.1%} |"
            )
        of_all = [mean(one.accuracy[name] for one in self.outcomes) for name in names]
        guess = mean(one.chance for one in self.outcomes)
        lines.append(f"| mean | {' | '.join(f'{share:.1%}' for share in of_all)} | {guess:.1%} |")
        spent = [mean(one.cpu_seconds[name] for one in self.outcomes) for name in names]
        lines.append(f"| CPU s of a training | {' | '.join(f'{s:.0f}' for s in spent)} | |")
        return "\n".join(lines) + "\n"

    def figures(self) -> dict[str, Any]:
        """Return the picture: one row for each set and share, one mark for each network."""
        rows = [f"{one.name}, {one.dropped:.0%} dropped" for one in self.outcomes]
        networks = {n: [one.accuracy[n] for one in self.outcomes] for n in self.networks}
        guess = {"a guess": ("x", [one.chance for one in self.outcomes])}
        title = "What is left when steps are missing"
        return {"irregular-series": accuracy_marks(rows, networks, guess, title)}


@experiments.register("irregular-series")
def run(
    *,
    sets: Sequence[str] = SETS,
    dropped: Sequence[float] = DROPPED,
    networks: Sequence[str] = NETWORKS,
    steps: PositiveInt = 400,
    hidden_size: PositiveInt = 32,
    learning_rate: PositiveFloat = 5e-3,
    seed: NonNegativeInt = 0,
    out: str = "runs",
    tick: Callable[..., None] | None = None,
) -> IrregularSeriesExperiment:
    """Sets of the archives with steps dropped: networks that flow over gaps, beside others.

    Trainings that are in the folder already are not made again; one that was stopped goes on.

    Args:
        sets: Names of sets that have been fetched.
        dropped: Shares of the steps that are left out.
        networks: Registry names of networks.
        steps: Updates of each network.
        hidden_size: Units, the same for all.
        learning_rate: The rate at which all learn, on a cosine.
        seed: Where all random numbers come from.
        out: The folder for the runs.
        tick: Told how it goes, for a progress bar.

    Example:
        >>> result = run(sets=("BasicMotions",), dropped=(0.5,), steps=200)
    """
    from undamped._base.registry import models, tasks
    from undamped.lab.data.published.cache import folder

    for name in sets:
        folder(f"ucr/{name}")  # a missing set should be said before an hour of training
    for network in networks:
        models[network]
    train = {
        "steps": steps,
        "validate_every": max(1, steps // 8),
        "learning_rate": learning_rate,
        "schedule": "cosine",
        "clip": 1.0,
    }
    outcomes = []
    total, done = len(sets) * len(dropped) * len(networks), 0
    for name in sets:
        for share in dropped:
            options = {"dataset": name, "dropped": share}
            finished: dict[str, dict[str, Any]] = {}
            for network in networks:
                if tick is not None:
                    tick(f"{name}, {share:.0%} dropped, {network}", done / total)
                run = kept_fit(
                    network,
                    "ucr",
                    model_options={"hidden_size": hidden_size},
                    task_options=options,
                    train=train,
                    seed=seed,
                    out=out,
                )
                assert run.result is not None
                finished[network] = run.result
                done += 1
            outcomes.append(
                IrregularOutcome(
                    name,
                    share,
                    tasks["ucr"](**options).chance.metric,
                    {network: found["test"]["accuracy"] for network, found in finished.items()},
                    {network: found["cpu_seconds"] for network, found in finished.items()},
                )
            )
    return IrregularSeriesExperiment(steps, seed, tuple(outcomes))
