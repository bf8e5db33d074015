"""Drawing the runs of a comparison: validation against time, one colour per model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from undamped.lab.tasks.task import Task
    from undamped.lab.training.run import Run

KINDS = (".png", ".svg")
# Okabe and Ito's palette, which colour-blind readers can tell apart.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#F0E442", "#000000")


def check_figure(path: Path | None) -> None:
    """Refuse a place for a picture that cannot be drawn to, before any work is done."""
    from undamped._base.errors import OptionError

    if path is not None and (path.suffix not in KINDS or not path.parent.is_dir() or path.is_dir()):
        raise OptionError(
            f"--figure: expected a .png or .svg file in a folder that exists, got '{path}'. "
            "Choose another name."
        )


def draw_curves(path: Path, task: Task, runs: dict[str, list[Run]]) -> None:
    """Draw the validation curves of all runs into a picture file."""
    from matplotlib.figure import Figure

    from undamped._base.files import write_atomically

    figure = Figure(figsize=(7, 3.6), dpi=110, layout="constrained")
    axes = figure.add_subplot()
    name = task.metric.replace("_", " ")
    for (model, members), colour in zip(runs.items(), COLOURS * len(runs), strict=False):
        for number, run in enumerate(members):
            rows = run.metrics()
            axes.plot(
                [row["seconds"] for row in rows],
                [row[f"valid_{task.metric}"] for row in rows],
                color=colour,
                alpha=0.9,
                linewidth=1.6,
                label=model if number == 0 else None,
            )
    axes.axhline(task.chance.metric, color="0.4", linestyle=":", label="a guess")
    axes.set_xlabel("training time (s)")
    axes.set_ylabel(f"validation {name}")
    if task.metric == "accuracy":
        axes.set_ylim(0, 1)
    elif not task.higher_is_better:
        axes.set_yscale("log")
    seeds = max((len(members) for members in runs.values()), default=0)
    axes.set_title(f"{task.describe()} {seeds} seed{'s' if seeds != 1 else ''}", fontsize=9)
    axes.legend(frameon=False, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    kind = path.suffix.lstrip(".")
    write_atomically(path, lambda temporary: figure.savefig(temporary, format=kind))
