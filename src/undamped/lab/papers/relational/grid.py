"""Contestants in cases: what each scores, over seeds, as a table and a picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean, pstdev
from typing import Any

from undamped._base.registry import tasks
from undamped.lab.papers.drawing import line_of
from undamped.lab.papers.kept_runs import kept_fit

Tick = Callable[..., None]
"""Told what goes on, and the share of all that is done."""
Printed = Mapping[tuple[str, str, str], str]
"""Numbers of the literature, by group, case and contestant."""


@dataclass(frozen=True)
class Contestant:
    """A model with options of its own.

    Args:
        name: What it is called in tables.
        model: Its registry name.
        options: Its options.
    """

    name: str
    model: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """A task with its options.

    Args:
        group: The part of the picture it belongs to.
        name: What it is called there.
        task: Its registry name.
        options: Its options.
        parts: Test parts that are read, and what they are called; the case itself if not said.
    """

    group: str
    name: str
    task: str
    options: Mapping[str, Any] = field(default_factory=dict)
    parts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Score:
    """What a contestant scored in a case.

    Args:
        group: The group of the case.
        case: The case, or its part.
        contestant: Who.
        accuracies: In the test, one for each seed.
        seen: On objects and rules of training, one for each seed.
        valid: In validation, whose trials are like those of training, one for each seed.
        updates: Of one training.
        cpu_seconds: Of one training, the mean.
        parameters: How many are trained.
        baseline: What the best trivial rule scores in the test.
    """

    group: str
    case: str
    contestant: str
    accuracies: tuple[float, ...]
    seen: tuple[float, ...]
    valid: tuple[float, ...]
    updates: int
    cpu_seconds: float
    parameters: int
    baseline: float | None = None

    @property
    def mean(self) -> float:
        """The mean over seeds."""
        return mean(self.accuracies)

    @property
    def deviation(self) -> float:
        """The standard deviation over seeds."""
        return pstdev(self.accuracies)


@dataclass(frozen=True)
class Grid:
    """All scores of an experiment.

    Args:
        name: What the picture is called.
        title: One sentence about what was done.
        scores: What was found.
        chances: What a guess scores, by group.
        printed: Numbers of the literature.
        settings: What the experiment was told.
    """

    name: str
    title: str
    scores: tuple[Score, ...]
    chances: dict[str, float]
    printed: Printed
    settings: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return {
            "settings": self.settings,
            "chances": self.chances,
            "scores": [
                {
                    **vars(score),
                    "mean": score.mean,
                    "deviation": score.deviation,
                    "printed": self.printed.get((score.group, score.case, score.contestant)),
                }
                for score in self.scores
            ],
        }

    @property
    def contestants(self) -> list[str]:
        """Everybody, in the order of training."""
        return list(dict.fromkeys(score.contestant for score in self.scores))

    @property
    def rows(self) -> list[tuple[str, str]]:
        """Groups and cases, in the order of training."""
        return list(dict.fromkeys((score.group, score.case) for score in self.scores))

    def of(self, group: str, case: str, contestant: str) -> Score | None:
        """Return a score, or None if that was not tried."""
        wanted = (group, case, contestant)
        return next((s for s in self.scores if (s.group, s.case, s.contestant) == wanted), None)

    def markdown(self) -> str:
        """Return the table: percent right, and in brackets what the thesis prints."""
        lines = [
            self.title,
            "",
            f"| | a guess | trivial rule | {' | '.join(self.contestants)} |",
            "|---|---:|---:|" + "---:|" * len(self.contestants),
        ]
        for group, case in self.rows:
            cells = [self._cell(group, case, contestant) for contestant in self.contestants]
            label = f"{group}, {case}" if case else group
            first = next(s for s in self.scores if (s.group, s.case) == (group, case))
            rule = "" if first.baseline is None else f"{100 * first.baseline:.0f}"
            guess = f"{100 * self.chances[group]:.0f}"
            lines.append(f"| {label} | {guess} | {rule} | {' | '.join(cells)} |")
        return "\n".join(lines) + "\n"

    def _cell(self, group: str, case: str, contestant: str) -> str:
        score = self.of(group, case, contestant)
        if score is None:
            return ""
        said = f"{100 * score.mean:.1f}"
        if len(score.accuracies) > 1:
            said += f" ± {100 * score.deviation:.1f}"
        printed = self.printed.get((group, case, contestant))
        return f"{said} ({printed})" if printed else said

    def figures(self) -> dict[str, Any]:
        """Return the picture: a frame for each group, a line for each contestant."""
        from matplotlib.figure import Figure

        groups = list(dict.fromkeys(group for group, _ in self.rows))
        columns = min(4, len(groups))
        lines = -(-len(groups) // columns)
        figure = Figure(figsize=(3.1 * columns + 0.6, 2.7 * lines + 0.7), layout="constrained")
        axes = figure.subplots(lines, columns, squeeze=False).ravel()
        for axis, group in zip(axes, groups, strict=False):
            self._draw(axis, group)
        for axis in axes[len(groups) :]:
            axis.set_axis_off()
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=6, fontsize=8)
        return {self.name: figure}

    def _draw(self, axis: Any, group: str) -> None:
        cases = [case for of, case in self.rows if of == group]
        for index, contestant in enumerate(self.contestants):
            found = [self.of(group, case, contestant) for case in cases]
            # Beside each other, so that equal ones are seen.
            shift = 0.05 * (index - (len(self.contestants) - 1) / 2)
            places = [place + shift for place, score in enumerate(found) if score is not None]
            scores = [score for score in found if score is not None]
            axis.errorbar(
                places,
                [100 * score.mean for score in scores],
                [100 * score.deviation for score in scores],
                marker="o",
                markersize=4,
                linewidth=1,
                capsize=2,
                label=contestant,
                **line_of(index),
            )
        axis.axhline(100 * self.chances[group], color="0.5", linewidth=0.8, linestyle=":")
        axis.set_xticks(range(len(cases)), [case or group for case in cases], fontsize=7)
        axis.set_xlim(-0.5, len(cases) - 0.5)
        axis.set_ylim(0, 103)
        axis.set_title(group, fontsize=9)
        axis.set_ylabel("right in the test (%)", fontsize=8)


def play(
    cases: Sequence[Case],
    contestants: Sequence[Contestant],
    *,
    seeds: int,
    train: Mapping[str, Any],
    out: str,
    tick: Tick | None = None,
) -> tuple[tuple[Score, ...], dict[str, float]]:
    """Train every contestant in every case, once for each seed, and test it.

    Trainings that are in the folder already are not made again; one that was stopped goes on.

    Args:
        cases: The tasks.
        contestants: The models.
        seeds: How many times, from seed 0 on.
        train: Options of training; batch size and learning rate are those of the task's recipe.
        out: The folder for the runs.
        tick: Told how it goes, for a progress bar.

    Returns:
        The scores, and what a guess scores by group.
    """
    total, done = len(cases) * len(contestants) * seeds, 0
    scores: list[Score] = []
    chances: dict[str, float] = {}
    for case in cases:
        chances[case.group] = tasks[case.task](**case.options).chance.metric
        for contestant in contestants:
            runs = []
            for seed in range(seeds):
                label = f"{done + 1} of {total}, {case.group} {case.name}, {contestant.name}"
                runs.append(
                    kept_fit(
                        contestant.model,
                        case.task,
                        model_options=contestant.options,
                        task_options=case.options,
                        train=train,
                        seed=seed,
                        out=out,
                        tell=_teller(tick, label, done / total),
                    )
                )
                done += 1
                if tick is not None:
                    tick(label, done / total)
            scores += _scores(case, contestant, [run.result or {} for run in runs], runs)
    return tuple(scores), chances


def _teller(tick: Tick | None, label: str, share: float) -> Callable[[str], None] | None:
    return None if tick is None else lambda line: tick(f"{label}: {line}", share)


def _baselines(case: Case) -> dict[str, float]:
    """Return what the best trivial rule scores, by part of the test."""
    parts = tasks[case.task](**case.options).test_parts()
    found = {name: part.baseline for name, part in parts.items()}
    return {name: one.metric for name, one in found.items() if one is not None}


def _scores(
    case: Case, contestant: Contestant, results: list[dict[str, Any]], runs: list[Any]
) -> list[Score]:
    seen_part, rules = tasks[case.task].seen_part, _baselines(case)
    seen = tuple(r.get(seen_part, r["valid"])["accuracy"] for r in results)
    return [
        Score(
            case.group,
            name,
            contestant.name,
            tuple(result[part]["accuracy"] for result in results),
            seen,
            tuple(result["valid"]["accuracy"] for result in results),
            results[0]["steps"],
            mean(result.get("cpu_seconds", result["seconds"]) for result in results),
            runs[0].settings["model"]["parameters"],
            rules.get(part),
        )
        for part, name in (case.parts or {"test": case.name}).items()
        if part in results[0]
    ]
