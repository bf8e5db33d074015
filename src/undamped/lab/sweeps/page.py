"""The page of a sweep: its history, the importance of settings, and the results over them."""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from undamped.analysis.core.figures import PALETTE
from undamped.lab.files import write_text
from undamped.lab.report.page import document, section
from undamped.lab.sweeps.folder import SweepFolder
from undamped.lab.sweeps.plan import Choices, Range, read_space
from undamped.lab.sweeps.trials import Trial, best_of, in_order

ROWS = 50
"""Trials in the table."""


def write_page(folder: SweepFolder, trials: list[Trial], importance: dict[str, float]) -> Path:
    """Write sweep.html into the folder of a sweep.

    Args:
        folder: The folder.
        trials: All its trials.
        importance: The fraction of the variance that each setting explains.
    """
    path = folder.path / "sweep.html"
    plan = folder.plan
    finished = [trial for trial in trials if trial.value is not None]
    plots = [_history(folder, trials), _importance(importance)]
    plots += [_slice(folder, number, key, finished) for number, key in enumerate(plan.space)]
    plots.append(_parallel(folder, finished))
    figures = [plot for plot in plots if plot is not None]
    heading = f"{plan.model} on {plan.task}: {len(trials)} trials"
    body = _header(heading, folder, trials) + "".join(map(section, figures))
    body += _table(folder, trials)
    write_text(path, document(heading, body, {"plots": figures, "models": 0}))
    return path


def _header(heading: str, folder: SweepFolder, trials: list[Trial]) -> str:
    best = best_of(trials, folder.higher_is_better)
    if best is None:
        verdict = "No trial is finished yet."
    else:
        metric = folder.metric.replace("_", " ")
        verdict = f"Best {metric}: {best.value:.5g} with {_settings(best)}."
    return (
        f'<header><h1>{html.escape(heading)}</h1><button type="button" id="theme" '
        'aria-pressed="false">Dark</button></header>'
        f'<section id="verdict"><p class="verdict">{html.escape(verdict)}</p></section>'
    )


def _plot(
    key: str, title: str, caption: str, traces: list[dict[str, Any]], **layout: Any
) -> dict[str, Any]:
    return {"key": key, "title": title, "caption": caption, "traces": traces, "layout": layout}


def _history(folder: SweepFolder, trials: list[Trial]) -> dict[str, Any]:
    finished = [trial for trial in trials if trial.value is not None]
    values = [trial.value for trial in trials if trial.value is not None]
    numbers = [trial.number for trial in finished]
    traces = [
        {
            "type": "scatter", "mode": "markers", "name": "trial", "x": numbers, "y": values,
            "marker": {"color": PALETTE[0], "size": 7}, "text": [_hover(t) for t in finished],
        },
        {
            "type": "scatter", "mode": "lines", "name": "best so far", "x": numbers,
            "y": list(itertools.accumulate(values, max if folder.higher_is_better else min)),
            "line": {"color": PALETTE[1], "shape": "hv"},
        },
    ]  # fmt: skip
    early = sum(trial.state == "stopped early" for trial in trials)
    failed = sum(trial.state == "failed" for trial in trials)
    caption = f"Every finished trial, and the best so far; {early} stopped early, {failed} failed."
    axes = {"xaxis": _axis("trial"), "yaxis": _axis(folder.metric)}
    return _plot("history", "History", caption, traces, **axes)


def _importance(importance: dict[str, float]) -> dict[str, Any] | None:
    if not importance:
        return None
    keys = list(reversed(importance))
    bar = {
        "type": "bar", "orientation": "h", "x": [importance[key] for key in keys],
        "y": _short_names(keys), "marker": {"color": PALETTE[0]},
    }  # fmt: skip
    caption = "The fraction of the variance of the results that each setting explains (fANOVA)."
    return _plot("importance", "Importance", caption, [bar], xaxis=_axis("fraction"), yaxis={})


