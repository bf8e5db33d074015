"""Models ranked over several files of recordings."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from rich.table import Table

from undamped._base.registry import models, tasks
from undamped.lab.cli.screen import console
from undamped.lab.data.recordings.read import is_data_path
from undamped.lab.tasks.task import Task


def files_of(words: list[str]) -> tuple[list[str], list[str]]:
    """Return the files at the beginning of a command's words, and the other words.

    Args:
        words: Files or a task, models, and settings.
    """
    names = [word for word in words if "=" not in word]
    files = []
    for name in names:
        if name in tasks or name in models or not is_data_path(name):
            break
        files.append(name)
    return files, [word for word in words if word not in files]


def summary_of(results: Mapping[str, tuple[Task, list[dict[str, Any]]]]) -> dict[str, Any]:
    """Return mean ranks, and how often each model was better than each other one.

    Files on which a model failed are not counted.

    Args:
        results: The task of each file, and a row for each model.
    """
    from scipy.stats import rankdata

    names: list[str] = []
    ranks: list[list[float]] = []
    scores: list[list[float]] = []
    for task, rows in results.values():
        names = [row["model"] for row in rows]
        split = next(iter(task.test_parts()), "valid")
        if not all(split in row for row in rows):
            continue
        sign = -1.0 if task.higher_is_better else 1.0
        scores.append([sign * row[split]["mean"] for row in rows])
        ranks.append(list(rankdata([round(score, 12) for score in scores[-1]])))
    if not ranks:
        return {"files_ranked": 0, "rank": {}, "better": {}}
    return {
        "files_ranked": len(ranks),
        "rank": {n: statistics.fmean(row[i] for row in ranks) for i, n in enumerate(names)},
        "better": {
            first: {
                second: sum(row[i] < row[j] for row in scores)
                for j, second in enumerate(names)
                if i != j
            }
            for i, first in enumerate(names)
        },
    }


def print_ranks(ranks: dict[str, Any]) -> None:
    """Print mean ranks, the best first, and how often a model was better than another.

    Args:
        ranks: The result of `summary_of`.
    """
    order = sorted(ranks["rank"], key=ranks["rank"].__getitem__)
    title = f"{ranks['files_ranked']} files: mean rank (1 is best), and how often better than"
    table = Table(title=title, title_justify="left")
    table.add_column("model")
    for column in ("mean rank", *order):
        table.add_column(column, justify="right")
    for name in order:
        wins = [str(ranks["better"][name].get(second, "")) for second in order]
        table.add_row(name, f"{ranks['rank'][name]:.2f}", *wins)
    console().print(table)
