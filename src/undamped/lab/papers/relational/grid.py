"""Models on relational tasks over several seeds, as a table and a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean, pstdev
from typing import Annotated, Any

from undamped._base.options import Default, PositiveInt, unknown_name
from undamped._base.registry import models, tasks
from undamped.lab.papers.runs import RunOptions, fit_once, prefixed, unique
from undamped.lab.report.charts import label, line_style, panels
from undamped.lab.report.table import Report, Table
from undamped.lab.tasks import optional

Paper = Mapping[tuple[str, str, str], str]
"""Published numbers, by group, case and model."""


class GridOptions(RunOptions):
    """Options that experiments about relations share."""

    steps: Annotated[PositiveInt, Default(500, "Updates of each model; the thesis has 5,000.")]
    seeds: Annotated[PositiveInt, Default(2, "Trainings of each model; the thesis has 10.")]
    full: Annotated[
        bool, Default(False, "Use the budget of the thesis, which takes days on two cores.")
    ]


@dataclass(frozen=True)
class ModelVariant:
    """A model with its options.

    Args:
        name: Its name in tables.
        model: Registry name.
        options: Options of the model.
    """

    name: str
    model: str
    options: Mapping[str, Any] = field(default_factory=dict)


VARIANTS = {
    variant.name: variant
    for variant in (
        ModelVariant("CoRelNet", "corelnet"),
        ModelVariant("CoRelNet, frozen", "corelnet", {"encoder": "frozen"}),
        ModelVariant("CoRelNet-T", "corelnet-t"),
        ModelVariant("ESBN", "esbn"),
        ModelVariant("PrediNet", "predinet"),
        ModelVariant("Transformer", "picture-transformer"),
        ModelVariant("LSTM", "picture-rnn"),
        ModelVariant("RN", "relation-net"),
        ModelVariant("NTM", "ntm"),
        ModelVariant("MNM", "mnm"),
        ModelVariant("CoRelNet, sensory", "corelnet", {"sensory": True}),
        ModelVariant("CoRelNet-T, sensory", "corelnet-t", {"sensory": True}),
        ModelVariant("ESBN, sensory", "esbn", {"sensory": True}),
        ModelVariant("CoRelNet, asymmetric", "corelnet", {"similarity": "asymmetric"}),
        ModelVariant("CoRelNet-T, asymmetric", "corelnet-t", {"similarity": "asymmetric"}),
        ModelVariant("ESBN, asymmetric", "esbn", {"similarity": "asymmetric"}),
        ModelVariant("CoRelNet-T, frozen", "corelnet-t", {"encoder": "frozen"}),
        ModelVariant("ESBN, frozen", "esbn", {"encoder": "frozen"}),
        ModelVariant("CoRelNet-diff", "corelnet-diff"),
        ModelVariant("CoRelNet-mix", "corelnet-mix"),
    )
}
"""The ten models of the thesis, and variants of three of them."""


def variants(names: Sequence[str]) -> list[ModelVariant]:
    """Return models by name.

    Args:
        names: Of `VARIANTS`, where a plus may stand for the comma ("CoRelNet+frozen"), or registry
            names of recurrent networks, for example "unicornn".
    """
    from undamped.nn.recurrent import Recurrent

    selected = []
    for name in names:
        full = name.replace("+", ", ")
        if full in VARIANTS:
            selected.append(VARIANTS[full])
        elif name in models and issubclass(models[name], Recurrent):
            selected.append(ModelVariant(name, "picture-rnn", {"head": name, "hidden_size": 128}))
        else:
            choices = [variant.replace(", ", "+") for variant in VARIANTS]
            raise unknown_name("model of this experiment", name, choices)
    return selected


@dataclass(frozen=True)
class Case:
    """A task with its options.

    Args:
        group: The panel of the figure it belongs to.
        name: Its name in the panel.
        task: Registry name of the task.
        options: Options of the task.
        splits: Test splits that are reported, and their names; the split "test" by default.
    """

    group: str
    name: str
    task: str
    options: Mapping[str, Any] = field(default_factory=dict)
    splits: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Score:
    """The accuracies of a model in a case; tuples have a value for every seed.

    Args:
        group: The group of the case.
        case: The case, or its test split.
        contestant: The model.
        accuracies: In the test.
        training: On objects and rules of training.
        valid: In validation, whose trials are like those of training.
        updates: Of one training.
        cpu_seconds: Of one training, the mean.
        parameters: Number of parameters.
        baseline: The test accuracy of the best trivial rule.
        printed: The published number.
    """

    group: str
    case: str
    contestant: str
    accuracies: tuple[float, ...]
    training: tuple[float, ...]
    valid: tuple[float, ...]
    updates: int
    cpu_seconds: float
    parameters: int
    baseline: float | None = None
    printed: str | None = None

    @property
    def mean(self) -> float:
        """The mean over seeds."""
        return mean(self.accuracies)

    @property
    def deviation(self) -> float:
        """The standard deviation over seeds."""
        return pstdev(self.accuracies)

    def cell(self) -> str:
        """Return percent correct, the deviation, and in brackets the published number."""
        text = f"{100 * self.mean:.1f}"
        if len(self.accuracies) > 1:
            text += f" ± {100 * self.deviation:.1f}"
        return f"{text} ({self.printed})" if self.printed else text


@dataclass(frozen=True)
class Grid:
    """Scores of models (columns) in cases (rows).

    Args:
        scores: All scores.
        chances: The accuracy of random answers, by group.
    """

    scores: Sequence[Score]
    chances: Mapping[str, float]

    @property
    def models(self) -> list[str]:
        """All models, in the order of training."""
        return unique(score.contestant for score in self.scores)

    @property
    def rows(self) -> list[tuple[str, str]]:
        """Groups and cases, in the order of training."""
        return unique((score.group, score.case) for score in self.scores)

    def score(self, group: str, case: str, model: str) -> Score | None:
        """Return a score, or None if that model was not trained."""
        key = (group, case, model)
        return next((s for s in self.scores if (s.group, s.case, s.contestant) == key), None)

    def cell(self, group: str, case: str, model: str) -> str:
        """Return the cell of a table."""
        score = self.score(group, case, model)
        return "" if score is None else score.cell()

    def table(self, title: str) -> Table:
        """Return the table: percent correct, and in brackets the published numbers."""
        rows = []
        for group, case in self.rows:
            baseline = next(s.baseline for s in self.scores if (s.group, s.case) == (group, case))
            rows.append(
                (
                    f"{group}, {case}" if case else group,
                    f"{100 * self.chances[group]:.0f}",
                    "" if baseline is None else f"{100 * baseline:.0f}",
                    *(self.cell(group, case, model) for model in self.models),
                )
            )
        return Table(("", "chance", "trivial rule", *self.models), rows, title)

    def figure(self) -> Any:
        """Return the figure: a panel for each group, a line for each model."""
        groups = unique(group for group, _ in self.rows)
        columns = min(4, len(groups))
        lines = -(-len(groups) // columns)
        figure, all_axes = panels(3.1 * columns + 0.6, 2.7 * lines + 0.7, columns, lines)
        for axes, group in zip(all_axes, groups, strict=False):
            self._draw(axes, group)
        for axes in all_axes[len(groups) :]:
            axes.set_axis_off()
        handles, names = all_axes[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=6, fontsize=8)
        return figure

    def _draw(self, axes: Any, group: str) -> None:
        cases = [case for row_group, case in self.rows if row_group == group]
        for index, model in enumerate(self.models):
            pairs = [(x, self.score(group, case, model)) for x, case in enumerate(cases)]
            scores = [(x, score) for x, score in pairs if score is not None]
            # Shifted, so that equal scores do not cover each other.
            shift = 0.05 * (index - (len(self.models) - 1) / 2)
            axes.errorbar(
                [x + shift for x, _ in scores],
                [100 * score.mean for _, score in scores],
                [100 * score.deviation for _, score in scores],
                marker="o",
                markersize=4,
                linewidth=1,
                capsize=2,
                label=model,
                **line_style(index),
            )
        axes.axhline(100 * self.chances[group], color="0.5", linewidth=0.8, linestyle=":")
        label(axes, "", "correct in the test (%)", group, legend=False)
        axes.set_xticks(range(len(cases)), [case or group for case in cases], fontsize=7)
        axes.set_xlim(-0.5, len(cases) - 0.5)
        axes.set_ylim(0, 103)

    def records(self) -> list[dict[str, Any]]:
        """Return all scores with means and deviations, for JSON."""
        return [
            {**vars(score), "mean": score.mean, "deviation": score.deviation}
            for score in self.scores
        ]


def train_grid(
    cases: Sequence[Case],
    players: Sequence[ModelVariant],
    budget: Mapping[str, Any],
    paper: Paper | None = None,
    **train: Any,
) -> Grid:
    """Train every model in every case, once for each seed, and test it.

    Args:
        cases: The tasks.
        players: The models.
        budget: All options of `GridOptions`; seeds are counted from 0.
        paper: Published numbers.
        train: Further options of training; others are those of the task's recipe.
    """
    steps, seeds, progress = budget["steps"], budget["seeds"], budget["progress"]
    total, count = len(cases) * len(players) * seeds, 0
    train = {"steps": steps, **train, "validate_every": max(1, steps // 10)}
    scores: list[Score] = []
    chances: dict[str, float] = {}
    for case in cases:
        chances[case.group] = tasks[case.task](**case.options).chance.metric
        for player in players:
            runs = []
            for seed in range(seeds):
                line = f"{count + 1} of {total}, {case.group} {case.name}, {player.name}"
                runs.append(
                    fit_once(
                        player.model,
                        case.task,
                        model_options=player.options,
                        task_options=case.options,
                        train=train,
                        seed=seed,
                        out=budget["out"],
                        progress=prefixed(progress, line, count / total),
                    )
                )
                count += 1
                progress(line, count / total)
            scores += _scores(case, player, runs, paper or {})
    return Grid(scores, chances)


def _scores(case: Case, player: ModelVariant, runs: Sequence[Any], paper: Paper) -> list[Score]:
    results = [run.result for run in runs]
    test_splits = tasks[case.task](**case.options).test_tasks()
    rules = {name: split.baseline for name, split in test_splits.items()}
    training_split = optional.in_distribution(tasks[case.task])
    return [
        Score(
            group=case.group,
            case=name,
            contestant=player.name,
            accuracies=tuple(result[split]["accuracy"] for result in results),
            training=tuple(r.get(training_split, r["valid"])["accuracy"] for r in results),
            valid=tuple(result["valid"]["accuracy"] for result in results),
            updates=results[0]["steps"],
            cpu_seconds=mean(r.get("cpu_seconds", r["seconds"]) for r in results),
            parameters=runs[0].settings["model"]["parameters"],
            baseline=None if (rule := rules.get(split)) is None else rule.metric,
            printed=paper.get((case.group, name, player.name)),
        )
        for split, name in (case.splits or {"test": case.name}).items()
        if split in results[0]
    ]


def grid_report(name: str, title: str, grid: Grid, settings: Mapping[str, Any]) -> Report:
    """Return the report of a grid.

    Args:
        name: The name of the figure.
        title: A sentence about what was trained.
        grid: The scores.
        settings: The tasks and the budget, which `full` may have changed.
    """
    numbers, tables = {"chances": grid.chances}, [grid.table(title)]
    return Report(grid.records(), tables, {name: grid.figure}, numbers, settings)
