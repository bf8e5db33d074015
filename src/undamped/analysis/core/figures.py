"""How our figures look: one palette, labelled axes, one sentence that says what to see.

The colours are those of Okabe and Ito, which people with any of the usual kinds of colour
blindness can tell apart; lines differ in their dashes too, so that print without colour works.
"""

from __future__ import annotations

from typing import Any

from undamped._base.packages import require

PALETTE = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#7F7F7F",
    "#B59F00",
)
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")


def line_style(index: int) -> dict[str, Any]:
    """Return colour and dash of the line number `index`; no two of the first 24 are alike."""
    return {"color": PALETTE[index % len(PALETTE)], "dash": DASHES[index % len(DASHES)], "width": 2}


def new_figure(
    title: str, x: str, y: str, caption: str, *, log_x: bool = False, log_y: bool = False
) -> Any:
    """Return an empty plotly figure with titles, axes and a caption below.

    Args:
        title: What is drawn.
        x: Label of the horizontal axis, with its unit.
        y: Label of the vertical axis, with its unit.
        caption: One sentence that says what to see.
        log_x: Whether the horizontal axis counts in decades.
        log_y: Whether the vertical axis counts in decades.
    """
    require("a figure", "plotly")
    from plotly import graph_objects

    figure = graph_objects.Figure()
    figure.update_layout(
        title={"text": title},
        xaxis={"title": {"text": x}, "type": "log" if log_x else "linear"},
        yaxis={"title": {"text": y}, "type": "log" if log_y else "linear"},
        template="plotly_white",
        margin={"t": 60, "b": 110, "l": 70, "r": 20},
        showlegend=True,
    )
    if log_y:
        figure.update_yaxes(exponentformat="power")
    figure.add_annotation(
        text=caption,
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


def add_line(
    figure: Any, x: Any, y: Any, name: str, index: int = 0, *, markers: bool = False
) -> None:
    """Add one line in the style number `index`."""
    figure.add_scatter(
        x=list(x),
        y=list(y),
        name=name,
        mode="lines+markers" if markers else "lines",
        line=line_style(index),
    )
