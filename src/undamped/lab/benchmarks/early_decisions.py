"""Early decisions: accuracy and fraction of the series that a stream has seen when it decides.

A model and its stopping rule are chosen on training series, and scored on the test series.
Cylinder, bell and funnel are generated (N. Saito. Local feature extraction and its applications
using a library of bases. Yale University, 1994); others are sets of the UCR archive.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace

import numpy as np

from undamped.lab.benchmarks.timing import benchmark
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.report.table import Progress, Report, Table, silent
from undamped.lab.tasks.series import SeriesTask
from undamped.lab.training.early_answers import early_answers, labelled_series, stopping_rule
from undamped.lab.training.fit import fit
from undamped.lab.training.run import Run
from undamped.lab.training.stopping import MOST_LOSS, ChosenRule

SHAPES = ("cylinder", "bell", "funnel")
ARCHIVE = "GunPoint,ECG200,SyntheticControl,Trace,ItalyPowerDemand"
HEADER = (
    "data",
    "test series",
    "accuracy, %",
    "at decision, %",
    "fraction seen, %",
    "harmonic mean",
    "target met",
    "accuracy (confidence) at 10 %",
    "at 25 %",
    "at 50 %",
    "at 100 %",
)
_MOST_FRACTION = 0.6


@dataclass(frozen=True)
class EarlyDecision:
    """A stopping rule on test series.

    Args:
        data: Name of the data.
        series: The number of test series.
        accuracy: Accuracy after whole series.
        decided: Accuracy of the decisions.
        fraction: Mean fraction of a series before its decision.
        harmonic_mean: That of `decided` and 1 − `fraction`.
        calibration: Share of the typical length, accuracy and mean confidence there.
    """

    data: str
    series: int
    accuracy: float
    decided: float
    fraction: float
    harmonic_mean: float
    calibration: list[tuple[float, float, float]]

    @property
    def met(self) -> bool:
        """Whether at most 60 % of the series cost at most 2 points of accuracy."""
        return self.decided >= self.accuracy - MOST_LOSS and self.fraction <= _MOST_FRACTION


def cylinder_bell_funnel(count: int, seed: int, steps: int = 128, noise: float = 1.0) -> SeriesSet:
    """Return noisy series with one of three events, equally often.

    Args:
        count: How many.
        seed: The seed of the random numbers.
        steps: Samples of a series.
        noise: Standard deviation of the noise.
    """
    random = np.random.default_rng(seed)
    time = np.arange(1, steps + 1)
    series, labels = [], []
    for index in range(count):
        first = random.integers(steps // 8, steps // 4 + 1)
        last = first + random.integers(steps // 4, 3 * steps // 4 + 1)
        inside = (time >= first) & (time <= last)
        name = SHAPES[index % 3]
        rise = (time - first) / (last - first)
        form = {"cylinder": np.ones(steps), "bell": rise, "funnel": 1 - rise}[name]
        values = (6 + random.normal()) * inside * form + noise * random.normal(size=steps)
        series.append(values[:, None])
        labels.append(name)
    return SeriesSet.of(series, labels)


def cylinder_bell_funnel_task(
    training: int, test: int, seed: int, steps: int = 128, noise: float = 1.0
) -> SeriesTask:
    """Return cylinder, bell and funnel as a task; a fifth of the training series validates.

    Args:
        training: Number of training and validation series.
        test: Number of test series.
        seed: The seed of the random numbers.
        steps: Samples of a series.
        noise: Standard deviation of the noise.
    """
    series_set = cylinder_bell_funnel(training + test, seed, steps, noise)
    parts = np.array(["train"] * training + ["test"] * test)
    series_set = replace(series_set, parts=parts, source="cylinder-bell-funnel")
    return SeriesTask(series_set, split="given", fractions=(0.8, 0.2, 0.0))


def measure(data: str, run: Run) -> EarlyDecision:
    """Return how the stopping rule of a run does on the test series of its task.

    Args:
        data: Name of the data.
        run: The run.
    """
    model, preparation = run.model(), run.preparation()
    rule = stopping_rule(run).rule
    series = labelled_series(run.task(), "test", most=None)
    answers = early_answers(model, preparation, series, np.array(rule.checkpoints))
    tested = ChosenRule.of(rule, answers)
    scores = tested.scores
    return EarlyDecision(
        data,
        scores.series,
        scores.full_accuracy,
        scores.accuracy,
        scores.fraction,
        scores.harmonic_mean,
        tested.calibration(),
    )


@benchmark("early-decisions")
def run(
    *,
    model: str = "bank",
    sets: str = ARCHIVE,
    draws: int = 3,
    quick: bool = False,
    progress: Progress = silent,
) -> Report:
    """Early decisions: accuracy, and the fraction of a series that a stream has seen by then.

    Args:
        model: A classifier that can follow a stream.
        sets: Sets of the UCR archive, separated by commas.
        draws: How many generated data sets of cylinder, bell and funnel.
        quick: A small generated data set only.
        progress: Called with a name after every data set.

    Example:
        >>> result = run(quick=True)
    """
    records = []
    with tempfile.TemporaryDirectory() as folder:
        for draw in range(1 if quick else draws):
            task = cylinder_bell_funnel_task(*((60, 60) if quick else (150, 300)), seed=draw)
            trained = fit(model, task, seed=draw, out=folder, progress=False)
            records.append(measure(f"cylinder-bell-funnel, draw {draw}", trained))
            progress(records[-1].data)
        for name in [] if quick else sets.split(","):
            options = {"dataset": name}
            trained = fit(model, "ucr", task_options=options, out=folder, progress=False)
            records.append(measure(name, trained))
            progress(name)
    title = f"{model}; rule and model chosen on training series, scores of test series."
    return Report(records, [Table(HEADER, [_row(record) for record in records], title)])


def _row(record: EarlyDecision) -> tuple[str, ...]:
    return (
        record.data,
        str(record.series),
        f"{100 * record.accuracy:.1f}",
        f"{100 * record.decided:.1f}",
        f"{100 * record.fraction:.0f}",
        f"{record.harmonic_mean:.3f}",
        "yes" if record.met else "no",
        *(f"{100 * right:.0f} ({100 * sure:.0f})" for _, right, sure in record.calibration),
    )
