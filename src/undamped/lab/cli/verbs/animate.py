"""`undamped animate RUN --out motion.gif`: a learned system next to the true one."""

from __future__ import annotations

from undamped._base.errors import OptionError
from undamped.lab.cli.commands.runs import Animate
from undamped.lab.cli.progress import progress_bar
from undamped.lab.cli.screen import print_json, print_lines
from undamped.lab.instruments.motion_paths import motion_paths
from undamped.lab.report.animation import animate as write
from undamped.lab.report.animation import refuse_path
from undamped.lab.training.run import Run
from undamped.models.physics.state_model import StateModel


def animate(options: Animate) -> None:
    """Predict the motion of every run and write the animation."""
    runs, out = options.runs, options.out
    refuse_path(out)
    paths, first = {}, None
    with progress_bar("animate") as progress:
        for folder in runs:
            run = Run.open(folder)
            model, name = run.model(), run.settings["model"]["name"]
            if not isinstance(model, StateModel):
                raise OptionError(f"{folder} is not a run of a physical system, but of '{name}'.")
            system = (run.settings["task"]["name"], run.settings.get("system"))
            if first is not None and system != first:
                raise OptionError(
                    f"{folder} is a run of '{system[0]}', not of the same system as {runs[0]}."
                )
            first = system
            name = folder.name if name in paths else name
            progress(f"motion of {name}")
            paths[name] = motion_paths(model, run.task(), start=options.start, name=name)
        write(paths, out, seconds=options.seconds, progress=progress)
    if options.as_json:
        print_json({"file": str(out), "runs": {n: p.sentence for n, p in paths.items()}})
        return
    print_lines(*(f"{name}: {path.sentence}" for name, path in paths.items()))
    print_lines(f"Animation: {out}")
