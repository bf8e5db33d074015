"""What a race of models came to, as a table."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from undamped.lab.cli.screen import duration, metric_name, number
from undamped.lab.tasks.task import Task
from undamped.lab.training.portfolio.attempt import in_short


def tried_table(tried: list[dict[str, Any]], task: Task) -> Table:
    """Return a row for every model that was tried, and a word about those that were not.

    Args:
        tried: What run.json remembers of a race.
        task: The task.
    """
    table = Table(title="What was tried, on validation data", title_justify="left")
    table.add_column("model", no_wrap=True)
    # Means over different numbers of draws do not compare; what all have seen does.
    uneven = len({one["draws"] for one in tried if "why_not" not in one}) > 1
    first = ["first draw"] if uneven else []
    for column in (metric_name(task), "draws", *first, "parameters", "steps", "time"):
        table.add_column(column, justify="right", no_wrap=True)
    left_out: dict[str, list[str]] = {}
    for one in tried:
        if "why_not" in one:
            left_out.setdefault(in_short(one["why_not"]), []).append(one["model"])
            continue
        table.add_row(
            one["model"],
            number(one["score"], task),
            str(one["draws"]),
            *([number(one["valid"], task)] if uneven else []),
            f"{one['parameters']:,}",
            f"{one['steps']:,}" if one["steps"] else "–",
            duration(one["seconds"]),
        )
    lines = ["Two models are compared on the draws that both have seen."] if uneven else []
    lines += [f"Not tried: {', '.join(names)}: {why}" for why, names in left_out.items()]
    if lines:
        table.caption = "\n".join(lines)
        table.caption_justify = "left"
    return table