def _slice(folder: SweepFolder, number: int, key: str, finished: list[Trial]) -> dict[str, Any]:
    kind = read_space(key, folder.plan.space[key])
    if isinstance(kind, Choices):  # on the axis in the order of the command
        order = [str(value) for value in kind.values]
        finished = sorted(finished, key=lambda trial: order.index(str(trial.settings.get(key))))
    values = [trial.settings.get(key) for trial in finished]
    points = {
        "type": "scatter", "mode": "markers",
        "x": values if isinstance(kind, Range) else [str(value) for value in values],
        "y": [trial.value for trial in finished], "text": [_hover(trial) for trial in finished],
        "marker": {"color": PALETTE[0], "size": 7},
    }  # fmt: skip
    form = ("log" if kind.log else "linear") if isinstance(kind, Range) else "category"
    caption = f"The result of every finished trial over {key}."
    axes = {"xaxis": _axis(key, type=form), "yaxis": _axis(folder.metric)}
    return _plot(f"slice-{number}", key, caption, [points], **axes)


def _parallel(folder: SweepFolder, finished: list[Trial]) -> dict[str, Any] | None:
    """Return parallel coordinates: a line per trial, the best without transparency."""
    if len(finished) < 2:
        return None
    results = [float(trial.value) for trial in finished if trial.value is not None]
    low, high = min(results), max(results)
    heights = [(value - low) / (high - low) if high > low else 0.5 for value in results]
    columns = [_column(folder, key, finished) for key in folder.plan.space]
    columns.append((f"{low:.3g} to {high:.3g}", heights))
    names = [*_short_names(folder.plan.space), folder.metric]
    good = [x if folder.higher_is_better else 1 - x for x in heights]
    traces = [
        {
            "type": "scatter", "mode": "lines+markers", "x": list(range(len(columns))),
            "y": [heights[index] for _, heights in columns], "text": _hover(trial),
            "opacity": round(0.15 + 0.85 * quality**2, 3),
            "line": {"color": PALETTE[0], "width": 2},
        }
        for index, (trial, quality) in enumerate(zip(finished, good, strict=True))
    ]  # fmt: skip
    ranges = (f"{name} {values}" for name, (values, _) in zip(names, columns, strict=True))
    caption = "One line for each finished trial; the stronger a line, the better its result. "
    caption += f"Axes, from bottom to top: {'; '.join(ranges)}."
    axis = {"tickvals": list(range(len(names))), "ticktext": names}
    axes = {"xaxis": axis, "yaxis": {"showticklabels": False, "range": [-0.05, 1.05]}}
    return _plot("parallel", "All settings together", caption, traces, **axes)


def _column(folder: SweepFolder, key: str, finished: list[Trial]) -> tuple[str, list[float]]:
    """Return the range of a setting, and the height of every trial in it, 0 to 1."""
    kind = read_space(key, folder.plan.space[key])
    values = [trial.settings[key] for trial in finished]
    if isinstance(kind, Range):
        low, high = kind.low, kind.high
        scale = math.log if kind.log else float
        heights = [(scale(v) - scale(low)) / (scale(high) - scale(low)) for v in values]
        return f"{low:g} to {high:g}", heights
    names = [str(value) for value in kind.values] if kind is not None else []
    last = max(1, len(names) - 1)
    return ", ".join(names), [names.index(str(v)) / last for v in values]


def _short_names(keys: Iterable[str]) -> list[str]:
    """Return the names of settings without prefix, unless two of them are then the same."""
    short = [key.rpartition(".")[2] for key in keys]
    return short if len(set(short)) == len(short) else list(keys)


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
                str(trial.number),
                "" if trial.value is None else f"{trial.value:.5g}",
                *(_short(trial.settings.get(key, "")) for key in keys),
                trial.state + (f": {trial.error}" if trial.error else ""),
            )
        )
        + "</tr>"
        for trial in ordered[:ROWS]
    )
    more = f"<p>The best {ROWS} of {len(ordered)}.</p>" if len(ordered) > ROWS else ""
    return (
        f'<section><h2>Trials</h2><div class="scroll"><table><thead><tr>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>{more}</section>"
    )


def _hover(trial: Trial) -> str:
    return html.escape(f"trial {trial.number}: {_settings(trial)}")


def _settings(trial: Trial) -> str:
    return ", ".join(f"{key}={_short(value)}" for key, value in trial.settings.items())


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
