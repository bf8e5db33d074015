"""What stands around the lines of a picture: title, axes with their units, one sentence to see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from undamped.analysis.core.style import NOBODY, Trace, numbers


@dataclass(frozen=True)
class Layout:
    """The frame of an instrument's picture, the same for every model in it.

    Args:
        title: What is drawn.
        x: Label of the horizontal axis, with its unit.
        y: Label of the vertical axis, with its unit.
        caption: One sentence that says what to see.
        log_x: Whether the horizontal axis counts in decades.
        log_y: Whether the vertical axis counts in decades.
        decades: How many decades from the top are shown at first, if not all.
        y_range: First and last value of the vertical axis, if not those of the data.
        equal: Whether both axes have the same scale.
        downwards: Whether the vertical axis runs from top to bottom, as rows of a matrix do.
        legend: Whether the lines are named beside the picture.
        background: Traces that are there once, however many models there are.
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
        """Return both axes as plotly takes them, for the traces that will be drawn."""
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


def _decades(traces: Sequence[Trace], shown: float | None) -> dict[str, Any]:
    """Return ticks of a log axis that do not crowd, and the range of its top decades."""
    values = [v for trace in traces for v in trace.get("y", ()) if v is not None and v > 0]
    if not values:
        return {}
    top, bottom = np.log10(max(values)), np.log10(min(values))
    span = top - bottom
    if span < 2:
        return {"dtick": "D2", "tickformat": ".3~g"}
    axis: dict[str, Any] = {"dtick": 1} if span < 10 else {}
    if shown is not None and span > shown:
        axis["range"] = [float(top - shown), float(top + 0.5)]
    return axis


def circle() -> Trace:
    """Return |z| = 1 as a trace that belongs to no model."""
    angle = np.linspace(0, 2 * np.pi, 181)
    return reference(np.cos(angle), np.sin(angle), "unit circle")


def reference(x: Any, y: Any, label: str) -> Trace:
    """Return a thin grey line to compare with, which belongs to no model."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": label,
        "x": numbers(x),
        "y": numbers(y),
        "line": {"color": "#7F7F7F", "width": 1},
        "hoverinfo": "skip",
        "meta": NOBODY,
    }
