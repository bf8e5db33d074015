"""The page of a sweep: how the best came about, what mattered, and where good settings lie."""

from __future__ import annotations

import html
import math
from pathlib import Path
from typing import Any

from undamped._base.files import write_text
from undamped.analysis.core.figures import PALETTE
from undamped.lab.report.page import document, section
from undamped.lab.sweeps.folder import SweepFolder
from undamped.lab.sweeps.space import Range, read_space
from undamped.lab.sweeps.trials import Trial, best_of, in_order

ROWS = 50
"""Trials in the table; the folder has them all."""


def write_page(folder: SweepFolder, trials: list[Trial], shares: dict[str, float]) -> Path:
    """Write sweep.html into the folder of a sweep.

    Args:
        folder: The folder.
        trials: All its trials.
        shares: How much each setting explains.
    """
    path = folder.path / "sweep.html"
    plan = folder.plan
    finished = [one for one in trials if one.value is not None]
    drawn = [_history(folder, trials), _importance(shares)]
    drawn += [_slice(folder, number, key, finished) for number, key in enumerate(plan.space)]
    drawn.append(_parallel(folder, finished))
    shown = [plot for plot in drawn if plot is not None]
    heading = f"{plan.model} on {plan.task}: {len(trials)} trials"
    body = _header(heading, folder, trials) + "".join(map(section, shown)) + _table(folder, trials)
    write_text(path, document(heading, body, {"plots": shown, "models": 0}))
    return path


def _header(heading: str, folder: SweepFolder, trials: list[Trial]) -> str:
    best = best_of(trials, folder.higher_is_better)
    if best is None:
        said = "No trial is finished yet."
    else:
        chosen = ", ".join(f"{key}={_short(value)}" for key, value in best.settings.items())
        said = f"Best {folder.metric.replace('_', ' ')}: {best.value:.5g} with {chosen}."
    return (
        f'<header><h1>{html.escape(heading)}</h1><button type="button" id="theme" '
        'aria-pressed="false">Dark</button></header>'
        f'<section id="verdict"><p class="verdict">{html.escape(said)}</p></section>'
    )


def _plot(
    key: str, title: str, caption: str, traces: list[dict[str, Any]], **layout: Any
) -> dict[str, Any]:
    return {"key": key, "title": title, "caption": caption, "traces": traces, "layout": layout}


def _history(folder: SweepFolder, trials: list[Trial]) -> dict[str, Any]:
    finished = [one for one in trials if one.value is not None]
    best: list[float] = []
    for one in finished:
        assert one.value is not None
        pick = max if folder.higher_is_better else min
        best.append(pick(best[-1], one.value) if best else one.value)
    numbers = [one.number for one in finished]
    traces = [
        {
            "type": "scatter", "mode": "markers", "name": "trial", "x": numbers,
            "y": [one.value for one in finished], "marker": {"color": PALETTE[0], "size": 7},
            "text": [_words(one) for one in finished],
        },
        {
            "type": "scatter", "mode": "lines", "name": "best so far", "x": numbers, "y": best,
            "line": {"color": PALETTE[1], "shape": "hv"},
        },
    ]  # fmt: skip
    early = sum(one.state == "stopped early" for one in trials)
    failed = sum(one.state == "failed" for one in trials)
    caption = (
        f"Every finished trial, and the best so far. {early} were stopped early, {failed} failed."
    )
    return _plot(
        "history", "How the best came about", caption, traces,
        xaxis=_axis("trial"), yaxis=_axis(folder.metric),
    )  # fmt: skip


def _importance(shares: dict[str, float]) -> dict[str, Any] | None:
    if not shares:
        return None
    keys = list(reversed(shares))
    bar = {
        "type": "bar", "orientation": "h", "x": [shares[key] for key in keys], "y": keys,
        "marker": {"color": PALETTE[0]},
    }  # fmt: skip
    caption = "The share of the variation of the results that each setting explains (fANOVA)."
    return _plot("importance", "What mattered", caption, [bar], xaxis=_axis("share"), yaxis={})


