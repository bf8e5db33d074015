"""The page: one self-contained HTML file that starts with the verdict and opens offline.

The file contains the program of plotly, the data as JSON, style and script. A content security
policy forbids the browser to load anything else.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from undamped._base.errors import OptionError
from undamped._base.files import write_text
from undamped.analysis.core.figures import line_style
from undamped.lab.report import tables
from undamped.lab.report.model_report import ModelReport, in_order, plots
from undamped.version import __version__


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
            tables.verdicts(reports),
            tables.candidates(reports),
            *(section(plot) for plot in figures),
            *(tables.instrument(name, reports) for name in in_order(reports)),
            tables.left_out(reports),
            tables.settings(reports),
        ]
    )
    return document(heading, body, {"plots": figures, "models": len(reports)})


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
        f'<fieldset class="models"><legend>Models</legend>{switches}</fieldset>'
    )


def _dashes(name: str) -> str:
    patterns = {"dash": "8 4", "dot": "2 3", "dashdot": "8 3 2 3", "longdash": "12 4"}
    return patterns.get(name, "none" if name == "solid" else "12 3 2 3")


def document(heading: str, body: str, data: dict[str, Any]) -> str:
    """Return a self-contained page.

    Args:
        heading: Its title.
        body: Its contents.
        data: The data of its script: `plots`, and the number of `models`.
    """
    style, scripts = asset("page.css"), [plotly_program(), asset("page.js")]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy(*scripts)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{html.escape(heading)} · undamped</title><style>{style}</style></head>"
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


def plotly_program() -> str:
    """Return the JavaScript program of the plotly package."""
    path = files("plotly") / "package_data" / "plotly.min.js"
    return path.read_text(encoding="utf-8")
