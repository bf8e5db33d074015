"""The page: one self-contained HTML file that starts with the verdict and opens offline.

The file contains the data as JSON, style and scripts, which draw the plots as SVG. A content
security policy forbids the browser to load anything else.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Iterable, Sequence, Sized
from dataclasses import fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from undamped._base.errors import OptionError
from undamped.analysis.core.figures import line_style
from undamped.analysis.gradient_flow import GradientFlow
from undamped.lab.files import write_text
from undamped.lab.report.model_report import ModelReport, in_order, plots
from undamped.version import __version__

Row = Sequence[str]
_CONTENTS = re.compile(r'<meta name="undamped" content="([^"]*)">')


def text(value: object) -> str:
    """Return a value as escaped text."""
    return html.escape(str(value))


def verdicts(reports: Sequence[ModelReport]) -> str:
    """Return the verdicts of all models, with a headline and remedies."""
    first = f'<p class="headline">{text(headline(reports))}</p>'
    symbols = {"good": "✓", "bad": "✗", "neutral": "•"}

    def verdict(report: ModelReport) -> str:
        # The headline of a page with one model is its verdict.
        repeated = headline(reports) == f"{report.name}: {report.verdict}."
        return ("" if not report.findings else ":") if repeated else f": {report.verdict}."

    items = "".join(
        f'<li class="{r.tone}" data-model="{i}"><span class="mark" aria-hidden="true">'
        f"{symbols[r.tone]}</span> <b>{text(r.name)}</b>{text(verdict(r))}"
        f"{''.join(' ' + text(sentence) for sentence in r.findings)}{_notes(r)}{_remedies(r)}</li>"
        for i, r in enumerate(reports)
    )
    return (
        f'<section id="verdict" aria-labelledby="h-verdict"><h2 id="h-verdict">Verdict</h2>'
        f'{first}{scores(reports)}<ul class="verdicts">{items}</ul></section>'
    )


def scores(reports: Sequence[ModelReport]) -> str:
    """Return a table with a bar for every score, the naive baseline and the trivial rule."""
    scored = [(i, r.name, r.score) for i, r in enumerate(reports) if r.score is not None]
    if not scored or len({(score.metric, score.split) for _, _, score in scored}) > 1:
        return ""
    first = scored[0][2]
    rows = [(str(index), name, score.value) for index, name, score in scored]
    rows.sort(key=lambda row: row[2], reverse=first.higher_is_better)
    if first.baseline is not None:
        rows.append(("", f"{first.baseline[1]} alone", first.baseline[0]))
    if first.chance is not None:
        rows.append(("", "naive baseline", first.chance))
    finite = [value for _, _, value in rows if math.isfinite(value)]
    longest = 1.0 if first.metric.endswith("accuracy") else max(finite, default=0.0)
    body = ""
    for index, name, value in rows:
        fraction = value / longest if longest > 0 and math.isfinite(value) else 0.0
        width = 100 * min(1.0, max(0.0, fraction))
        model = f' data-model="{index}"' if index else ' class="baseline"'
        body += (
            f'<tr{model}><th scope="row">{text(name)}</th><td class="bars"><span style="width:'
            f'{width:.1f}%"></span></td><td>{text(first.format(value))}</td></tr>'
        )
    direction = "higher" if first.higher_is_better else "lower"
    caption = f"{first.title}, {direction} is better"
    return f'<table class="scores"><caption>{text(caption)}</caption><tbody>{body}</tbody></table>'


def headline(reports: Sequence[ModelReport]) -> str:
    """Return one sentence that compares scores or gradients, or else the first sentence."""
    scored = [report for report in reports if report.score is not None]
    if scored:
        return _compare_scores(scored)
    flows = [
        (report, flow)
        for report in reports
        if isinstance(flow := report.results.get("gradient_flow"), GradientFlow)
    ]
    if len(flows) > 1:
        return _compare_gradients(flows)
    judged = [report for report, _ in flows] or [report for report in reports if report.verdict]
    if judged:
        return _verdicts(judged)
    sentences = (f"{r.name}: {result.sentence}" for r in reports for result in r.results.values())
    return next(sentences, "Nothing was measured.")


def _verdicts(reports: Sequence[ModelReport]) -> str:
    return "; ".join(f"{report.name}: {report.verdict}" for report in reports) + "."


def _compare_gradients(flows: list[tuple[ModelReport, GradientFlow]]) -> str:
    """Return how far the gradients of the best models reach."""
    # Exploding gradients reach all steps but are useless, so they come last.
    flows.sort(key=lambda pair: (pair[1].verdict == "explode", -pair[1].horizon / pair[1].length))
    (first, best), *rest = flows
    return _listed(
        f"{first.name}: gradients reach {best.horizon} of {best.length} steps",
        [
            f"{r.name} {'explodes' if flow.verdict == 'explode' else f'reaches {flow.horizon}'}"
            for r, flow in rest
        ],
    )


def _compare_scores(reports: Sequence[ModelReport]) -> str:
    """Return the best score, the other scores, and the naive baseline; verdicts if they differ."""
    scores = [(report.name, report.score) for report in reports if report.score is not None]
    if len(scores) == 1 or len({(score.metric, score.split) for _, score in scores}) > 1:
        return _verdicts(reports)
    higher, chance = scores[0][1].higher_is_better, scores[0][1].chance
    (first, best), *rest = sorted(scores, key=lambda pair: pair[1].value, reverse=higher)
    return _listed(
        f"{first}: {best.title} {best.text}",
        [f"{name} {score.text}" for name, score in rest],
        *([] if chance is None else [f"naive baseline {best.format(chance)}"]),
    )


def _listed(first: str, rest: Sequence[str], *last: str) -> str:
    """Return clauses as a sentence, with at most four of the rest."""
    more = [f"{len(rest) - 4} more below"] if len(rest) > 4 else []
    return "; ".join([first, *rest[:4], *more, *last]) + "."


def _notes(report: ModelReport) -> str:
    if not report.notes:
        return ""
    symbols = {"good": "✓", "bad": "✗", "neutral": "!"}
    items = "".join(
        f'<li class="{note.tone}"><span class="mark" aria-hidden="true">'
        f"{symbols[note.tone]}</span> "
        f"{text(note.text[:1].upper() + note.text[1:])}.</li>"
        for note in report.notes
    )
    return f'<ul class="notes">{items}</ul>'


def _remedies(report: ModelReport) -> str:
    if not report.remedies:
        return ""
    items = "".join(
        f"<li>{text(r.advice)}"
        + (f": <code>{text(r.command or r.model)}</code>" if r.command or r.model else ".")
        + "</li>"
        for r in report.remedies
    )
    return f'<ul class="remedies">{items}</ul>'


def table(heading: Row, rows: Iterable[tuple[int, Row]]) -> str:
    """Return a table; each row has the index of its model, so that it can be hidden."""
    head = "".join(f'<th scope="col">{text(h)}</th>' for h in heading)
    body = "".join(
        f'<tr data-model="{model}">'
        + "".join(
            f'<th scope="row">{text(c)}</th>' if i == 0 else f"<td>{text(c)}</td>"
            for i, c in enumerate(row)
        )
        + "</tr>"
        for model, row in rows
    )
    return (
        f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def instrument(name: str, reports: Sequence[ModelReport]) -> str:
    """Return the table of an instrument, with one or several rows for each model."""
    results = [(i, r, r.results[name]) for i, r in enumerate(reports) if name in r.results]
    rows = [(i, (report.name, *row)) for i, report, result in results for row in result.rows]
    if not rows:
        return ""
    first = results[0][2]
    title = f"{first.layout.title}, in numbers"
    return _titled(f"table-{name}", title, table(("model", *first.columns), rows))


def forecast_table(reports: Sequence[ModelReport]) -> str:
    """Return the table of errors and coverage by step ahead."""
    rows = [
        (i, (report.name, *row))
        for i, report in enumerate(reports)
        if report.forecasts is not None
        for row in report.forecasts.rows
    ]
    if not rows:
        return ""
    heading = ("model", "steps ahead", "mean absolute error", "true values inside the band")
    return _titled("table-forecast", "Forecasts, in numbers", table(heading, rows))


def candidates(reports: Sequence[ModelReport]) -> str:
    """Return the table of the models that were compared before one was chosen."""
    formats = {"score": ".4g", "draws": "", "valid": ".4g", "parameters": ",", "seconds": ".1f"}
    rows = []
    for index, report in enumerate(reports):
        for entry in report.candidates:
            scored = "score" in entry
            cells = [format(entry[key], form) if scored else "–" for key, form in formats.items()]
            rows.append((index, (str(entry["model"]), *cells, str(entry.get("why_not", "")))))
    if not rows:
        return ""
    heading = (
        *("model", "mean validation score", "validation splits", "first validation score"),
        *("parameters", "seconds", "reason if left out"),
    )
    return _titled("tried", "Models compared", table(heading, rows))


def left_out(reports: Sequence[ModelReport]) -> str:
    """Return the instruments that do not apply to a model, with reasons, folded."""
    rows = [
        (index, (report.name, name.replace("_", " "), why))
        for index, report in enumerate(reports)
        for name, why in report.left_out.items()
    ]
    if not rows:
        return ""
    inner = table(("model", "instrument", "reason"), rows)
    return f"<details><summary>Not measured: {len(rows)}</summary>{inner}</details>"


def pending(reports: Sequence[ModelReport]) -> str:
    """Return the instruments for which there was no time, with the commands that measure them."""
    return "".join(
        f'<p data-model="{index}">{text(report.name)}: not measured yet: '
        f"{text(', '.join(report.pending).replace('_', ' '))}. "
        f"<code>{text(next(iter(report.pending.values())))}</code></p>"
        for index, report in enumerate(reports)
        if report.pending
    )


def settings(reports: Sequence[ModelReport]) -> str:
    """Return settings, versions and the command of every model, folded."""
    parts = []
    for index, report in enumerate(reports):
        lines = [
            *(("setting", name, value) for name, value in _flat(report.options)),
            *(("version", name, value) for name, value in report.versions.items()),
        ]
        command = f"<p>Command: <code>{text(report.command)}</code></p>" if report.command else ""
        path = f"<p>Run: <code>{text(report.path)}</code></p>" if report.path else ""
        rows = [(index, (kind, name, str(value))) for kind, name, value in lines]
        inner = table(("kind", "name", "value"), rows) if rows else ""
        if command or path or inner:
            parts.append(
                f'<details data-model="{index}"><summary>{text(report.name)}</summary>'
                f"{command}{path}{inner}</details>"
            )
    if not parts:
        return ""
    return _titled("settings", "Settings, versions, command", "".join(parts))


def _flat(options: Any, prefix: str = "") -> list[tuple[str, Any]]:
    flat = []
    for name, value in options.items():
        if isinstance(value, dict):
            flat += _flat(value, f"{prefix}{name}.")
        else:
            flat.append((f"{prefix}{name}", value))
    return flat


def _titled(key: str, title: str, inner: str) -> str:
    return (
        f'<section aria-labelledby="h-{key}"><h2 id="h-{key}">{text(title)}</h2>{inner}</section>'
    )


def write(path: str | Path, reports: Sequence[ModelReport], *, title: str = "") -> Path:
    """Write the page of one or several models, atomically.

    Args:
        path: The file to write, for example `report.html`.
        reports: The models, in the order of the page.
        title: The heading; by default the names of the models.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_text(target, page(reports, title=title))
    return target


