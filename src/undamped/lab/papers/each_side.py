"""Tasks that one side wins and tasks that the other does: who looks at whole series, who remembers.

Recurrent networks are trained as the tasks' recipes say, or for a stated time; models that learn at
once see the whole of every sequence. Both answer the same test parts. Trainings that are in the
folder are not made again, so that a stopped experiment goes on where it was.

    undamped reproduce each-side --out pictures/
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from undamped._base.options import NonNegativeInt, PositiveFloat, PositiveInt
from undamped._base.registry import experiments

MODELS = ("unicornn", "linoss", "lem", "bank", "minirocket", "guess")
SETS = ("GunPoint", "ArrowHead", "Lightning7")
TASKS = ("digits", "adding", "first-cue")
WITHIN = 0.01
"""Two models whose skills are nearer than this are said to be equal."""


@dataclass(frozen=True)
class Outcome:
    """What one model came to on one task.

    Args:
        score: The task's metric on the test part; None where there is no answer.
        skill: 1 for answers that are always right, 0 for those of a guess.
        cpu_seconds: Of its training.
        refused: Why there is no answer.
    """

    score: float | None = None
    skill: float | None = None
    cpu_seconds: float = 0.0
    refused: str = ""


@dataclass(frozen=True)
class Contest:
    """One task: what it is, and what every model came to.

    Args:
        name: The task, or the set of the archive.
        about: How long its sequences are, and how many classes there are.
        metric: What is measured.
        chance: What a guess has.
        outcomes: By model.
    """

    name: str
    about: str
    metric: str
    chance: float
    outcomes: dict[str, Outcome]

    def best(self, names: Sequence[str]) -> float:
        """Return the best skill of some models; minus infinity where none answered."""
        skills = [self.outcomes[n].skill for n in names if n in self.outcomes]
        return max((s for s in skills if s is not None), default=float("-inf"))

    def winner(self, recurrent: Sequence[str]) -> str:
        """Say which side is ahead."""
        others = [name for name in self.outcomes if name not in recurrent]
        ahead = self.best(recurrent) - self.best(others)
        if abs(ahead) <= WITHIN:
            return "both"
        return "recurrent" if ahead > 0 else "at once"


@dataclass(frozen=True)
class EachSideExperiment:
    """All models on all tasks.

    Args:
        network_seconds: The time that each network had on each task; None for recipes.
        recurrent: The models that were trained step by step.
        contests: The tasks.
    """

    network_seconds: float | None
    recurrent: tuple[str, ...]
    contests: tuple[Contest, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return {
            "network_seconds": self.network_seconds,
            "recurrent": list(self.recurrent),
            "contests": [
                {
                    **vars(one),
                    "outcomes": {name: vars(o) for name, o in one.outcomes.items()},
                    "winner": one.winner(self.recurrent),
                }
                for one in self.contests
            ],
        }

    def markdown(self) -> str:
        """Return the table for the documentation."""
        names = list(self.contests[0].outcomes)
        lines = [
            f"| task | sequences | {' | '.join(names)} | ahead |",
            "|---|---|" + "---:|" * len(names) + "---|",
        ]
        for one in self.contests:
            cells = [_cell(outcome, one.metric) for outcome in one.outcomes.values()]
            won = one.winner(self.recurrent)
            lines.append(f"| {one.name} | {one.about} | {' | '.join(cells)} | {won} |")
        return "\n".join(lines) + "\n"

    def figures(self) -> dict[str, Any]:
        """Return the picture: one row per task, one mark per model."""
        from matplotlib.figure import Figure

        from undamped.analysis.core.figures import PALETTE
        from undamped.lab.papers.accuracy_marks import MARKS

        figure = Figure(figsize=(8, 0.5 * len(self.contests) + 2.0), layout="constrained")
        axes = figure.subplots()
        places = list(range(len(self.contests)))[::-1]
        for number, name in enumerate(self.contests[0].outcomes):
            skills = [one.outcomes[name].skill for one in self.contests]
            shown = [(100 * s, p) for s, p in zip(skills, places, strict=True) if s is not None]
            mark, colour = MARKS[number % len(MARKS)], PALETTE[number % len(PALETTE)]
            filled = colour if name in self.recurrent else "none"
            across, down = zip(*shown, strict=True) if shown else ((), ())
            axes.plot(across, down, mark, color=colour, mfc=filled, ms=8, label=name)
        axes.axvline(0, color="black", lw=0.8)
        axes.set_yticks(places, [one.name for one in self.contests])
        axes.set_xlabel("skill on the test part (%): 0 is a guess, 100 always right")
        axes.set_title("Filled: trained step by step. Open: learnt at once", fontsize=10)
        axes.grid(axis="y", alpha=0.3)
        axes.legend(fontsize="small")
        return {"each-side": figure}


@experiments.register("each-side")
def run(
    *,
    tasks: Sequence[str] = TASKS,
    sets: Sequence[str] = SETS,
    models: Sequence[str] = MODELS,
    network_seconds: PositiveFloat | None = None,
    batches: PositiveInt = 8,
    length: PositiveInt = 10_000,
    seed: NonNegativeInt = 0,
    out: str = "runs/each-side",
    tick: Callable[..., None] | None = None,
) -> EachSideExperiment:
    """Where networks with a memory win, and where models win that look at whole series.

    Args:
        tasks: Registry names of tasks: digits in noise, adding, a cue long ago.
        sets: Sets of the UCR and UEA archives that have been fetched.
        models: Registry names.
        network_seconds: Time for a trained network on each task, instead of the budget of the
            task's recipe, which does not depend on the machine.
        batches: Of 50 sequences each, from which models learn at once where data has no end.
        length: Steps of the recordings of `first-cue`.
        seed: Where all random numbers come from.
        out: The folder for the runs; what is there already is not trained again.
        tick: Called with what was done and the share of all, for a progress bar.

    Example:
        >>> result = run(tasks=("adding",), sets=(), models=("bank", "guess"))

    Reference:
        The tasks' own: `undamped show digits`, `undamped show adding`, `undamped show first-cue`.
    """
    from undamped._base.registry import models as known
    from undamped._base.registry import tasks as asked
    from undamped.lab.baselines.learns_at_once import LearnsAtOnce
    from undamped.lab.data.published.cache import folder

    for name in sets:
        folder(f"ucr/{name}")  # a missing set should be said before an hour of training
    recurrent = tuple(name for name in models if not issubclass(known[name], LearnsAtOnce))
    plan = [(name, name, {"length": length} if name == "first-cue" else {}) for name in tasks]
    plan += [(name, "ucr", {"dataset": name}) for name in sets]
    for _, task, _ in plan:
        asked[task]
    contests = []
    for place, (name, task, options) in enumerate(plan):
        built = asked[task](**options)
        outcomes = {}
        for number, model in enumerate(models):
            if tick is not None:
                tick(f"{name}, {model}", (place * len(models) + number) / (len(plan) * len(models)))
            train: dict[str, Any] = {} if network_seconds is None else {"seconds": network_seconds}
            if model not in recurrent:
                endless = built.count("train", 50) is None
                train = {"steps": batches, "batch_size": 50} if endless else {}
            outcomes[model] = _outcome(model, task, options, built, train, seed, out)
        about = f"{_steps(built)}, {_answers(built)}"
        contests.append(Contest(name, about, built.metric, built.chance.metric, outcomes))
    return EachSideExperiment(network_seconds, recurrent, tuple(contests))


def _outcome(
    model: str,
    task: str,
    options: dict[str, Any],
    built: Any,
    train: dict[str, Any],
    seed: int,
    out: str,
) -> Outcome:
    from undamped._base.errors import DataError, MissingPackageError, NonFiniteError, OptionError
    from undamped.lab.papers.kept_runs import kept_fit

    try:
        run = kept_fit(
            model, task, model_options={}, task_options=options, train=train, seed=seed, out=out
        )
    except (DataError, MissingPackageError, NonFiniteError, OptionError) as error:
        return Outcome(refused=str(error))
    result = run.settings["result"]
    score, chance = result["test"][built.metric], built.chance.metric
    best = 1.0 if built.higher_is_better else 0.0
    return Outcome(score, (score - chance) / (best - chance), result["cpu_seconds"])


def _steps(task: Any) -> str:
    return f"{len(task.batch('test', 0, 1).inputs):,} steps"


def _answers(task: Any) -> str:
    return f"{task.output_size} classes" if task.answer == "class" else "a number"


def _cell(outcome: Outcome, metric: str) -> str:
    if outcome.score is None:
        return "–"
    share = metric.endswith("accuracy")
    return f"{100 * outcome.score:.1f} %" if share else f"{metric} {outcome.score:.2g}"
