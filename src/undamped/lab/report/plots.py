"""The plots of a page as plain dictionaries: training curves, and what the instruments draw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from undamped._base.registry import instruments
from undamped.analysis.core.layout import Layout
from undamped.analysis.core.style import Style, Trace
from undamped.lab.report.model_report import ModelReport

CURVES = 20
"""Where the training curves stand among the instruments."""


def plots(reports: Sequence[ModelReport]) -> list[dict[str, Any]]:
    """Return the plots that have something to show, in the order of the page."""
    found = [
        (instruments[name].place, drawn)
        for name in in_order(reports)
        if (drawn := _instrument(name, reports)) is not None
    ]
    found += [(CURVES, drawn) for drawn in _curves(reports)]
    return [drawn for _, drawn in sorted(found, key=lambda pair: pair[0])]


def in_order(reports: Sequence[ModelReport]) -> list[str]:
    """Return the names of the instruments that found something, in the order of the page."""
    names = dict.fromkeys(name for report in reports for name in report.results)
    return sorted(names, key=lambda name: instruments[name].place)


def _instrument(name: str, reports: Sequence[ModelReport]) -> dict[str, Any] | None:
    found = [(i, r, r.results[name]) for i, r in enumerate(reports) if name in r.results]
    traces = [t for i, report, result in found for t in result.traces(Style(i, report.name))]
    if not traces:
        return None
    return _plot(name, found[0][2].layout, traces)


def _curves(reports: Sequence[ModelReport]) -> list[dict[str, Any]]:
    """Draw every column of the validation, the loss with that of the training batches."""
    drawn = []
    if all(len(report.curve) < 2 for report in reports):
        return drawn  # fitted at once: a line of one point shows nothing
    columns = [c for c in _columns(reports) if c.startswith("valid_")]
    for number, column in enumerate(columns):
        traces = _curve(reports, column)
        loss = column == "valid_loss"
        if loss:
            traces += _curve(reports, "train_loss", faint=True)
        words = column.removeprefix("valid_").replace("_", " ")
        caption = "Dotted: on the training batches." if loss else "On the validation part."
        layout = Layout(f"Training: {words}", "step", words, caption, log_y=loss)
        drawn.append(_plot(f"curve-{number}", layout, traces))
    return drawn


def _curve(reports: Sequence[ModelReport], column: str, faint: bool = False) -> list[Trace]:
    traces = []
    for index, report in enumerate(reports):
        rows = [row for row in report.curve if column in row and "step" in row]
        if not rows:
            continue
        style = Style(index, f"{report.name}, {column.replace('_', ' ')}")
        more: dict[str, Any] = {}
        if faint:
            more = {"line": {"dash": "dot", "width": 1}, "opacity": 0.7}
        if len(rows) == 1:
            more["mode"] = "markers"
        steps, values = [int(row["step"]) for row in rows], [row[column] for row in rows]
        traces.append(style.line(steps, values, column, **more))
    return traces


def _columns(reports: Sequence[ModelReport]) -> list[str]:
    names = (name for report in reports for row in report.curve for name in row)
    return [name for name in dict.fromkeys(names) if name not in ("step", "epoch", "seconds")]


def _plot(key: str, layout: Layout, traces: list[Trace]) -> dict[str, Any]:
    return {
        "key": key,
        "title": layout.title,
        "caption": layout.caption,
        "traces": [*layout.background, *traces],
        "layout": layout.axes(traces),
    }
