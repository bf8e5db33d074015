"""`undamped report`: one page for one run or several."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from undamped.training.run import Run


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="One or more run folders.")],
    out: Annotated[
        Path | None,
        typer.Option(help="The page to write; beside a single run, or report.html, if not said."),
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option(help="Draw the validation curves into this picture, and make no page."),
    ] = None,
    memory: Annotated[bool, typer.Option(help="Measure peak memory too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a script.")] = False,
) -> None:
    """Write one page that compares runs: verdict, curves, gradient flow, recall, cost.

    Example: `undamped report runs/copy-unicornn-1 runs/copy-lstm-1`
    """
    from undamped.cli.picture import check_picture
    from undamped.cli.stages import stages
    from undamped.cli.verbs.diagnose import show
    from undamped.files import refuse_folder
    from undamped.report import write
    from undamped.report.runs import report_run
    from undamped.training.run import Run

    check_picture(picture)
    refuse_folder(out)
    opened = [Run.open(path) for path in runs]
    if picture is not None:
        _draw(opened, picture, as_json)
        return
    alone = len(opened) == 1
    reports = []
    for run in opened:
        with stages(run.path.name) as tick:
            reports.append(report_run(run, compare=alone, memory=memory, tick=tick))
    target = out or (opened[0].path / "report.html" if len(opened) == 1 else Path("report.html"))
    show(reports, write(target, reports), as_json)


def _draw(runs: list[Run], picture: Path, as_json: bool) -> None:
    from undamped.cli.picture import draw_curves
    from undamped.cli.screen import console, print_json
    from undamped.errors import OptionError

    names = {run.settings["task"]["name"] for run in runs}
    if len(names) > 1:
        raise OptionError(
            f"--picture: expected runs of one task, got {', '.join(sorted(names))}. Draw one "
            "picture for each."
        )
    by_model: dict[str, list[Run]] = {}
    for run in runs:
        by_model.setdefault(run.settings["model"]["name"], []).append(run)
    draw_curves(picture, runs[0].task(), by_model)
    if as_json:
        print_json({"picture": str(picture)})
    else:
        console().print(f"The picture: {picture}", soft_wrap=True, markup=False)


def write_page(run: Run, other: Run | None = None) -> Path | None:
    """Write the page of a training that has just ended; None if it did not get that far.

    Args:
        run: The run that was trained; the page lies in its folder.
        other: A second run to compare with.
    """
    from undamped.report import write
    from undamped.report.runs import report_run

    if run.settings["status"] != "finished":
        return None
    trained = [run] if other is None or other.result is None else [run, other]
    reports = [report_run(each, compare=len(trained) == 1) for each in trained]
    return write(run.path / "report.html", reports)