def page(reports: Sequence[ModelReport], *, title: str = "") -> str:
    """Return the page as text.

    Args:
        reports: The models.
        title: The heading.
    """
    if not reports:
        raise OptionError("A page needs at least one model.")
    reports = _with_unique_names(reports)
    heading = title or " · ".join(report.name for report in reports[:4])
    if not title and len(reports) > 4:
        heading += f" and {len(reports) - 4} more"
    figures = plots(reports)
    body = "".join(
        [
            _header(heading, reports),
            verdicts(reports),
            candidates(reports),
            *(section(plot) for plot in figures),
            forecast_table(reports),
            *(instrument(name, reports) for name in in_order(reports)),
            pending(reports),
            left_out(reports),
            settings(reports),
        ]
    )
    data = {"plots": figures, "models": len(reports)}
    return document(heading, body, data, embedded(contents(reports)))


def contents(reports: Sequence[ModelReport]) -> dict[str, list[str]]:
    """Return which values of which instruments a page has, by the names of the models."""
    return {
        report.name: [
            f"{name}.{field.name}"
            for name, result in report.results.items()
            for field in fields(result)
            if not _is_empty(getattr(result, field.name))
        ]
        for report in reports
    }


def _is_empty(value: Any) -> bool:
    has_length = isinstance(value, Sized) and getattr(value, "ndim", 1) > 0
    return value is None or (has_length and len(value) == 0)


