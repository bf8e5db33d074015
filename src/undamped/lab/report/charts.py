"""Matplotlib figures that experiments and benchmarks share: panels, lines, bars and markers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from undamped.analysis.core.figures import PALETTE

DASHES = ("-", "--", "-.", ":")
MARKERS = "osD^vP*X"
BLACK_LINE = {"color": "black", "linewidth": 1, "linestyle": ":"}
"""The style of reference lines, such as the score of a naive baseline."""


def line_style(index: int) -> dict[str, Any]:
    """Return matplotlib's colour and dash of line number `index`."""
    return {"color": colour(index), "linestyle": DASHES[index % len(DASHES)]}


def colour(index: int) -> str:
    """Return colour number `index` of the palette."""
    return PALETTE[index % len(PALETTE)]


def panels(width: float, height: float, columns: int = 1, rows: int = 1, **options: Any) -> Any:
    """Return a new figure and its axes, row by row in one list.

    Args:
        width: In inches.
        height: In inches.
        columns: Panels beside each other.
        rows: Panels above each other.
        options: Further options of `Figure.subplots`, for example `sharex`.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False, **options).ravel())


def label(
    axes: Any, x: str = "", y: str = "", title: str = "", *, log: str = "", legend: bool = True
) -> None:
    """Label axes and add the legend.

    Args:
        axes: The axes; several can be given as a list.
        x: Label of the horizontal axis, with its unit.
        y: Label of the vertical axis, with its unit.
        title: What the panel shows.
        log: The axes with a logarithmic scale: "x", "y" or "xy".
        legend: Whether to add a legend, if something has a label.
    """
    if isinstance(axes, list):
        for each in axes:
            label(each, x, y, title, log=log, legend=legend)
        return
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_title(title, fontsize=10)
    if "x" in log:
        axes.set_xscale("log")
    if "y" in log:
        axes.set_yscale("log")
    if legend and axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize="small")


def draw_lines(axes: Any, lines: Mapping[str, tuple[Iterable[Any], Iterable[Any]]]) -> None:
    """Draw curves in distinguishable styles, each with its name in the legend.

    Args:
        axes: Where to draw.
        lines: Horizontal and vertical values by name.
    """
    for index, (name, (x, y)) in enumerate(lines.items()):
        axes.plot(list(x), list(y), label=name, **line_style(index))


def marker_chart(
    rows: Sequence[str],
    scores: Mapping[str, Sequence[float]],
    baselines: Mapping[str, tuple[str, Sequence[float]]],
    title: str,
) -> Any:
    """Return a figure of accuracies: a row for every dataset, a marker for every model.

    Args:
        rows: Names of the datasets.
        scores: Accuracies of each model, one for every row.
        baselines: Marker and accuracies of each baseline.
        title: What the figure shows.
    """
    figure, (axes,) = panels(8, 0.42 * len(rows) + 2.0)
    heights = list(range(len(rows)))[::-1]
    for number, (name, values) in enumerate(scores.items()):
        marker = MARKERS[number % len(MARKERS)]
        axes.plot([100 * v for v in values], heights, marker, color=colour(number), label=name)
    for name, (marker, values) in baselines.items():
        axes.plot([100 * v for v in values], heights, marker, color="black", ms=12, label=name)
    label(axes, "test accuracy (%)", title=title, legend=False)
    axes.set_yticks(heights, list(rows))
    axes.set_xlim(0, 103)
    axes.grid(axis="y", alpha=0.3)
    # Outside of the axes, where no marker of a low accuracy is covered.
    axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def bar_chart(
    bars: Mapping[str, Mapping[str, float]],
    x: str,
    title: str = "",
    *,
    log: bool = False,
    limits: Mapping[str, float] | None = None,
) -> Any:
    """Return a figure of horizontal bars, the first candidate at the top.

    Args:
        bars: For every kind of bar, a value by candidate; kinds are drawn over each other.
        x: Label of the values, with their unit.
        title: What the figure shows.
        log: Whether values are decades apart.
        limits: Values to mark by a vertical line, by their name in the legend.
    """
    names = list(dict.fromkeys(name for values in bars.values() for name in values))
    figure, (axes,) = panels(7, 1.2 + 0.25 * len(names))
    heights = {name: len(names) - number for number, name in enumerate(names)}
    for index, (kind, values) in enumerate(bars.items()):
        positions = [heights[name] for name in values]
        axes.barh(positions, list(values.values()), color=colour(index), label=kind or None)
    for name, value in (limits or {}).items():
        axes.axvline(value, color="#bbbbbb", label=name)
    axes.set_yticks(list(heights.values()), names, fontsize=7)
    label(axes, x, title=title, log="x" if log else "")
    return figure
