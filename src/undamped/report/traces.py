"""The plots of a page as plain dictionaries, one trace per model, in the style of our figures."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import numpy as np

from undamped.analysis.core.figures import line_style
from undamped.report.data import ModelReport

MOST_POINTS = 1500
MARKERS = ("circle", "diamond", "square", "cross", "triangle-up", "x", "star", "hexagon")
Trace = dict[str, Any]


def number(value: float) -> float | None:
    """Return a number with six digits, which no eye can tell from more, or null."""
    return float(f"{value:.6g}") if np.isfinite(value) else None


def numbers(values: Any) -> list[float | None]:
    """Return a list of numbers for JSON."""
    return [number(float(value)) for value in values]


def thinned(length: int) -> np.ndarray:
    """Return the places of at most `MOST_POINTS` points, the first and the last among them."""
    if length <= MOST_POINTS:
        return np.arange(length)
    return np.unique(np.linspace(0, length - 1, MOST_POINTS).round().astype(int))


def label(name: str) -> str:
    """Return a name as plotly should print it: as text, never as markup."""
    return html.escape(name)


def _line(index: int, report: ModelReport, x: Any, y: Any, **extra: Any) -> Trace:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": label(report.name),
        "x": x,
        "y": y,
        "line": line_style(index),
        "meta": index,
        **extra,
    }


def gradient_traces(reports: Sequence[ModelReport]) -> list[Trace]:
    """Norm of the gradient against the step; zeros cannot stand on a log axis."""
    traces = []
    for index, report in enumerate(reports):
        flow = report.gradient_flow
        if flow is None:
            continue
        places = thinned(flow.length)
        y = [v if v else None for v in numbers(flow.norms[places])]
        traces.append(_line(index, report, flow.steps[places].tolist(), y))
    return traces


def visible_decades(drawn: Sequence[Trace], decades: float = 12.0) -> dict[str, Any]:
    """Return the range of a log axis that shows the top decades; what lies below is lost anyway."""
    values = [v for trace in drawn for v in trace["y"] if v]
    if not values:
        return {}
    top, bottom = np.log10(max(values)), np.log10(min(values))
    if top - bottom <= decades:
        return {}
    return {"range": [float(top - decades), float(top + 0.5)]}


def decade_ticks(drawn: Sequence[Trace]) -> dict[str, Any]:
    """Return ticks of a log axis that do not crowd: whole decades, or 1, 2 and 5 of them."""
    values = [v for trace in drawn for v in trace["y"] if v and v > 0]
    decades = np.log10(max(values) / min(values)) if values else 0.0
    if decades < 2:
        return {"dtick": "D2", "tickformat": ".3~g"}
    return {"dtick": 1} if decades < 10 else {}


def recall_traces(reports: Sequence[ModelReport]) -> list[Trace]:
    """Explained share against the delay."""
    return [
        _line(i, r, list(range(len(r.recall.scores))), numbers(r.recall.scores))
        for i, r in enumerate(reports)
        if r.recall is not None
    ]


def spectrum_traces(reports: Sequence[ModelReport]) -> list[Trace]:
    """Eigenvalues on the complex plane, with the unit circle first."""
    angle = np.linspace(0, 2 * np.pi, 181)
    found = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": label(report.name),
            "x": numbers(report.spectrum.eigenvalues.real),
            "y": numbers(report.spectrum.eigenvalues.imag),
            "marker": {
                "color": line_style(index)["color"],
                "symbol": MARKERS[index % len(MARKERS)],
                "size": 7,
                "opacity": 0.75,
            },
            "meta": index,
        }
        for index, report in enumerate(reports)
        if report.spectrum is not None
    ]
    circle = {
        "type": "scatter",
        "mode": "lines",
        "name": "unit circle",
        "x": numbers(np.cos(angle)),
        "y": numbers(np.sin(angle)),
        "line": {"color": "#7F7F7F", "width": 1},
        "hoverinfo": "skip",
        "meta": -1,
    }
    return [circle, *found] if found else []


def ode_gradient_traces(reports: Sequence[ModelReport]) -> list[Trace]:
    """Error of the gradient against seconds, a marker for every way; the text names the way."""
    traces = []
    for index, report in enumerate(reports):
        if report.ode_gradients is None or not report.ode_gradients.ways:
            continue
        ways = report.ode_gradients.ways
        traces.append(
            {
                "type": "scatter",
                "mode": "markers+text",
                "name": label(report.name),
                "x": numbers(way.seconds for way in ways),
                "y": [number(max(way.error, 1e-17)) for way in ways],
                "text": [f"{way.name}, keeps {way.saved_bytes / 1e6:.2g} MB" for way in ways],
                "textposition": "top center",
                "cliponaxis": False,
                "marker": {
                    "color": line_style(index)["color"],
                    "symbol": MARKERS[index % len(MARKERS)],
                    "size": 11,
                },
                "meta": index,
            }
        )
    return traces


def cost_traces(reports: Sequence[ModelReport]) -> list[Trace]:
    """Seconds against length."""
    return [
        _line(i, r, r.cost.lengths.tolist(), numbers(r.cost.seconds), mode="lines+markers")
        for i, r in enumerate(reports)
        if r.cost is not None and len(r.cost.lengths)
    ]


def curve_traces(reports: Sequence[ModelReport], column: str, faint: bool = False) -> list[Trace]:
    """One column of the training curves against the step."""
    traces = []
    for index, report in enumerate(reports):
        rows = [row for row in report.curve if column in row and "step" in row]
        if not rows:
            continue
        places = thinned(len(rows))
        x = [int(rows[i]["step"]) for i in places]
        y = numbers(rows[i][column] for i in places)
        name = label(f"{report.name}, {column.replace('_', ' ')}")
        trace = _line(index, report, x, y, name=name)
        if faint:
            trace |= {"line": {**trace["line"], "dash": "dot", "width": 1}, "opacity": 0.7}
        traces.append(trace)
    return traces


def curve_columns(reports: Sequence[ModelReport]) -> list[str]:
    """Return the columns of all training curves, without the step, in order of appearance."""
    names = (name for report in reports for row in report.curve for name in row)
    return [name for name in dict.fromkeys(names) if name not in ("step", "epoch", "seconds")]
