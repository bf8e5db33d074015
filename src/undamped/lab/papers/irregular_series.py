"""Irregularly sampled datasets of the archives: networks with continuous state between samples.

A fraction of the steps of every series is dropped at random; the others keep their timestamps. All
networks have the same width, optimiser and number of updates; those without a flow between samples
get the time since the previous sample as a further feature.

    undamped reproduce irregular-series --out figures/
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from statistics import mean
from typing import Unpack

from undamped._base.options import PositiveFloat, PositiveInt
from undamped._base.registry import tasks
from undamped.lab.papers.runs import SeedOptions, experiment, fit_once
from undamped.lab.papers.ucr import check_available
from undamped.lab.report.charts import marker_chart
from undamped.lab.report.table import Report, Table

SETS = ("JapaneseVowels", "BasicMotions")
NETWORKS = ("ode-rnn", "neural-cde", "gru-d", "decay-rnn", "modes-rnn", "cfc", "unicornn", "gru")
DROPPED = (0.3, 0.5, 0.7)


@dataclass(frozen=True)
class IrregularScores:
    """Test accuracies on one dataset with a fraction of its steps dropped."""

    name: str
    dropped: float
    chance: float
    accuracy: dict[str, float]
    cpu_seconds: dict[str, float]


@experiment("irregular-series")
def run(
    *,
    sets: Sequence[str] = SETS,
    dropped: Sequence[float] = DROPPED,
    networks: Sequence[str] = NETWORKS,
    steps: PositiveInt = 400,
    hidden_size: PositiveInt = 32,
    learning_rate: PositiveFloat = 5e-3,
    **options: Unpack[SeedOptions],
) -> Report:
    """Datasets of the archives with steps dropped: continuous-time networks beside others.

    Args:
        sets: Names of datasets that have been fetched.
        dropped: Fractions of the steps that are dropped.
        networks: Registry names of networks.
        steps: Updates of each network.
        hidden_size: Units, the same for all.
        learning_rate: Learning rate of all, on a cosine schedule.
        options: Seed, folder and progress; see `SeedOptions`.

    Example:
        >>> result = run(sets=("BasicMotions",), dropped=(0.5,), steps=200)
    """
    check_available(sets, networks)
    train = {
        "steps": steps,
        "validate_every": max(1, steps // 8),
        "learning_rate": learning_rate,
        "schedule": "cosine",
        "clip": 1.0,
    }
    scores: list[IrregularScores] = []
    total, count = len(sets) * len(dropped) * len(networks), 0
    for name, fraction in product(sets, dropped):
        task = {"dataset": name, "dropped": fraction}
        entry = IrregularScores(name, fraction, tasks["ucr"](**task).chance.metric, {}, {})
        for network in networks:
            options["progress"](f"{name}, {fraction:.0%} dropped, {network}", count / total)
            result = fit_once(
                network,
                "ucr",
                model_options={"hidden_size": hidden_size},
                task_options=task,
                train=train,
                seed=options["seed"],
                out=options["out"],
            ).result
            assert result is not None
            entry.accuracy[network] = result["test"]["accuracy"]
            entry.cpu_seconds[network] = result["cpu_seconds"]
            count += 1
        scores.append(entry)
    rows: list[tuple[str, ...]] = [
        (
            f"{entry.name}, {entry.dropped:.0%}",
            *(f"{entry.accuracy[network]:.1%}" for network in networks),
            f"{entry.chance:.1%}",
        )
        for entry in scores
    ]
    means = [mean(entry.accuracy[network] for entry in scores) for network in networks]
    means.append(mean(entry.chance for entry in scores))
    seconds = [mean(entry.cpu_seconds[network] for entry in scores) for network in networks]
    rows.append(("mean", *(f"{value:.1%}" for value in means)))
    rows.append(("CPU s of a training", *(f"{value:.0f}" for value in seconds), ""))
    header = ("set, steps dropped", *networks, "majority class")
    chart_rows = [f"{entry.name}, {entry.dropped:.0%} dropped" for entry in scores]
    accuracies = {n: [entry.accuracy[n] for entry in scores] for n in networks}
    baselines = {"majority class": ("x", [entry.chance for entry in scores])}
    figure_title = "Test accuracy with steps missing"
    title = f"Test accuracy after {steps} updates, seed {options['seed']}."
    return Report(
        scores,
        [Table(header, rows, title)],
        {"irregular-series": lambda: marker_chart(chart_rows, accuracies, baselines, figure_title)},
    )