def _slice(folder: SweepFolder, number: int, key: str, finished: list[Trial]) -> dict[str, Any]:
    kind = read_space(key, folder.plan.space[key])
    numeric = isinstance(kind, Range)
    values = [one.settings.get(key) for one in finished]
    points = {
        "type": "scatter", "mode": "markers",
        "x": values if numeric else [str(value) for value in values],
        "y": [one.value for one in finished], "text": [_words(one) for one in finished],
        "marker": {"color": [one.number for one in finished], "colorscale": "Viridis", "size": 7},
    }  # fmt: skip
    form = ("log" if kind.log else "linear") if isinstance(kind, Range) else "category"
    caption = f"Results over {key}; later trials are lighter."
    return _plot(f"slice-{number}", key, caption, [points], xaxis=_axis(key, type=form),
                 yaxis=_axis(folder.metric))  # fmt: skip


def _parallel(folder: SweepFolder, finished: list[Trial]) -> dict[str, Any] | None:
    """Draw a line per trial through all settings and the result, the best in the lightest colour.

    Plain lines: plotly's own parallel coordinates write programs for the graphics card while they
    run, which the page's policy forbids.
    """
    if len(finished) < 2:
        return None
    from plotly.colors import sample_colorscale

    results = [float(one.value) for one in finished if one.value is not None]
    columns = [_column(folder, key, finished) for key in folder.plan.space]
    columns.append(
        (f"{folder.metric}<br>{min(results):.3g} … {max(results):.3g}", _spread(results))
    )
    good = [x if folder.higher_is_better else 1 - x for x in columns[-1][1]]
    traces = [
        {
            "type": "scatter", "mode": "lines+markers", "x": list(range(len(columns))),
            "y": [places[number] for _, places in columns], "text": _words(one),
            "hoverinfo": "text", "opacity": 0.8, "line": {"color": colour, "width": 2},
        }
        for number, (one, colour) in enumerate(
            zip(finished, sample_colorscale("Viridis", good), strict=True)
        )
    ]  # fmt: skip
    caption = "A line per finished trial, from the lower to the upper end of each; light is good."
    names = [name for name, _ in columns]
    axis = {"tickvals": list(range(len(names))), "ticktext": names}
    return _plot(
        "parallel", "All settings together", caption, traces,
        xaxis=axis, yaxis={"showticklabels": False, "range": [-0.05, 1.05]},
    )  # fmt: skip


def _column(folder: SweepFolder, key: str, finished: list[Trial]) -> tuple[str, list[float]]:
    """Return a setting with its ends, and where every trial passes between them, 0 to 1."""
    kind = read_space(key, folder.plan.space[key])
    values = [one.settings[key] for one in finished]
    if isinstance(kind, Range):
        low, high = kind.low, kind.high
        bend = math.log if kind.log else float
        places = [(bend(v) - bend(low)) / (bend(high) - bend(low)) for v in values]
        return f"{key}<br>{low:g} … {high:g}", places
    names = [str(value) for value in kind.values] if kind is not None else []
    last = max(1, len(names) - 1)
    return f"{key}<br>{', '.join(names)}", [names.index(str(v)) / last for v in values]


def _spread(values: list[float]) -> list[float]:
    low, high = min(values), max(values)
    return [(value - low) / (high - low) if high > low else 0.5 for value in values]


def _axis(words: str, **more: Any) -> dict[str, Any]:
    return {"title": {"text": words.replace("_", " ")}, **more}


def _table(folder: SweepFolder, trials: list[Trial]) -> str:
    keys = list(folder.plan.space)
    heads = "".join(f"<th>{html.escape(h)}</th>" for h in ("trial", folder.metric, *keys, "state"))
    ordered = in_order(trials, folder.higher_is_better)
    rows = "".join(
        "<tr>"
        + "".join(
            f"<td>{html.escape(cell)}</td>"
            for cell in (
                str(one.number),
                "" if one.value is None else f"{one.value:.5g}",
                *(_short(one.settings.get(key, "")) for key in keys),
                one.state + (f": {one.error}" if one.error else ""),
            )
        )
        + "</tr>"
        for one in ordered[:ROWS]
    )
    more = f"<p>The best {ROWS} of {len(ordered)}.</p>" if len(ordered) > ROWS else ""
    return (
        f'<section><h2>Trials</h2><div class="scroll"><table><thead><tr>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>{more}</section>"
    )


def _words(trial: Trial) -> str:
    chosen = ", ".join(f"{key}={_short(value)}" for key, value in trial.settings.items())
    return html.escape(f"trial {trial.number}: {chosen}")


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
