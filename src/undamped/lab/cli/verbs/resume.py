"""`undamped resume RUN`: go on where a training was interrupted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def resume(
    run: Annotated[Path, typer.Argument(help="The run's folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a script.")] = False,
) -> None:
    """Go on with an interrupted run, to the same numbers as without the interruption.

    Example: `undamped resume runs/copy-unicornn-1`
    """
    from undamped.lab.cli.verbs.train import report
    from undamped.lab.training import resume as go_on
    from undamped.lab.training.process_group import is_secondary_rank

    trained = go_on(run)
    if not is_secondary_rank():
        report(trained, None, as_json)
