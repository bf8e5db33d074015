"""Tables, heat map and paper of the memory benchmark."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from importlib.resources import files
from statistics import fmean
from typing import Any

from undamped._base.registry import tasks as task_registry
from undamped.lab.benchmarks.memory_scores import ENTRANTS, LENGTHS, SHORT, SOLVED, TASKS, Score
from undamped.lab.report.charts import panels
from undamped.lab.report.table import Report, Table


@dataclass(frozen=True)
class Summary:
    """The scores of a folder, by task, entrant and lengths."""

    scores: Sequence[Score]

    @property
    def tasks(self) -> list[str]:
        """The tasks in the order of the table."""
        return sorted({s.task for s in self.scores}, key=_position(TASKS))

    @property
    def networks(self) -> list[str]:
        """The entrants with memory in the order of the table."""
        names = {s.entrant for s in self.scores if not s.certificate}
        return sorted(names, key=_position(tuple(ENTRANTS)))

    @property
    def columns(self) -> list[int]:
        """The lengths that are shown after short training: 1,024 and 16,384 steps, if tested."""
        tested = sorted({int(n) for s in self.scores if s.trained == SHORT for n in s.accuracy})
        return [n for n in tested if n in (LENGTHS[1], LENGTHS[-1])] or tested[-2:]

    def values(self, task: str, entrant: str, trained: int, tested: int) -> list[float]:
        """Return the accuracies of all seeds."""
        return [
            s.accuracy[str(tested)]
            for s in self.scores
            if (s.task, s.entrant, s.trained) == (task, entrant, trained)
            and str(tested) in s.accuracy
        ]

    def mean(self, task: str, entrant: str, trained: int, tested: int) -> float | None:
        """Return the mean accuracy over seeds; None without scores."""
        values = self.values(task, entrant, trained, tested)
        return fmean(values) if values else None

    def certificate(self, task: str, tested: int) -> tuple[float, str]:
        """Return the best score without memory, and whose it is.

        Where no model without memory was trained at a length, the nearest shorter length counts:
        windows and memories of fixed size see a smaller part of a longer sequence.
        """
        records = [s for s in self.scores if s.task == task]
        best = max((s.chance for s in records), default=0.0), "chance"
        lengths = [
            s.trained for s in records if s.certificate and s.accuracy and s.trained <= tested
        ]
        for name in {s.entrant for s in records if s.certificate} if lengths else ():
            length = max(lengths)
            mean = self.mean(task, name, length, length)
            if mean is not None:
                best = max(best, (mean, name))
        return best

    def has_memory(self, task: str, entrant: str, trained: int, tested: int) -> bool:
        """Return whether a score is more than two standard errors above the certificate."""
        mean, level = self.mean(task, entrant, trained, tested), self.certificate(task, tested)[0]
        if mean is None:
            return False
        count = sum(
            s.sequences
            for s in self.scores
            if (s.task, s.entrant, s.trained) == (task, entrant, trained)
        )
        return mean > level + 2 * (level * (1 - level) / max(1, count)) ** 0.5


def _position(names: Sequence[str]) -> Any:
    return lambda name: (names.index(name) if name in names else len(names), name)


def summarise(scores: Sequence[Score]) -> Report:
    """Return tables and heat maps of the scores of a folder.

    Args:
        scores: The scores of finished trainings.
    """
    summary = Summary(scores)
    tables = [_certificates(summary)]
    tables += [_accuracies(summary, SHORT, tested) for tested in summary.columns]
    tables += [
        _accuracies(summary, length, length)
        for length in LENGTHS
        if any(s.trained == length and not s.certificate for s in scores)
    ]
    tables.append(_networks(summary))
    refusals = sorted({(s.entrant, s.refused) for s in scores if s.refused})
    if refusals:
        tables.append(Table(("model", "why it has no score"), refusals, text_columns=2))
    return Report(
        list(scores),
        tables,
        {
            **({"memory-benchmark": lambda: heat_map(summary)} if summary.columns else {}),
            "memory-tasks": lambda: draw_tasks(summary.tasks),
        },
    )


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def _certificates(summary: Summary) -> Table:
    """Return the scores without memory at 1,024 steps."""
    names = sorted({s.entrant for s in summary.scores if s.certificate})
    names.sort(key=_position(tuple(ENTRANTS)))
    tested = LENGTHS[1]
    rows = [
        (
            task,
            _percent(next(s.chance for s in summary.scores if s.task == task)),
            *(_percent(summary.mean(task, name, tested, tested)) for name in names),
        )
        for task in summary.tasks
    ]
    title = f"Without memory: accuracy in %, trained and tested at {tested:,} steps"
    return Table(("task", "chance", *names), rows, title)


def _accuracies(summary: Summary, trained: int, tested: int) -> Table:
    """Return the accuracies of all networks at one length; those without memory in brackets."""

    def cell(task: str, name: str) -> str:
        values = summary.values(task, name, trained, tested)
        if not values:
            return "–"
        text = _percent(fmean(values))
        if max(values) - min(values) > 0.02:
            text += f" ({_percent(min(values))} to {_percent(max(values))})"
        return text if summary.has_memory(task, name, trained, tested) else f"[{text}]"

    rows = [
        (
            task,
            _percent(summary.certificate(task, tested)[0]),
            *(cell(task, name) for name in summary.networks),
        )
        for task in summary.tasks
    ]
    origin = f"32 to {SHORT} steps" if trained == SHORT else f"{trained:,} steps"
    seeds = len({s.seed for s in summary.scores if not s.certificate and s.trained == trained})
    title = (
        f"Accuracy in % at {tested:,} steps after training at {origin}; mean of up to {seeds} "
        "seeds; in square brackets: not above the score without memory"
    )
    return Table(("task", "without memory", *summary.networks), rows, title)


def _ranks(summary: Summary, tested: int) -> dict[str, list[float]]:
    """Return the rank of every network on every task; equal scores have the mean of their ranks."""
    ranks: dict[str, list[float]] = {name: [] for name in summary.networks}
    for task in summary.tasks:
        means = {n: summary.mean(task, n, SHORT, tested) for n in summary.networks}
        values = [mean for mean in means.values() if mean is not None]
        for name, mean in means.items():
            if mean is not None:
                better = sum(value > mean for value in values)
                ranks[name].append(better + (values.count(mean) + 1) / 2)
    return ranks


def _networks(summary: Summary) -> Table:
    """Return rank, solved tasks and cost of every network, after short training."""
    columns = summary.columns
    ranks = _ranks(summary, columns[0]) if columns else {}

    def solved(name: str, tested: int) -> int:
        return sum(
            (summary.mean(task, name, SHORT, tested) or 0) >= SOLVED
            and summary.has_memory(task, name, SHORT, tested)
            for task in summary.tasks
        )

    rows = []
    for name in summary.networks:
        records = [s for s in summary.scores if s.entrant == name and s.accuracy]
        if records:
            rows.append(
                (
                    name,
                    f"{fmean(ranks[name]):.1f}" if ranks.get(name) else "–",
                    *(str(solved(name, tested)) for tested in columns),
                    f"{fmean(s.cpu_seconds for s in records):.0f}",
                    f"{fmean(s.updates for s in records):,.0f}",
                    f"{max(s.parameters for s in records):,}",
                )
            )
    header = ("model", "mean rank", *(f"solved at {n:,}" for n in columns), "CPU s", "updates")
    title = f"Networks after short training; solved: at least {100 * SOLVED:.0f} %"
    return Table((*header, "parameters"), rows, title)


def heat_map(summary: Summary) -> Any:
    """Return a figure: tasks × networks at two lengths, hatched where memory is not shown.

    Args:
        summary: The scores.
    """
    networks, tasks = summary.networks, summary.tasks
    width = 2 * (0.62 * len(networks) + 1.6)
    columns = summary.columns
    figure, axes = panels(width, 0.42 * len(tasks) + 2.2, columns=len(columns), sharey=True)
    for each, tested in zip(axes, columns, strict=True):
        for row, column in itertools.product(range(len(tasks)), range(len(networks))):
            task, name = tasks[row], networks[column]
            mean, level = summary.mean(task, name, SHORT, tested), summary.certificate(task, tested)
            above = summary.has_memory(task, name, SHORT, tested)
            fraction = (
                0.0 if mean is None else max(0.0, (mean - level[0]) / max(1e-9, 1 - level[0]))
            )
            each.add_patch(_square(column, row, fraction, above, mean is None))
            if mean is not None:
                colour = "white" if above and fraction > 0.5 else "black"
                text = f"{100 * mean:.0f}"
                each.text(column, row, text, ha="center", va="center", fontsize=8, color=colour)
        each.set_xlim(-0.5, len(networks) - 0.5)
        each.set_ylim(len(tasks) - 0.5, -0.5)
        each.set_xticks(range(len(networks)), networks, rotation=60, ha="right")
        each.set_title(f"{tested:,} steps", fontsize=10)
    axes[0].set_yticks(range(len(tasks)), tasks)
    figure.suptitle(
        "Accuracy (%) after training at 32 to 128 steps; hatched: no better than without memory",
        fontsize=10,
    )
    return figure


def _square(column: int, row: int, fraction: float, above: bool, missing: bool) -> Any:
    from matplotlib import colormaps
    from matplotlib.patches import Rectangle

    colour = colormaps["Blues"](0.1 + 0.8 * fraction) if above else "white"
    hatch = None if above or missing else "////"
    return Rectangle(
        (column - 0.5, row - 0.5), 1, 1, facecolor=colour, edgecolor="lightgrey", hatch=hatch
    )


def draw_tasks(tasks: Sequence[str] = TASKS, steps: int = 64) -> Any:
    """Return a figure with one short sequence of every task, its marks and its answer.

    Args:
        tasks: Names of tasks.
        steps: Length of the sequences.
    """
    figure, axes = panels(11, 1.05 * -(-len(tasks) // 2) + 0.4, columns=2, rows=-(-len(tasks) // 2))
    for each, name in itertools.zip_longest(axes, tasks):
        if name is None:
            each.axis("off")
            continue
        task = task_registry[name](test_lengths=(steps,), sequences=1)
        batch = task.test_tasks()[f"{steps} steps"].batch("test", 0, 1)
        values = batch.inputs[:, 0].T.numpy()
        each.imshow(values, aspect="auto", cmap="Greys", interpolation="nearest")
        if hasattr(task, "symbols"):
            marks = values[task.symbols].nonzero()[0]
            each.plot(marks, values[: task.symbols, marks].argmax(0), "o", ms=4, color="tab:red")
        each.axvline(steps / 2 - 0.5, color="tab:blue", lw=0.8)
        each.set_yticks([])
        each.tick_params(labelsize=6)
        each.set_title(f"{name}: answer {int(batch.targets[0])}", fontsize=8, loc="left", pad=2)
    return figure


def paper(report: Report) -> str:
    """Return a short paper about the benchmark, with the tables of a folder.

    Args:
        report: The report of the folder.
    """
    text = files("undamped.lab.benchmarks").joinpath("memory_paper.md").read_text(encoding="utf-8")
    networks = [score for score in report.records if not score.certificate]
    values = {
        "date": f"{date.today():%-d %B %Y}",
        "seconds": f"{max((score.cpu_seconds for score in networks), default=0):.0f}",
        "trained": ", ".join(f"{n:,}" for n in sorted({score.trained for score in networks})),
        "sequences": f"{max((score.sequences for score in networks), default=0):,}",
        "tables": report.markdown().strip(),
    }
    for name, value in values.items():
        text = text.replace(f"{{{{{name}}}}}", value)
    return text
