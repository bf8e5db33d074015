"""`undamped report`: one page for one run or several."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from undamped.lab.report import ModelReport
    from undamped.lab.training.run import Run


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="One or more run folders.")],
    out: Annotated[
        Path | None,
        typer.Option(
            help="The page to write; report.html in the folder of a single run if not said "
            "(diagnosis.html with --instrument), and ./report.html for several."
        ),
    ] = None,
    figure: Annotated[
        Path | None,
        typer.Option(
            help="Draw the validation curves, or what one --instrument finds, into this picture, "
            "and make no page."
        ),
    ] = None,
    instrument: Annotated[
        list[str] | None,
        typer.Option(help="Measure this alone; again for more. 'undamped list' shows all."),
    ] = None,
    memory: Annotated[bool, typer.Option(help="Measure peak memory too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a script.")] = False,
) -> None:
    """Write one page that compares runs: verdict, curves, retention, gradient flow, cost.

    Example: `undamped report runs/copy-unicornn-1 runs/copy-lstm-1`
    """
    from undamped._base.files import refuse_folder
    from undamped.lab.cli.figures import check_figure
    from undamped.lab.cli.stages import stages
    from undamped.lab.cli.verbs.diagnose import known_instruments, show
    from undamped.lab.report import write
    from undamped.lab.report.runs import report_run
    from undamped.lab.training.run import Run

    check_figure(figure)
    refuse_folder(out)
    opened = [Run.open(path) for path in runs]
    measured = known_instruments(instrument)
    if figure is not None and measured is None:
        _draw_curves(opened, figure, as_json)
        return
    alone = len(opened) == 1
    reports = []
    for run in opened:
        with stages(run.path.name) as tick:
            reports.append(
                report_run(run, compare=alone, memory=memory, measured=measured, progress=tick)
            )
    if figure is not None:
        _draw_results(reports, measured or [], figure, as_json)
        return
    page = "diagnosis.html" if alone and measured else "report.html"
    target = out or (opened[0].path / page if alone else Path(page))
    show(reports, write(target, reports), as_json, asked=measured is not None)


def _draw_results(
    reports: list[ModelReport], measured: list[str], figure: Path, as_json: bool
) -> None:
    """Draw what one instrument found in every run."""
    from undamped._base.errors import OptionError
    from undamped.analysis.core.image_file import draw
    from undamped.analysis.core.probe import InapplicableError

    if len(measured) != 1:
        raise OptionError(
            f"--figure: expected one --instrument, got {len(measured)}. Draw one picture for each."
        )
    (name,) = measured
    results = {report.name: report.results[name] for report in reports if name in report.results}
    if not results:
        raise InapplicableError(
            f"--instrument: expected one that applies to these runs, got '{name}': "
            f"{reports[0].left_out[name]}. Choose another; 'undamped list' shows all."
        )
    draw(results, figure)
    _print_path(figure, as_json)


def _draw_curves(runs: list[Run], figure: Path, as_json: bool) -> None:
    from undamped._base.errors import OptionError
    from undamped.lab.cli.figures import draw_curves

    names = {run.settings["task"]["name"] for run in runs}
    if len(names) > 1:
        raise OptionError(
            f"--figure: expected runs of one task, got {', '.join(sorted(names))}. Draw one "
            "picture for each."
        )
    by_model: dict[str, list[Run]] = {}
    for run in runs:
        by_model.setdefault(run.settings["model"]["name"], []).append(run)
    draw_curves(figure, runs[0].task(), by_model)
    _print_path(figure, as_json)


def _print_path(figure: Path, as_json: bool) -> None:
    from undamped.lab.cli.screen import console, print_json

    if as_json:
        print_json({"figure": str(figure)})
    else:
        console().print(f"Figure: {figure}", soft_wrap=True, markup=False)


def write_page(run: Run, other: Run | None = None) -> Path | None:
    """Write the page of a training that has just ended; None if it did not get that far.

    What is being measured is shown meanwhile on standard error.

    Args:
        run: The run that was trained; the page lies in its folder.
        other: A second run to compare with.
    """
    from undamped.lab.cli.stages import stages
    from undamped.lab.report import write
    from undamped.lab.report.runs import report_run

    if run.settings["status"] != "finished":
        return None
    trained = [run] if other is None or other.result is None else [run, other]
    alone = len(trained) == 1
    with stages("Writing the page (Ctrl-C skips it)") as tick:
        reports = [report_run(each, compare=alone, progress=tick) for each in trained]
    return write(run.path / "report.html", reports)
