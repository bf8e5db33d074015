"""Trials of a task of pictures on a terminal: two pixels to a character."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from rich.console import Console

    from undamped.lab.report.trials import Trial

LARGEST = 14
"""Columns of a picture on a terminal, at most."""
SHADES = {(True, True): "█", (True, False): "▀", (False, True): "▄", (False, False): " "}


def print_trials(screen: Console, trials: list[Trial]) -> None:
    """Draw trials below each other, as wide as the terminal allows.

    Args:
        screen: Where.
        trials: What.
    """
    from rich.text import Text

    longest = max(len(row) for trial in trials for row in trial.rows)
    side = max(4, min(LARGEST, (screen.width - 4) // longest - 1) // 2 * 2)
    for trial in trials:
        for row in trial.rows:
            small = [_shrunk(picture, side) for picture in row]
            for top in range(0, side, 2):
                line = Text("    ")
                for picture in small:
                    if screen.color_system is None:
                        _append_ink(line, _ink(picture)[top : top + 2])
                    else:
                        _append_colours(line, picture[top : top + 2])
                    line.append(" ")
                screen.print(line, no_wrap=True, overflow="crop")
            screen.print("")
        if trial.answer:
            screen.print(Text(f"    answer: {trial.answer}", style="bold"), "")


def _append_colours(line: Any, pair: Any) -> None:
    """Add two rows of pixels as one row of characters in two colours."""
    from rich.style import Style

    for above, below in zip(*pair, strict=True):
        front, back = (f"rgb({','.join(str(int(255 * v)) for v in p)})" for p in (above, below))
        line.append("▀", style=Style.parse(f"{front} on {back}"))


def _append_ink(line: Any, pair: Any) -> None:
    """Add two rows of ink as one row of characters."""
    for above, below in zip(*pair, strict=True):
        line.append(SHADES[bool(above), bool(below)])


def _ink(picture: Any) -> Any:
    """Return which pixels are drawn where there is no colour: the side of the mean with fewer."""
    light = picture.mean(-1)
    dark = light < (light.min() + light.max()) / 2
    return dark if dark.mean() <= 0.5 else ~dark & (light > light.min())


def _shrunk(picture: Any, side: int) -> Any:
    """Average a picture over squares: (side, side, 3)."""
    rows = np.array_split(np.arange(picture.shape[0]), side)
    columns = np.array_split(np.arange(picture.shape[1]), side)
    if min(picture.shape[:2]) < side:
        pick = [np.arange(side) * n // side for n in picture.shape[:2]]
        return picture[np.ix_(*pick)]
    return np.array([[picture[np.ix_(r, c)].mean((0, 1)) for c in columns] for r in rows])
