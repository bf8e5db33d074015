"""A picture of accuracies: a row for every set, a mark for every network, crosses for a guess."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

MARKS = "osD^vP*X"


def accuracy_marks(
    rows: Sequence[str],
    networks: Mapping[str, Sequence[float]],
    beside: Mapping[str, tuple[str, Sequence[float]]],
    title: str,
) -> Any:
    """Return the picture.

    Args:
        rows: What stands beside every row.
        networks: Accuracies of each network, one for every row.
        beside: What they are compared with: a mark, and accuracies.
        title: What stands above.
    """
    from matplotlib.figure import Figure

    from undamped.analysis.core.figures import PALETTE

    figure = Figure(figsize=(8, 0.42 * len(rows) + 2.0), layout="constrained")
    axes = figure.subplots()
    places = list(range(len(rows)))[::-1]
    for number, (name, accuracy) in enumerate(networks.items()):
        percent = [100 * value for value in accuracy]
        mark, colour = MARKS[number % len(MARKS)], PALETTE[number % len(PALETTE)]
        axes.plot(percent, places, mark, color=colour, label=name)
    for name, (mark, accuracy) in beside.items():
        percent = [100 * value for value in accuracy]
        axes.plot(percent, places, mark, color="black", ms=12, label=name)
    axes.set_yticks(places, list(rows))
    axes.set_xlim(0, 103)
    axes.set_xlabel("test accuracy (%)")
    axes.set_title(title, fontsize=10)
    axes.grid(axis="y", alpha=0.3)
    # Beside the picture: low accuracies would be under it.
    axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure
