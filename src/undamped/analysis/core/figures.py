"""Parts of a figure: a colour palette, lines and points (`Style`), title and axes (`Layout`).

A trace is the dictionary that plotly uses, because the HTML page, the plotly figure and the image
file are all made from it. Its `meta` is the index of its model; a page switches traces off by it.

The colours are those of Okabe and Ito, which remain distinguishable with the common kinds of
colour blindness. Lines also differ in their dashes, so that they can be printed in grey.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from undamped._base.packages import require

Trace = dict[str, Any]

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F", "#B59F00")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
MARKERS = ("circle", "diamond", "square", "cross", "triangle-up", "x", "star", "hexagon")
MAX_POINTS = 1500
"""Points of a line in a figure of several models; more would make a page of ten runs too large."""
NO_MODEL = -1
"""The `meta` of a trace that belongs to no model, such as the unit circle."""


def line_style(index: int) -> dict[str, Any]:
    """Return colour and dash of line `index`; the first 24 lines all differ."""
    return {"color": PALETTE[index % len(PALETTE)], "dash": DASHES[index % len(DASHES)], "width": 2}


@dataclass(frozen=True)
class Style:
    """How the result of one model is drawn in a figure.

    Args:
        index: Index of the model among those in the figure.
        name: Name of the model in the legend; empty where the figure has a single model.
    """

    index: int = 0
    name: str = ""

    @property
    def single(self) -> bool:
        """Whether the figure has a single model, so that details can be drawn."""
        return not self.name

    def line(self, x: Any, y: Any, label: str, color: int = 0, **more: Any) -> Trace:
        """Return a line.

        Args:
            x: Horizontal coordinates.
            y: Values; those that are not finite leave a gap.
            label: Name of the line in a figure of a single model.
            color: Index of its colour and dash in a figure of a single model; with several models
                all lines of a model look the same.
            more: Further entries of plotly's trace.
        """
        style = line_style(color if self.single else self.index)
        x, y = list(x), rounded(y)
        if not self.single and len(x) > MAX_POINTS:
            indices = np.unique(np.linspace(0, len(x) - 1, MAX_POINTS).round().astype(int))
            x, y = [x[i] for i in indices], [y[i] for i in indices]
        line = {**style, **more.pop("line", {})}
        mode = more.pop("mode", "lines")
        return self._trace(label, mode=mode, x=rounded(x), y=y, line=line, **more)

    def points(self, x: Any, y: Any, label: str, color: int = 0, **more: Any) -> Trace:
        """Return points without a line; see `line`."""
        index = color if self.single else self.index
        marker = {
            "color": line_style(index)["color"],
            "symbol": MARKERS[index % len(MARKERS)],
            "size": 7,
            "opacity": 0.75,
            **more.pop("marker", {}),
        }
        mode = more.pop("mode", "markers")
        return self._trace(label, mode=mode, x=rounded(x), y=rounded(y), marker=marker, **more)

    def band(self, x: Any, low: Any, high: Any, label: str) -> Trace:
        """Return the area between two lines."""
        color = line_style(0 if self.single else self.index)["color"]
        red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
        across, bottom, top = rounded(x), rounded(low), rounded(high)
        return self._trace(
            label,
            mode="lines",
            x=[*across, *reversed(across)],
            y=[*top, *reversed(bottom)],
            fill="toself",
            fillcolor=f"rgba({red},{green},{blue},0.18)",
            line={"color": color, "width": 0},
            hoverinfo="skip",
        )

    def heatmap(self, z: Any, label: str, **more: Any) -> Trace:
        """Return the entries of a matrix as colours.

        Args:
            z: The matrix; entries that are not finite are left blank.
            label: Title of the colour bar.
            more: Further entries of plotly's trace, such as `x`, `y`, `zmin` and `zmax`.
        """
        return {
            "type": "heatmap",
            "z": [rounded(row) for row in z],
            "colorscale": "Cividis",
            "colorbar": {"title": {"text": label}},
            "meta": self.index,
            **more,
        }

    def _trace(self, label: str, **entries: Any) -> Trace:
        name = label if self.single else self.name
        return {"type": "scatter", "name": html.escape(name), "meta": self.index, **entries}


@dataclass(frozen=True)
class Layout:
    """Title, axes and caption of an instrument's figure, the same for all models in it.

    Args:
        title: Title of the figure.
        x: Label of the horizontal axis, with its unit.
        y: Label of the vertical axis, with its unit.
        caption: One sentence that explains the figure.
        log_x: Whether the horizontal axis is logarithmic.
        log_y: Whether the vertical axis is logarithmic.
        decades: Number of decades below the maximum that are visible at first; all by default.
        y_range: Limits of the vertical axis; by default those of the data.
        equal: Whether both axes have the same scale.
        downwards: Whether the vertical axis runs from top to bottom, like the rows of a matrix.
        legend: Whether the figure has a legend.
        background: Traces that are drawn once, independent of the number of models.
    """

    title: str
    x: str
    y: str
    caption: str = ""
    log_x: bool = False
    log_y: bool = False
    decades: float | None = None
    y_range: tuple[float, float] | None = None
    equal: bool = False
    downwards: bool = False
    legend: bool = True
    background: tuple[Trace, ...] = ()

    def axes(self, traces: Sequence[Trace]) -> dict[str, Any]:
        """Return both axes in plotly's format, for the traces that will be drawn."""
        across: dict[str, Any] = {"title": {"text": self.x}}
        upwards: dict[str, Any] = {"title": {"text": self.y}}
        if self.log_x:
            across["type"] = "log"
        if self.log_y:
            upwards |= {"type": "log", "exponentformat": "power", **_decades(traces, self.decades)}
        if self.y_range is not None:
            upwards["range"] = list(self.y_range)
        if self.equal:
            upwards |= {"scaleanchor": "x", "scaleratio": 1}
        if self.downwards:
            upwards["autorange"] = "reversed"
        return {"xaxis": across, "yaxis": upwards}


