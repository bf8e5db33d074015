"""Figures of commands: validation curves of runs, and recordings of a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from undamped._base.errors import OptionError

if TYPE_CHECKING:
    from undamped.lab.data.recordings.findings import Findings
    from undamped.lab.data.recordings.series import SeriesSet
    from undamped.lab.tasks.task import Task
    from undamped.lab.training.run import Run

KINDS = (".png", ".svg")
# The palette of Okabe and Ito, which colour-blind readers can distinguish.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#F0E442", "#000000")
SERIES, POINTS, BINS = 4, 2000, 50


def check_figure(path: Path | None, option: str = "--figure") -> None:
    """Raise an error for a figure that cannot be written, before any work is done."""
    if path is not None and (path.suffix not in KINDS or not path.parent.is_dir() or path.is_dir()):
        raise OptionError(
            f"{option} must be a .png or .svg file in a folder that exists, got '{path}'."
        )


def save_figure(figure: Any, path: Path, **options: Any) -> None:
    """Write a Matplotlib figure atomically, in the format of the file's ending."""
    from undamped.lab.files import write_atomically  # imports torch, which `show` does not need

    kind = path.suffix.lstrip(".")
    write_atomically(path, lambda file: figure.savefig(file, format=kind, **options))


def draw_curves(path: Path, task: Task, runs: dict[str, list[Run]]) -> None:
    """Plot validation against training time, one colour per model."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.6), dpi=110, layout="constrained")
    axes = figure.add_subplot()
    for (model, seeds), colour in zip(runs.items(), COLOURS * len(runs), strict=False):
        for index, run in enumerate(seeds):
            rows = run.metrics()
            axes.plot(
                [row["seconds"] for row in rows],
                [row[f"valid_{task.metric}"] for row in rows],
                color=colour,
                alpha=0.9,
                linewidth=1.6,
                label=model if index == 0 else None,
            )
    axes.axhline(task.chance.metric, color="0.4", linestyle=":", label="chance level")
    axes.set_xlabel("training time (s)")
    axes.set_ylabel(f"validation {task.metric.replace('_', ' ')}")
    if task.metric == "accuracy":
        axes.set_ylim(0, 1)
    elif not task.higher_is_better:
        axes.set_yscale("log")
    count = max(map(len, runs.values()), default=0)
    axes.set_title(f"{task.describe()} {count} seed{'s' if count != 1 else ''}", fontsize=9)
    axes.legend(frameon=False, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    save_figure(figure, path)


def draw_recordings(path: Path, series_set: SeriesSet, findings: Findings) -> None:
    """Plot a few series, the labels, the lengths and the missing values of a file."""
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(10, 6.4), dpi=110, layout="constrained")
    top, bottom = figure.subfigures(2, 1, height_ratios=(1.3, 1))
    _draw_series(top, series_set)
    balance, lengths, gaps = bottom.subplots(1, 3)
    _draw_targets(balance, series_set, findings)
    lengths.hist(series_set.lengths, bins=20, color=COLOURS[0])
    lengths.set_xlabel("steps of a series")
    lengths.set_ylabel("series")
    lengths.set_title("lengths", fontsize=9)
    _draw_gaps(gaps, series_set)
    for axes in (balance, lengths):
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"{Path(series_set.source).name}: {findings.summary}", fontsize=10)
    save_figure(figure, path)


def _examples(series_set: SeriesSet) -> list[int]:
    """Return the indices of a few series, if possible with different labels."""
    import numpy as np

    targets = series_set.targets
    if targets is None or isinstance(targets, list):
        return list(range(min(SERIES, len(series_set))))
    _, first = np.unique(np.asarray(targets).astype(str), return_index=True)
    others = [index for index in range(len(series_set)) if index not in first]
    return [*first[:SERIES].tolist(), *others][: min(SERIES, len(series_set))]


def _draw_series(panel: Any, series_set: SeriesSet) -> None:
    import numpy as np

    examples = _examples(series_set)
    rows = panel.subplots(len(examples), 1, squeeze=False)[:, 0]
    for axes, index in zip(rows, examples, strict=True):
        series = series_set.series[index]
        step = max(1, len(series) // POINTS)
        for column, channel in enumerate(series_set.channels[: len(COLOURS)]):
            axes.plot(
                np.arange(0, len(series), step),
                np.asarray(series[::step, column]),
                color=COLOURS[column],
                linewidth=0.8,
                label=channel,
            )
        targets = series_set.targets
        label = "" if targets is None or isinstance(targets, list) else f" · {targets[index]}"
        axes.set_ylabel(f"{series_set.ids[index]}{label}"[:22], fontsize=7, rotation=0, ha="right")
        axes.tick_params(labelsize=6)
        axes.spines[["top", "right"]].set_visible(False)
    rows[0].legend(frameon=False, fontsize=7, ncols=4, loc="lower right", bbox_to_anchor=(1, 1))
    rows[-1].set_xlabel("time step", fontsize=8)


def _draw_targets(axes: Any, series_set: SeriesSet, findings: Findings) -> None:
    import numpy as np

    if findings.classes:
        counts = dict(list(findings.classes.items())[:20])
        axes.barh([name[:14] for name in counts], list(counts.values()), color=COLOURS[2])
        axes.invert_yaxis()
        axes.set_xlabel("steps" if series_set.stepwise else "series")
        axes.set_title("labels", fontsize=9)
    elif series_set.targets is not None and findings.target_range is not None:
        values = np.concatenate([np.ravel(np.asarray(t, dtype=float)) for t in series_set.targets])
        axes.hist(values[~np.isnan(values)], bins=30, color=COLOURS[2])
        axes.set_xlabel("target")
        axes.set_title("targets", fontsize=9)
    else:
        axes.text(0.5, 0.5, "no target", ha="center", va="center")
        axes.set_axis_off()


def _draw_gaps(axes: Any, series_set: SeriesSet) -> None:
    """Plot the fraction of missing values along the relative time of all series."""
    import numpy as np

    missing = np.zeros((len(series_set.channels), BINS))
    total = np.zeros(BINS)
    for series in series_set.series:
        bins = np.arange(len(series)) * BINS // len(series)
        total += np.bincount(bins, minlength=BINS)
        absent = np.isnan(series)
        for channel in range(series.shape[1]):
            missing[channel] += np.bincount(bins, absent[:, channel], minlength=BINS)
    fraction = missing / np.maximum(total, 1)
    top = max(0.01, fraction.max())
    image = axes.imshow(
        fraction, aspect="auto", vmin=0, vmax=top, cmap="cividis", extent=(0, 1, 0, 1)
    )
    names = series_set.channels
    if len(names) <= 12:
        axes.set_yticks([1 - (i + 0.5) / len(names) for i in range(len(names))], names, fontsize=7)
    else:
        axes.set_yticks([])
    axes.set_xlabel("position in the series")
    axes.set_title("fraction of missing values", fontsize=9)
    axes.figure.colorbar(image, ax=axes, format="{x:.0%}")
