"""Recurrent networks and closed-form models on tasks that favour either: `each-side`.

Recurrent networks are trained as the recipes of the tasks specify, or for a fixed time; closed-form
models read whole series at once. Both are tested on the same test sets.

    undamped reproduce each-side --out figures/
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Unpack

from undamped._base.options import Default, PositiveFloat, PositiveInt
from undamped._base.registry import models as model_registry
from undamped._base.registry import tasks as task_registry
from undamped.lab.baselines.closed_form import ClosedFormModel
from undamped.lab.papers import runs
from undamped.lab.papers.archive import TRAINING_ERRORS
from undamped.lab.papers.runs import SeedOptions, experiment
from undamped.lab.papers.ucr import check_available
from undamped.lab.report.charts import MARKERS, colour, label, panels
from undamped.lab.report.table import Report, Table

MODELS = ("unicornn", "linoss", "lem", "bank", "minirocket", "guess")
SETS = ("GunPoint", "ArrowHead", "Lightning7")
TASKS = ("digits", "adding", "first-cue")
TIE = 0.01
"""Two models whose skills differ by no more than this are tied."""


class EachSideOptions(SeedOptions):
    """Seed, folder and progress."""

    out: Annotated[str, Default("runs/each-side", "Folder for the runs.")]


@dataclass(frozen=True)
class Score:
    """The score of one model on one task.

    Args:
        score: The metric of the task on the test set; None where there is none.
        skill: 1 for a perfect model, 0 for the naive baseline.
        cpu_seconds: CPU time of training.
        refused: Why there is no score.
    """

    score: float | None = None
    skill: float | None = None
    cpu_seconds: float = 0.0
    refused: str = ""

    def cell(self, metric: str) -> str:
        """Return the cell of the table."""
        if self.score is None:
            return "–"
        accuracy = metric.endswith("accuracy")
        return f"{100 * self.score:.1f} %" if accuracy else f"{metric} {self.score:.2g}"


@dataclass(frozen=True)
class TaskScores:
    """One task and the scores of all models.

    Args:
        name: The task, or the dataset of the archive.
        about: Length of the sequences and number of classes.
        metric: What is measured.
        chance: The score of the naive baseline.
        scores: By model.
        winner: "recurrent", "closed form" or "both".
    """

    name: str
    about: str
    metric: str
    chance: float
    scores: dict[str, Score]
    winner: str


@experiment("each-side")
def run(
    *,
    tasks: Sequence[str] = TASKS,
    sets: Sequence[str] = SETS,
    models: Sequence[str] = MODELS,
    network_seconds: PositiveFloat | None = None,
    batches: PositiveInt = 8,
    length: PositiveInt = 10_000,
    **budget: Unpack[EachSideOptions],
) -> Report:
    """Tasks on which recurrent networks are best, and tasks on which closed-form models are.

    Args:
        tasks: Registry names of tasks: digits in noise, adding, an early cue.
        sets: Datasets of the UCR and UEA archives that have been fetched.
        models: Registry names.
        network_seconds: CPU time for a trained network on each task, instead of the number of
            updates of the task's recipe, which does not depend on the machine.
        batches: Batches of 50 sequences for closed-form models where a task generates its data.
        length: Steps of the recordings of `first-cue`.
        budget: Seed, folder and progress; see `SeedOptions`.

    Example:
        >>> result = run(tasks=("adding",), sets=(), models=("bank", "guess"))

    Reference:
        Those of the tasks: `undamped show digits`, `undamped show adding`, `undamped show
        first-cue`.
    """
    check_available(sets, models)
    recurrent = [n for n in models if not issubclass(model_registry[n], ClosedFormModel)]
    plan = [(name, name, {"length": length} if name == "first-cue" else {}) for name in tasks]
    plan += [(name, "ucr", {"dataset": name}) for name in sets]
    for _, task_name, _ in plan:
        task_registry[task_name]  # raises for an unknown name
    contests: list[TaskScores] = []
    for index, (name, task_name, options) in enumerate(plan):
        task = task_registry[task_name](**options)
        scores = {}
        for number, model in enumerate(models):
            budget["progress"](f"{name}, {model}", (index + number / len(models)) / len(plan))
            train: dict[str, Any] = (
                {} if network_seconds is None else {"cpu_seconds": network_seconds}
            )
            if model not in recurrent:
                endless = task.count("train", 50) is None
                train = {"steps": batches, "batch_size": 50} if endless else {}
            scores[model] = _train(model, task_name, options, task, train, budget)
        answer = f"{task.output_size} classes" if task.answer == "class" else "a number"
        about = f"{len(task.batch('test', 0, 1).inputs):,} steps, {answer}"
        winner = _winner(scores, recurrent)
        contests.append(TaskScores(name, about, task.metric, task.chance.metric, scores, winner))
    rows = [
        (
            contest.name,
            contest.about,
            *(score.cell(contest.metric) for score in contest.scores.values()),
            contest.winner,
        )
        for contest in contests
    ]
    return Report(
        contests,
        [Table(("task", "sequences", *models, "better"), rows, text_columns=2)],
        {"each-side": lambda: _figure(contests, models, recurrent)},
        settings={"recurrent": recurrent},
    )


def _train(
    model: str,
    task_name: str,
    options: dict[str, Any],
    task: Any,
    train: dict[str, Any],
    budget: EachSideOptions,
) -> Score:
    try:
        run = runs.fit_once(
            model,
            task_name,
            model_options={},
            task_options=options,
            train=train,
            seed=budget["seed"],
            out=budget["out"],
        )
    except TRAINING_ERRORS as error:
        return Score(refused=str(error))
    result = run.settings["result"]
    score, chance = result["test"][task.metric], task.chance.metric
    best = 1.0 if task.higher_is_better else 0.0
    return Score(score, (score - chance) / (best - chance), result["cpu_seconds"])


def _winner(scores: dict[str, Score], recurrent: Sequence[str]) -> str:
    """Return which kind of model has the larger skill; without a score it is minus infinity."""
    best = {True: float("-inf"), False: float("-inf")}
    for name, score in scores.items():
        if score.skill is not None:
            best[name in recurrent] = max(best[name in recurrent], score.skill)
    difference = best[True] - best[False]
    if abs(difference) <= TIE:
        return "both"
    return "recurrent" if difference > 0 else "closed form"


def _figure(contests: Sequence[TaskScores], models: Sequence[str], recurrent: Sequence[str]) -> Any:
    figure, (axes,) = panels(8, 0.5 * len(contests) + 2.0)
    heights = list(range(len(contests)))[::-1]
    for number, name in enumerate(models):
        skills = [contest.scores[name].skill for contest in contests]
        points = [(100 * s, y) for s, y in zip(skills, heights, strict=True) if s is not None]
        x, y = zip(*points, strict=True) if points else ((), ())
        fill = colour(number) if name in recurrent else "none"
        marker = MARKERS[number % len(MARKERS)]
        axes.plot(x, y, marker, color=colour(number), mfc=fill, ms=8, label=name)
    axes.axvline(0, color="black", lw=0.8)
    axes.set_yticks(heights, [contest.name for contest in contests])
    axes.grid(axis="y", alpha=0.3)
    unit = "skill on the test set (%): 0 is the naive baseline, 100 is perfect"
    label(axes, unit, title="Filled: recurrent networks. Open: closed-form models")
    return figure
