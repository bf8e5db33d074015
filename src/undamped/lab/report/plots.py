"""The plots of a page as plain dictionaries: training curves and figures of instruments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from undamped._base.registry import instruments
from undamped.analysis.core import Layout, Style, Trace
from undamped.lab.report.model_report import ModelReport

CURVES = 20
"""Position of the training curves among the instruments."""


def plots(reports: Sequence[ModelReport]) -> list[dict[str, Any]]:
    """Return all plots with data, in the order of the page."""
    figures = [
        (instruments[name].page_order, figure)
        for name in in_order(reports)
        if (figure := _instrument(name, reports)) is not None
    ]
    figures += [(CURVES, figure) for figure in _curves(reports)]
    return [figure for _, figure in sorted(figures, key=lambda pair: pair[0])]


def in_order(reports: Sequence[ModelReport]) -> list[str]:
    """Return the names of the instruments with results, in the order of the page."""
    names = dict.fromkeys(name for report in reports for name in report.results)
    return sorted(names, key=lambda name: instruments[name].page_order)


def _instrument(name: str, reports: Sequence[ModelReport]) -> dict[str, Any] | None:
    results = [(i, r, r.results[name]) for i, r in enumerate(reports) if name in r.results]
    traces = [t for i, report, result in results for t in result.traces(Style(i, report.name))]
    if not traces:
        return None
    return _plot(name, results[0][2].layout, traces)


def _curves(reports: Sequence[ModelReport]) -> list[dict[str, Any]]:
    """Return a plot of every validation metric; that of the loss contains the training loss."""
    figures = []
    if all(len(report.curve) < 2 for report in reports):
        return figures  # fitted in closed form: there is no curve
    columns = [c for c in _columns(reports) if c.startswith("valid_")]
    for index, column in enumerate(columns):
        traces = _curve(reports, column)
        loss = column == "valid_loss"
        if loss:
            traces += _curve(reports, "train_loss", faint=True)
        metric = column.removeprefix("valid_").replace("_", " ")
        caption = "Dotted: on the training batches." if loss else "On the validation split."
        layout = Layout(f"Training: {metric}", "step", metric, caption, log_y=loss)
        figures.append(_plot(f"curve-{index}", layout, traces))
    return figures


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