def is_fuller(path: Path, reports: Sequence[ModelReport]) -> bool:
    """Return whether a page on disk has a model or a result that the reports do not have."""
    if not path.is_file():
        return False
    match = _CONTENTS.search(path.read_text(encoding="utf-8", errors="replace"))
    try:
        present = json.loads(html.unescape(match[1])) if match else {}
    except ValueError:
        return False
    new = contents(_with_unique_names(reports))
    return any(not set(names) <= set(new.get(model, ())) for model, names in present.items())


def _with_unique_names(reports: Sequence[ModelReport]) -> list[ModelReport]:
    counts: dict[str, int] = {}
    renamed = []
    for report in reports:
        counts[report.name] = count = counts.get(report.name, 0) + 1
        renamed.append(report if count == 1 else replace(report, name=f"{report.name} ({count})"))
    return renamed


def section(plot: dict[str, Any]) -> str:
    """Return the HTML section of a plot, with its title and caption."""
    key, title, caption = (html.escape(plot[name]) for name in ("key", "title", "caption"))
    return (
        f'<section aria-labelledby="h-{key}"><h2 id="h-{key}">{title}</h2>'
        f'<div class="plot" id="plot-{key}" tabindex="0" role="img" '
        f'aria-label="{title}. {caption} Keys: arrows move, plus and minus zoom, 0 resets."></div>'
        f'<p class="caption">{caption}</p></section>'
    )


