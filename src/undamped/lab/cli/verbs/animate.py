"""`undamped animate RUN --out motion.gif`: a system in motion, true beside learned."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def animate(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Folders of runs about one moving system; each gets a panel."),
    ],
    out: Annotated[
        Path,
        typer.Option(help="The file: .gif, or .html, which any browser shows without a server."),
    ] = Path("motion.html"),
    start: Annotated[int, typer.Option(min=0, help="Which of the test's starts.")] = 0,
    seconds: Annotated[
        float, typer.Option(min=0.1, help="How long it takes before it begins anew.")
    ] = 8.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a script.")] = False,
) -> None:
    """Let a learned system move beside the true one, from a start that no model has seen.

    Example: `undamped animate runs/pendulum-hnn-1 --out pendulum.gif`
    """
    from undamped.lab.cli.members import ticking
    from undamped.lab.cli.screen import console, print_json
    from undamped.lab.instruments.motion_paths import motion_paths
    from undamped.lab.report.animation import animate as write
    from undamped.lab.report.animation import refuse_path
    from undamped.lab.training.run import Run
    from undamped.models.physics.state_model import StateModel

    refuse_path(out)
    pictures, first = {}, None
    with ticking("animate") as tick:
        for folder in runs:
            run = Run.open(folder)
            model, name = run.model(), run.settings["model"]["name"]
            if not isinstance(model, StateModel):
                raise _unfit(folder, "a run about a system that moves", name)
            about = (run.settings["task"]["name"], run.settings.get("system"))
            if first is not None and about != first:
                raise _unfit(folder, f"a run about the same system as {runs[0]}", about[0])
            first = about
            name = folder.name if name in pictures else name
            tick(f"following {name}")
            pictures[name] = motion_paths(model, run.task(), start=start, name=name)
        write(pictures, out, seconds=seconds, progress=tick)
    if as_json:
        print_json({"file": str(out), "runs": {n: p.sentence for n, p in pictures.items()}})
        return
    for name, picture in pictures.items():
        console().print(f"{name}: {picture.sentence}")
    console().print(f"Written to {out}.")


def _unfit(folder: Path, expected: str, got: str) -> Exception:
    from undamped._base.errors import OptionError, explain

    return OptionError(
        explain(str(folder), expected=expected, got=f"one of '{got}'", remedy="Leave it out.")
    )
