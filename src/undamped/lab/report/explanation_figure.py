"""The figure of an explanation: the recording, its deciding segment, and the contributions."""

from __future__ import annotations

from typing import Any

import numpy as np

from undamped.analysis.core.figures import PALETTE
from undamped.lab.training.explanations import Explanation

_MOST_CHANNELS = 6


def draw_explanation(
    explanation: Explanation, series: np.ndarray, channels: list[str], title: str
) -> Any:
    """Draw a recording with the deciding segment marked, above the contributions of its steps.

    Args:
        explanation: The explanation.
        series: The recording (time, channels).
        channels: The names of the channels.
        title: The answer, in words.

    Returns:
        A matplotlib figure.
    """
    from matplotlib.figure import Figure

    rows = min(len(channels), _MOST_CHANNELS)
    figure = Figure(figsize=(8, 1.5 * (rows + 1) + 0.8), dpi=110, layout="constrained")
    panels = figure.subplots(rows + 1, 1, sharex=True, squeeze=False)[:, 0]
    first, last = explanation.segment.first - 0.5, explanation.segment.last + 0.5
    for panel, name, values in zip(panels, channels, series.T, strict=False):
        panel.plot(values, color="black", lw=1.0)
        panel.set_ylabel(name, fontsize=8)
    effects = panels[-1]
    effects.plot(explanation.effects, color=PALETTE[0], lw=1.4, label="fall when deleted")
    steps = explanation.contributions.sum(1)
    if len(explanation.time_contributions):
        steps = steps + explanation.time_contributions
    if len(steps):
        name = f"contribution ({explanation.method})"
        effects.plot(steps, color=PALETTE[1], lw=1.0, label=name)
    effects.axhline(0, color="0.75", lw=0.8, zorder=0)
    effects.set_ylabel(
        explanation.quantity.split(" in ")[0].replace(" over ", "\nover "), fontsize=8
    )
    effects.set_xlabel("step")
    effects.legend(frameon=False, fontsize=8)
    for panel in panels:
        panel.axvspan(first, last, color=PALETTE[1], alpha=0.25, lw=0)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_title(title, fontsize=9, loc="left")
    return figure
