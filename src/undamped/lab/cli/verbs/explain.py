"""`undamped explain RUN FILE --row 3`: what in a recording decided the answer."""

from __future__ import annotations

from typing import Any

import numpy as np

from undamped._base.errors import OptionError, shortened
from undamped.lab.cli.commands.runs import Explain
from undamped.lab.cli.figures import check_figure, save_figure
from undamped.lab.cli.predict_recordings import in_words, recordings_for
from undamped.lab.cli.screen import print_json, print_lines
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.training.explanations import Explanation, explain
from undamped.lab.training.run import Run


def explain_row(options: Explain) -> None:
    """Print the explanation of one answer, and plot it."""
    check_figure(options.out, "--out")
    run = Run.open(options.run)
    preparation = run.preparation()
    if preparation is None:
        raise OptionError(
            f"{run.path} is not a run on recordings, and only their answers can be explained."
        )
    future = preparation.kind == "forecast"
    series_set, _ = recordings_for(run, preparation, options.data, future)
    row = _row(series_set, options.row)
    explanation = explain(run.model(), preparation, series_set, row)
    path = options.out or run.output_folder / "explanation.svg"
    draw(explanation, preparation.arrange(series_set).take([row]), path)
    if options.as_json:
        print_json({**explanation.to_dict(), "figure": str(path)})
        return
    print_lines(*sentences(explanation), f"Figure: {path}")


def _row(series_set: SeriesSet, row: str) -> int:
    """Return the index of a row: by its id, or by its number from 0."""
    ids = [str(name) for name in series_set.ids]
    if row in ids:
        return ids.index(row)
    if row.isdecimal() and len(row) < 10 and int(row) < len(ids):
        return int(row)
    raise OptionError(
        f"--row must be an id of the recordings, such as {shortened(ids[0])}, or a number from 0 "
        f"to {len(ids) - 1}, got {shortened(row)}."
    )


def draw(explanation: Explanation, single: SeriesSet, path: Any) -> None:
    """Write the figure of an explanation."""
    from undamped.lab.report.explanation_figure import draw_explanation

    series = np.asarray(single.series[0], dtype=float)
    title = in_words({"id": explanation.id, **explanation.answer})
    save_figure(draw_explanation(explanation, series, single.channels, title), path)


def sentences(explanation: Explanation) -> list[str]:
    """Return an explanation in sentences, the answer first."""
    segment, value = explanation.segment, explanation.value
    lines = [
        in_words({"id": explanation.id, **explanation.answer}),
        f"Steps {segment.first} to {segment.last} contribute most to the {explanation.quantity}, "
        f"{value:.4g}: replaced by the mean of the recording, they change it to "
        f"{value - segment.change:.4g}.",
    ]
    label = explanation.answer_without.get("label")
    if label is not None:
        same = label == explanation.answer["label"]
        lines.append(f"Without them the answer {'is still' if same else 'becomes'} {label}.")
    if segment.others:
        largest = max(segment.others, key=abs)
        lines.append(
            f"Check: {len(segment.others)} other segments of {segment.last + 1 - segment.first} "
            f"steps change it by at most {abs(largest):.4g}."
        )
        if not segment.decides:
            lines.append("No single segment decides: others change the value as much.")
    if explanation.completeness_error is not None:
        lines.append(
            f"Contributions: {explanation.method}; their sum differs from the value by "
            f"{abs(explanation.completeness_error):.1e}."
        )
    if explanation.oscillators:
        listed = ", ".join(
            f"{entry['contribution']:+.3g} (period {entry['period']:.3g})"
            for entry in explanation.oscillators
        )
        lines.append(f"Oscillators that contribute most: {listed}.")
    return lines
