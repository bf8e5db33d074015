"""Image files of figures: the traces and the layout of results, drawn with matplotlib."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from undamped._base.errors import OptionError
from undamped._base.packages import require
from undamped.analysis.core.figures import Layout, Trace
from undamped.analysis.core.result import Result, layout_and_traces

KINDS = (".png", ".svg", ".pdf")
DASHES = {
    "solid": "-",
    "dash": (0, (5, 2)),
    "dot": (0, (1, 1.5)),
    "dashdot": (0, (5, 1.5, 1, 1.5)),
    "longdash": (0, (9, 3)),
    "longdashdot": (0, (9, 2, 1, 2)),
}
SYMBOLS = {
    "circle": "o",
    "diamond": "D",
    "square": "s",
    "cross": "P",
    "triangle-up": "^",
    "x": "X",
    "star": "*",
    "hexagon": "h",
}


def draw(results: Mapping[str, Result], path: Path) -> None:
    """Draw results of one instrument, by the name of their model, into an image file."""
    require("a figure file", "matplotlib")
    import matplotlib
    from matplotlib.figure import Figure

    if path.suffix not in KINDS:
        raise OptionError(f"The name of a figure file ends in {', '.join(KINDS)}, got {path}.")
    if not path.parent.is_dir():
        raise OptionError(f"No such folder: {path.parent}")
    layout, traces = layout_and_traces(results)
    figure = Figure(figsize=(7, 4), dpi=110, layout="constrained")
    axes = figure.add_subplot()
    for trace in traces:
        _add(figure, axes, trace)
    _add_axes(axes, layout, traces)
    # Without a date and with fixed ids, the same numbers give the same file.
    with matplotlib.rc_context({"svg.hashsalt": path.stem}):
        meta = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(path, format=path.suffix[1:], metadata=meta)


def _add(figure: Any, axes: Any, trace: Trace) -> None:
    x, y = (_values(trace.get(axis)) for axis in "xy")
    label = html.unescape(trace.get("name") or "")
    if label in axes.get_legend_handles_labels()[1]:
        label = ""  # a line that several models share has one entry in the legend
    match trace["type"]:
        case "heatmap":
            mesh = axes.pcolormesh(
                *_grid(x, y, trace["z"]),
                cmap="cividis",
                shading="auto",
                vmin=trace.get("zmin"),
                vmax=trace.get("zmax"),
            )
            figure.colorbar(mesh, label=trace.get("colorbar", {}).get("title", {}).get("text", ""))
            for i, row in enumerate(trace.get("text", ())):
                for j, text in enumerate(row):
                    color = "black" if (trace["z"][i][j] or 0) > 0.55 else "white"
                    axes.text(j, i, text, ha="center", va="center", color=color, fontsize=7)
        case "contour":
            levels = [trace["contours"]["start"]]
            axes.contour(*_grid(x, y, trace["z"]), levels, colors=[trace["line"]["color"]])
        case "bar":
            width = 0.9 * (x[1] - x[0]) if len(x) > 1 else 0.8
            axes.bar(x, y, width, color=trace["marker"]["color"], label=label)
        case _ if trace.get("fill") == "toself":
            axes.fill(x, y, color=trace["line"]["color"], alpha=0.18, linewidth=0)
        case _:
            _scatter(axes, trace, x, y, label)


def _scatter(axes: Any, trace: Trace, x: Any, y: Any, label: str) -> None:
    line, marker = trace.get("line", {}), trace.get("marker", {})
    lines, dots = "lines" in trace["mode"], "markers" in trace["mode"]
    axes.plot(
        x,
        y,
        color=line.get("color") or marker.get("color"),
        linestyle=DASHES[line.get("dash", "solid")] if lines else "none",
        linewidth=0.8 * line.get("width", 2),
        marker=SYMBOLS.get(marker.get("symbol", "circle"), "o") if dots else None,
        markersize=0.7 * marker.get("size", 6),
        alpha=trace.get("opacity", 1.0),
        label=label or None,
    )
    for x_k, y_k, text in zip(x, y, trace.get("text", ()), strict=False):
        axes.annotate(text, (x_k, y_k), textcoords="offset points", xytext=(4, 4), fontsize=8)


def _add_axes(axes: Any, layout: Layout, traces: list[Trace]) -> None:
    axes.set_title(layout.title, fontsize=11, loc="left")
    axes.set_xlabel(f"{layout.x}\n\n{textwrap.fill(layout.caption, 100)}", fontsize=9)
    axes.set_ylabel(layout.y, fontsize=9)
    if layout.log_x:
        axes.set_xscale("log")
    if layout.log_y:
        axes.set_yscale("log")
        exponents = layout.axes(traces)["yaxis"].get("range")
        if exponents:
            axes.set_ylim(10 ** exponents[0], 10 ** exponents[1])
    elif layout.y_range is not None:
        axes.set_ylim(*layout.y_range)
    if layout.equal:
        axes.set_aspect("equal", adjustable="datalim")
    if layout.downwards:
        axes.invert_yaxis()
    if layout.legend and axes.get_legend_handles_labels()[1]:
        axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _values(values: Any) -> Any:
    return np.array([np.nan if v is None else v for v in (() if values is None else values)])


def _grid(x: Any, y: Any, z: Any) -> tuple[Any, Any, Any]:
    heights = np.array([[np.nan if v is None else v for v in row] for row in z], dtype=float)
    across = x if len(x) else np.arange(heights.shape[1])
    upwards = y if len(y) else np.arange(heights.shape[0])
    return across, upwards, heights
