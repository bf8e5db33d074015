"""The page of `undamped doctor`: what is wrong, what helps, and what the last output depends on."""

from __future__ import annotations

from pathlib import Path

from undamped.analysis import Diagnosis
from undamped.analysis.core.result import layout_and_traces
from undamped.lab.files import write_text
from undamped.lab.report.model_report import plot_of
from undamped.lab.report.page import document, section, text


def write_page(path: Path, diagnosis: Diagnosis, name: str) -> None:
    """Write a diagnosis as one self-contained HTML file.

    Args:
        path: The file.
        diagnosis: The diagnosis.
        name: Name of the model.
    """
    items = "".join(
        f'<li class="bad"><span class="mark" aria-hidden="true">✗</span> '
        f"<b>{text(finding.heading)}</b>: {text(finding.sentence)}"
        f"<ul>{''.join(f'<li>{text(line)}</li>' for line in finding.advice)}</ul></li>"
        for finding in diagnosis.findings
    )
    figure = plot_of("reach", *layout_and_traces({"": diagnosis}))
    figure["caption"] = diagnosis.layout.caption
    body = (
        f'<header><h1>{text(name)}</h1><button type="button" id="theme" aria-pressed="false">'
        f'Dark</button></header><section id="verdict"><p class="headline">'
        f'{text(diagnosis.sentence)}</p><ul class="verdicts">{items}</ul></section>'
    )
    write_text(path, document(name, body + section(figure), {"plots": [figure], "models": 0}))
