"""`undamped report`: one page for one run or several."""

from __future__ import annotations

from pathlib import Path

from undamped._base.errors import OptionError
from undamped._base.files import refuse_folder
from undamped.analysis.core.image_file import draw
from undamped.analysis.core.probe import InapplicableError
from undamped.lab.cli.figures import check_figure, draw_curves
from undamped.lab.cli.progress import stages
from undamped.lab.cli.screen import print_json, print_lines
from undamped.lab.cli.verbs.diagnose import check_instruments, print_reports
from undamped.lab.report import ModelReport, write
from undamped.lab.report.runs import report_run
from undamped.lab.training.run import Run


def report(
    runs: list[Path],
    out: Path | None,
    figure: Path | None,
    instrument: list[str] | None,
    memory: bool,
    as_json: bool,
) -> None:
    """Measure runs, and write a page or a figure."""
    check_figure(figure)
    refuse_folder(out)
    opened = [Run.open(path) for path in runs]
    measured = check_instruments(instrument)
    if figure is not None and measured is None:
        _draw_curves(opened, figure)
    else:
        single = len(opened) == 1
        reports = []
        for run in opened:
            with stages(run.path.name) as stage:
                reports.append(
                    report_run(
                        run, compare=single, memory=memory, measured=measured, progress=stage
                    )
                )
        if figure is None:
            page = "diagnosis.html" if single and measured else "report.html"
            target = out or (opened[0].path / page if single else Path(page))
            print_reports(reports, write(target, reports), as_json, reasons=measured is not None)
            return
        _draw_results(reports, measured or [], figure)
    if as_json:
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
            "'undamped list' shows all instruments."
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


def write_page(run: Run, baseline: Run | None = None) -> Path | None:
    """Write the page of a training that has just ended; None if it is not finished.

    Args:
        run: The run; the page is written to its folder.
        baseline: A second run to compare with.
    """
    if run.settings["status"] != "finished":
        return None
    runs = [run] if baseline is None or baseline.result is None else [run, baseline]
    with stages("Writing the page (Ctrl-C skips it)") as stage:
        reports = [report_run(each, compare=len(runs) == 1, progress=stage) for each in runs]
    return write(run.path / "report.html", reports)