def _header(heading: str, reports: Sequence[ModelReport]) -> str:
    switches = "".join(
        f'<label><input type="checkbox" data-model="{index}" checked>'
        f'<svg width="26" height="8" aria-hidden="true"><line x1="0" y1="4" x2="26" y2="4" '
        f'stroke="{line_style(index)["color"]}" stroke-width="3" '
        f'stroke-dasharray="{_dashes(line_style(index)["dash"])}"/></svg>'
        f"{html.escape(report.name)}</label>"
        for index, report in enumerate(reports)
    )
    return (
        '<a class="skip" href="#verdict">Skip to the verdict</a>'
        f'<header><h1>{html.escape(heading)}</h1><button type="button" id="theme" '
        'aria-pressed="false">Dark</button></header>'
        f'<fieldset class="models"{" hidden" * (len(reports) == 1)}><legend>Models</legend>'
        f"{switches}</fieldset>"
    )


def _dashes(name: str) -> str:
    patterns = {"dash": "8 4", "dot": "2 3", "dashdot": "8 3 2 3", "longdash": "12 4"}
    return patterns.get(name, "none" if name == "solid" else "12 3 2 3")


def document(heading: str, body: str, data: dict[str, Any], summary: str = "") -> str:
    """Return a self-contained page.

    Args:
        heading: Its title.
        body: Its contents.
        data: The data of its script: `plots`, and the number of `models`.
        summary: What the page has, as JSON; see `contents`.
    """
    style, scripts = asset("page.css"), [asset("chart.js"), asset("page.js")]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy(*scripts)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        + (f'<meta name="undamped" content="{html.escape(summary)}">' if summary else "")
        + f"<title>{html.escape(heading)} · undamped</title><style>{style}</style></head>"
        f"<body><main>{body}</main><footer>Written by undamped {__version__}.</footer>"
        f'<script type="application/json" id="data">{embedded(data)}</script>'
        + "".join(f"<script>{script}</script>" for script in scripts)
        + "</body></html>\n"
    )


def policy(*scripts: str) -> str:
    """Return a content security policy that allows these scripts only.

    Each script is identified by its hash, so that scripts and handlers that were injected by text
    from a file do not run.
    """
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()) for script in scripts)
    sources = " ".join(f"'sha256-{digest.decode()}'" for digest in hashes)
    return (
        f"default-src 'none'; script-src {sources}; style-src 'unsafe-inline'; "
        "img-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'"
    )


def embedded(data: Any) -> str:
    """Return JSON that cannot close the script element around it."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def asset(name: str) -> str:
    """Return the text of a file of this package, such as "page.css"."""
    return (files("undamped.lab.report") / "assets" / name).read_text(encoding="utf-8")