def new_figure(layout: Layout, traces: Sequence[Trace] = ()) -> Any:
    """Return a plotly figure of traces with a title, labelled axes and a caption below."""
    require("a figure", "plotly")
    from plotly import graph_objects

    figure = graph_objects.Figure()
    figure.update_layout(
        title={"text": layout.title},
        template="plotly_white",
        margin={"t": 60, "b": 110, "l": 70, "r": 20},
        showlegend=layout.legend,
        **layout.axes(traces),
    )
    figure.add_traces(list(traces))
    figure.add_annotation(
        text=layout.caption,
        xref="paper",
        yref="paper",
        x=0,
        y=-0.28,
        xanchor="left",
        yanchor="bottom",
        showarrow=False,
        font={"size": 12},
        align="left",
    )
    return figure


def add_line(figure: Any, x: Any, y: Any, name: str, index: int = 0) -> None:
    """Add a line to a plotly figure, in the colour and dash of line `index`."""
    figure.add_scatter(x=list(x), y=list(y), name=name, mode="lines", line=line_style(index))


def _decades(traces: Sequence[Trace], visible: float | None) -> dict[str, Any]:
    """Return tick spacing of a logarithmic axis, and its range if not all decades are visible."""
    values = [v for trace in traces for v in trace.get("y", ()) if v is not None and v > 0]
    if not values:
        return {}
    top, bottom = np.log10(max(values)), np.log10(min(values))
    span = top - bottom
    if span < 2:
        return {"dtick": "D2", "tickformat": ".3~g"}
    axis: dict[str, Any] = {"dtick": 1} if span < 10 else {}
    if visible is not None and span > visible:
        axis["range"] = [float(top - visible), float(top + 0.5)]
    return axis


def circle() -> Trace:
    """Return the unit circle |z| = 1 as a trace that belongs to no model."""
    angle = np.linspace(0, 2 * np.pi, 181)
    return reference(np.cos(angle), np.sin(angle), "unit circle")


def reference(x: Any, y: Any, label: str) -> Trace:
    """Return a thin grey line to compare with, as a trace that belongs to no model."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": label,
        "x": rounded(x),
        "y": rounded(y),
        "line": {"color": "#7F7F7F", "width": 1},
        "hoverinfo": "skip",
        "meta": NO_MODEL,
    }


def rounded(values: Iterable[Any]) -> list[float | int | None]:
    """Return numbers with six digits, as JSON; None where a value is None or not finite."""
    return [None if value is None else _round(value) for value in values]


def _round(value: Any) -> float | int | None:
    if isinstance(value, int | np.integer):
        return int(value)
    value = float(value)
    return float(f"{value:.6g}") if np.isfinite(value) else None


def positive(values: Iterable[float]) -> list[float | None]:
    """Return values for a logarithmic axis: those that are not positive become None."""
    return [float(value) if value > 0 else None for value in values]
