"""How one result is drawn, alone or among those of other models: colours, dashes, symbols, names.

A trace is plotly's own dictionary, since the page, a plotly figure and a picture file are all made
from it. Its `meta` is the number of the model it belongs to, by which a page switches it off.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from undamped.analysis.core.figures import line_style

Trace = dict[str, Any]

MARKERS = ("circle", "diamond", "square", "cross", "triangle-up", "x", "star", "hexagon")
MOST_POINTS = 1500
"""A line among others has no more points than this, or a page of ten runs would be too large."""
NOBODY = -1
"""The `meta` of a trace that belongs to no model, such as the unit circle."""


@dataclass(frozen=True)
class Style:
    """The place of a result in a picture.

    Args:
        index: Number of the model among those in the picture.
        name: What the model is called there; none where its result is drawn alone.
    """

    index: int = 0
    name: str = ""

    @property
    def alone(self) -> bool:
        """Whether there is no other model in the picture, so that details have room."""
        return not self.name

    def line(self, x: Any, y: Any, label: str, part: int = 0, **more: Any) -> Trace:
        """Return a line.

        Args:
            x: Where its points are.
            y: Their values; those that are not finite leave a gap.
            label: What it is called in a picture of one model.
            part: Which of several lines of this result it is; alone, each has its own colour.
            more: Further entries of plotly's trace.
        """
        style = line_style(part if self.alone else self.index)
        x, y = list(x), numbers(y)
        if not self.alone and len(x) > MOST_POINTS:
            kept = np.unique(np.linspace(0, len(x) - 1, MOST_POINTS).round().astype(int))
            x, y = [x[i] for i in kept], [y[i] for i in kept]
        line = {**style, **more.pop("line", {})}
        mode = more.pop("mode", "lines")
        return self._trace(label, mode=mode, x=numbers(x), y=y, line=line, **more)

    def points(self, x: Any, y: Any, label: str, part: int = 0, **more: Any) -> Trace:
        """Return points without a line; see `line`."""
        at = part if self.alone else self.index
        marker = {
            "color": line_style(at)["color"],
            "symbol": MARKERS[at % len(MARKERS)],
            "size": 7,
            "opacity": 0.75,
            **more.pop("marker", {}),
        }
        mode = more.pop("mode", "markers")
        return self._trace(label, mode=mode, x=numbers(x), y=numbers(y), marker=marker, **more)

    def band(self, x: Any, low: Any, high: Any, label: str, part: int = 0) -> Trace:
        """Return the area between two lines."""
        colour = line_style(part if self.alone else self.index)["color"]
        there, bottom, top = numbers(x), numbers(low), numbers(high)
        return self._trace(
            label,
            mode="lines",
            x=[*there, *reversed(there)],
            y=[*top, *reversed(bottom)],
            fill="toself",
            fillcolor=_transparent(colour),
            line={"color": colour, "width": 0},
            hoverinfo="skip",
        )

    def _trace(self, label: str, **entries: Any) -> Trace:
        name = label if self.alone else self.name
        return {"type": "scatter", "name": html.escape(name), "meta": self.index, **entries}


def number(value: float) -> float | int | None:
    """Return a number with six digits, which no eye can tell from more, or null."""
    if isinstance(value, int | np.integer):
        return int(value)
    value = float(value)
    return float(f"{value:.6g}") if np.isfinite(value) else None


def numbers(values: Iterable[Any]) -> list[float | int | None]:
    """Return a list of numbers for JSON; null stays null."""
    return [None if value is None else number(value) for value in values]


def positive(values: Iterable[float]) -> list[float | None]:
    """Return what can stand on an axis of decades: zeros become gaps."""
    return [float(value) if value > 0 else None for value in values]


def _transparent(colour: str) -> str:
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.18)"
