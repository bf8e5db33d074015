"""A picture of recordings: a few series, the labels, the lengths, and where values are missing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from undamped.lab.cli.figures import COLOURS

if TYPE_CHECKING:
    from undamped.lab.data.recordings.findings import Findings
    from undamped.lab.data.recordings.series import SeriesSet

SERIES, POINTS, PARTS = 4, 2000, 50


def draw_recordings(path: Path, series_set: SeriesSet, found: Findings) -> None:
    """Draw what was found into a picture file."""
    from matplotlib.figure import Figure

    from undamped._base.files import write_atomically

    figure: Any = Figure(figsize=(10, 6.4), dpi=110, layout="constrained")
    top, bottom = figure.subfigures(2, 1, height_ratios=(1.3, 1))
    _draw_series(top, series_set)
    balance, lengths, gaps = bottom.subplots(1, 3)
    _draw_targets(balance, series_set, found)
    lengths.hist(series_set.lengths, bins=20, color=COLOURS[0])
    lengths.set_xlabel("steps of a series")
    lengths.set_ylabel("series")
    lengths.set_title("lengths", fontsize=9)
    _draw_gaps(gaps, series_set)
    for axes in (balance, lengths):
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"{Path(series_set.source).name}: {found.summary}", fontsize=10)
    kind = path.suffix.lstrip(".")
    write_atomically(path, lambda temporary: figure.savefig(temporary, format=kind))


def _chosen(series_set: SeriesSet) -> list[int]:
    """Return a few series, of different labels where there are such."""
    targets = series_set.targets
    if targets is None or isinstance(targets, list):
        return list(range(min(SERIES, len(series_set))))
    _, first = np.unique(np.asarray(targets).astype(str), return_index=True)
    others = [number for number in range(len(series_set)) if number not in first]
    return [*first[:SERIES].tolist(), *others][: min(SERIES, len(series_set))]


def _draw_series(panel: Any, series_set: SeriesSet) -> None:
    chosen = _chosen(series_set)
    rows = panel.subplots(len(chosen), 1, squeeze=False)[:, 0]
    for axes, number in zip(rows, chosen, strict=True):
        one = series_set.series[number]
        step = max(1, len(one) // POINTS)
        for place, channel in enumerate(series_set.channels[: len(COLOURS)]):
            axes.plot(
                np.arange(0, len(one), step),
                np.asarray(one[::step, place]),
                color=COLOURS[place],
                linewidth=0.8,
                label=channel,
            )
        targets = series_set.targets
        label = "" if targets is None or isinstance(targets, list) else f" · {targets[number]}"
        axes.set_ylabel(f"{series_set.ids[number]}{label}"[:22], fontsize=7, rotation=0, ha="right")
        axes.tick_params(labelsize=6)
        axes.spines[["top", "right"]].set_visible(False)
    rows[0].legend(frameon=False, fontsize=7, ncols=4, loc="lower right", bbox_to_anchor=(1, 1))
    rows[-1].set_xlabel("time step", fontsize=8)


def _draw_targets(axes: Any, series_set: SeriesSet, found: Findings) -> None:
    if found.classes:
        shown = dict(list(found.classes.items())[:20])
        axes.barh([name[:14] for name in shown], list(shown.values()), color=COLOURS[2])
        axes.invert_yaxis()
        axes.set_xlabel("steps" if series_set.stepwise else "series")
        axes.set_title("labels", fontsize=9)
    elif series_set.targets is not None and found.target_range is not None:
        values = np.concatenate([np.ravel(np.asarray(t, dtype=float)) for t in series_set.targets])
        axes.hist(values[~np.isnan(values)], bins=30, color=COLOURS[2])
        axes.set_xlabel("target")
        axes.set_title("targets", fontsize=9)
    else:
        axes.text(0.5, 0.5, "no target", ha="center", va="center")
        axes.set_axis_off()


def _draw_gaps(axes: Any, series_set: SeriesSet) -> None:
    """Draw the share of missing values along the relative time of all series."""
    missing = np.zeros((len(series_set.channels), PARTS))
    total = np.zeros(PARTS)
    for one in series_set.series:
        place = np.arange(len(one)) * PARTS // len(one)
        total += np.bincount(place, minlength=PARTS)
        gone = np.isnan(one)
        for channel in range(one.shape[1]):
            missing[channel] += np.bincount(place, gone[:, channel], minlength=PARTS)
    share = missing / np.maximum(total, 1)
    drawn = axes.imshow(
        share,
        aspect="auto",
        vmin=0,
        vmax=max(0.01, share.max()),
        cmap="cividis",
        extent=(0, 1, 0, 1),
    )
    names = series_set.channels
    if len(names) <= 12:
        axes.set_yticks([1 - (i + 0.5) / len(names) for i in range(len(names))], names, fontsize=7)
    else:
        axes.set_yticks([])
    axes.set_xlabel("part of the series")
    axes.set_title("share of missing values", fontsize=9)
    axes.figure.colorbar(drawn, ax=axes, format="{x:.0%}")
