"""`undamped report`: one page for one run or several."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from undamped._base.errors import OptionError
from undamped.analysis.core.image_file import draw
from undamped.analysis.core.probe import InapplicableError
from undamped.lab.cli.commands.runs import Report
from undamped.lab.cli.figures import check_figure, draw_curves
from undamped.lab.cli.progress import stages
from undamped.lab.cli.screen import print_json, print_lines
from undamped.lab.cli.verbs.diagnose import check_instruments, page_target, print_reports
from undamped.lab.files import refuse_folder
from undamped.lab.report import ModelReport, write
from undamped.lab.report.runs import report_run
from undamped.lab.training.run import Run

QUICK_SECONDS = 15.0
"""Least time limit of the page after a training."""


def report(options: Report) -> None:
    """Measure runs, and write a page or a figure."""
    figure = options.figure
    check_figure(figure)
    refuse_folder(options.out)
    runs = [Run.open(path) for path in options.runs]
    measured = check_instruments(options.instrument)
    if figure is not None and measured is None:
        _draw_curves(runs, figure)
    else:
        single = len(runs) == 1
        common: dict[str, Any] = {"compare": single, "memory": options.memory, "measured": measured}
        reports = []
        for run in runs:
            with stages(f"Measuring {run.path.name}") as stage:
                reports.append(report_run(run, progress=stage, **common))
        if figure is None:
            target = options.out or Path("report.html")
            if single and options.out is None:
                target = page_target(runs[0].output_folder, reports, measured)
            path, reasons = write(target, reports), measured is not None
            print_reports(reports, path, options.as_json, reasons=reasons)
            return
        _draw_results(reports, measured or [], figure)
    if options.as_json:
        print_json({"figure": str(figure)})
    else:
        print_lines(f"Figure: {figure}")


def _draw_results(reports: list[ModelReport], measured: list[str], figure: Path) -> None:
    """Plot the results of one instrument for every run."""
    if len(measured) != 1:
        raise OptionError(f"--figure needs exactly one --instrument, got {len(measured)}.")
    (name,) = measured
    results = {report.name: report.results[name] for report in reports if name in report.results}
    if not results:
        raise InapplicableError(
            f"The instrument '{name}' does not apply to these runs: {reports[0].left_out[name]}. "
            "'undamped list instruments' shows all."
        )
    draw(results, figure)


def _draw_curves(runs: list[Run], figure: Path) -> None:
    names = {run.settings["task"]["name"] for run in runs}
    if len(names) > 1:
        raise OptionError(f"--figure needs runs of one task, got {', '.join(sorted(names))}.")
    by_model: dict[str, list[Run]] = {}
    for run in runs:
        by_model.setdefault(run.settings["model"]["name"], []).append(run)
    draw_curves(figure, runs[0].task(), by_model)


def write_page(runs: list[Run], seconds: float | None = None) -> Path | None:
    """Write the page of a training that has just ended; None if it is not finished.

    Args:
        runs: The run, in whose folder the page is written, and runs to compare with.
        seconds: Time limit of all measurements; by default 15, or a third of the training if that
            is longer.
    """
    if runs[0].settings["status"] != "finished":
        return None
    runs = [run for run in runs if run.result is not None]
    if seconds is None:
        seconds = max(QUICK_SECONDS, sum(run.settings["result"]["seconds"] for run in runs) / 3)
    end, reports = time.monotonic() + seconds, []
    with stages("Writing the page (Ctrl-C skips it)") as stage:
        for index, run in enumerate(runs):
            # Time that one model does not need is left to the next.
            part = (end - time.monotonic()) / (len(runs) - index)
            reports.append(report_run(run, compare=len(runs) == 1, progress=stage, seconds=part))
    return write(runs[0].path / "report.html", reports)
