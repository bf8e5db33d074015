"""Trials of a task of images on a terminal, two pixels per character."""

from __future__ import annotations

import numpy as np
from rich.console import Console
from rich.style import Style
from rich.text import Text

from undamped.lab.report.trials import Trial

LARGEST = 14
"""The maximum width of an image on a terminal, in characters."""
SHADES = {(True, True): "█", (True, False): "▀", (False, True): "▄", (False, False): " "}


def print_trials(screen: Console, trials: list[Trial]) -> None:
    """Draw trials below each other, as wide as the terminal allows.

    Args:
        screen: The console.
        trials: The trials.
    """
    longest = max(len(row) for trial in trials for row in trial.rows)
    side = max(4, min(LARGEST, (screen.width - 4) // longest - 1) // 2 * 2)
    for trial in trials:
        for row in trial.rows:
            images = [_shrink(image, side) for image in row]
            for top in range(0, side, 2):
                line = Text("    ")
                for image in images:
                    if screen.color_system is None:
                        _append_ink(line, _ink(image)[top : top + 2])
                    else:
                        _append_colours(line, image[top : top + 2])
                    line.append(" ")
                screen.print(line, no_wrap=True, overflow="crop")
            screen.print("")
        if trial.answer:
            screen.print(Text(f"    answer: {trial.answer}", style="bold"), "")


def _append_colours(line: Text, pair: np.ndarray) -> None:
    """Append two rows of pixels as one row of characters in two colours."""
    for above, below in zip(*pair, strict=True):
        front, back = (f"rgb({','.join(str(int(255 * v)) for v in p)})" for p in (above, below))
        line.append("▀", style=Style.parse(f"{front} on {back}"))


def _append_ink(line: Text, pair: np.ndarray) -> None:
    """Append two rows of ink as one row of characters."""
    for above, below in zip(*pair, strict=True):
        line.append(SHADES[bool(above), bool(below)])


def _ink(image: np.ndarray) -> np.ndarray:
    """Return which pixels are drawn without colours: the rarer side of the mean brightness."""
    light = image.mean(-1)
    dark = light < (light.min() + light.max()) / 2
    return dark if dark.mean() <= 0.5 else ~dark & (light > light.min())


def _shrink(image: np.ndarray, side: int) -> np.ndarray:
    """Average an image over squares: (side, side, 3)."""
    if min(image.shape[:2]) < side:
        indices = [np.arange(side) * n // side for n in image.shape[:2]]
        return image[np.ix_(*indices)]
    rows, columns = (np.array_split(np.arange(n), side) for n in image.shape[:2])
    return np.array([[image[np.ix_(r, c)].mean((0, 1)) for c in columns] for r in rows])
