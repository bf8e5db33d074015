"""Animations of bodies, true and learned, as a GIF or an HTML page."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from undamped._base.errors import OptionError
from undamped.analysis.core.figures import PALETTE
from undamped.analysis.core.result import plain
from undamped.lab.files import refuse_folder, write_atomically, write_text
from undamped.lab.instruments.motion_paths import MotionPaths
from undamped.lab.report.page import asset, embedded, policy

KINDS = (".gif", ".html")
FRAMES = 150
SECONDS = 8.0
TRAIL = 40
"""Length of a trail in frames."""
DIGITS = 4


def animate(
    motions: Mapping[str, MotionPaths],
    path: str | Path,
    *,
    seconds: float = SECONDS,
    progress: Callable[[str], None] | None = None,
) -> None:
    """Write an animation of the true bodies and those of every model, side by side.

    Args:
        motions: The paths of each model by its name, from one task and one initial state.
        path: A file that ends in .gif or .html; the latter needs no server.
        seconds: Duration of one loop.
        progress: Called with a message after every frame, for a progress bar.

    Example:
        >>> animate({"hnn": motion_paths(model, task)}, "pendulum.gif")
    """
    path = Path(path)
    refuse_path(path)
    if path.suffix == ".html":
        write_text(path, _page(motions, seconds))
    else:
        write_atomically(path, lambda file: _write_gif(motions, file, seconds, progress))


def refuse_path(path: Path) -> None:
    """Raise OptionError if a file cannot be an animation, before long computations."""
    refuse_folder(path)
    if not path.parent.is_dir():
        raise OptionError(f"No such folder: {path.parent}")
    if path.suffix not in KINDS:
        raise OptionError(f"The name of an animation ends in {' or '.join(KINDS)}, got {path}.")


def _panels(motions: Mapping[str, MotionPaths]) -> dict[str, np.ndarray]:
    """Return the paths of every panel, (times, bodies, 2)."""
    first = next(iter(motions.values()))
    return {"true": first.true, **{name: motion.learned for name, motion in motions.items()}}


def _limits(first: MotionPaths) -> tuple[float, float, float, float]:
    """Return left, right, bottom and top of the true paths, or of the reach of rods."""
    points = first.true.reshape(-1, 2)
    if first.equal and any(0 in pair for pair in first.rods):
        start = np.concatenate((np.zeros((1, 2)), first.true[0]))
        reach = sum(np.linalg.norm(start[a] - start[b]) for a, b in first.rods)
        points = np.array([[-reach, -reach], [reach, reach]])
    low, high = points.min(0), points.max(0)
    middle, half = (low + high) / 2, np.maximum((high - low) / 2, 1e-6) * 1.15
    if first.equal:
        half = np.full(2, half.max())
    ends = np.stack((middle - half, middle + half), axis=1).ravel()
    return tuple(float(f"{end:.4g}") for end in ends)  # type: ignore[return-value]


def _page(motions: Mapping[str, MotionPaths], seconds: float) -> str:
    first = next(iter(motions.values()))
    scene = {
        "times": np.round(first.times, DIGITS).tolist(),
        "speed": float(first.times[-1]) / seconds,
        "rods": first.rods,
        "limits": _limits(first),
        "panels": [
            {"title": name, "paths": _points(paths)} for name, paths in _panels(motions).items()
        ],
    }
    names = ", ".join(motions)
    caption = f"The true motion beside {names}. {first.axes[0]} across, {first.axes[1]} upwards."
    text = asset("motion.html")
    script = text.partition("<script>")[2].partition("</script>")[0]
    texts = {
        "POLICY": policy(script),
        "TITLE": html.escape(f"Bodies in motion: {names}"),
        "CAPTION": html.escape(caption),
        "SCENE": embedded(plain(scene)),
    }
    # In one pass, because the name of a model may look like a placeholder.
    return re.sub("__([A-Z]+)__", lambda match: texts[match[1]], text)


def _points(paths: np.ndarray) -> list[list[list[float] | None]]:
    """Return points for JSON, None where the integration failed."""
    rounded = np.round(paths, DIGITS)
    return [[p.tolist() if np.isfinite(p).all() else None for p in bodies] for bodies in rounded]


def _write_gif(
    motions: Mapping[str, MotionPaths],
    path: Path,
    seconds: float,
    progress: Callable[[str], None] | None,
) -> None:
    from matplotlib.animation import PillowWriter
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    first, panels = next(iter(motions.values())), _panels(motions)
    frames = np.unique(np.linspace(0, len(first.times) - 1, FRAMES).round().astype(int))
    figure = Figure(figsize=(2.9 * len(panels), 3.2), dpi=80, layout="constrained")
    FigureCanvasAgg(figure)
    subplots = figure.subplots(1, len(panels), squeeze=False)[0]
    colours = ("#7F7F7F", *(colour for colour in PALETTE if colour != "#7F7F7F"))
    drawings = [
        _Panel(axes, title, paths, first, colours[number % len(colours)])
        for number, (axes, (title, paths)) in enumerate(zip(subplots, panels.items(), strict=True))
    ]
    writer = PillowWriter(fps=max(1, round(len(frames) / seconds)))
    writer.setup(figure, str(path.with_suffix(".gif")))
    for count, at in enumerate(frames):
        for panel in drawings:
            panel.show(at, frames[max(0, count - TRAIL)])
        figure.suptitle(f"time {first.times[at]:.2f}", fontsize=9)
        writer.grab_frame()
        if progress is not None:
            progress(f"frame {count + 1} of {len(frames)}")
    writer.finish()
    path.with_suffix(".gif").replace(path)


class _Panel:
    """Axes with bodies, rods and trails at one time.

    Args:
        axes: Matplotlib's axes.
        title: Title of the panel.
        paths: Paths of the bodies, (times, bodies, 2).
        motion: Rods and axes.
        colour: Colour of bodies and trails.
    """

    def __init__(
        self, axes: Any, title: str, paths: np.ndarray, motion: MotionPaths, colour: str
    ) -> None:
        self.paths, self.rods = paths, motion.rods
        limits, (x, y) = _limits(motion), motion.axes
        axes.set(xlim=limits[:2], ylim=limits[2:], title=title, xlabel=x, ylabel=y)
        if motion.equal:
            axes.set_aspect("equal")
        bodies = range(paths.shape[1])
        self.trails = [axes.plot([], [], color=colour, alpha=0.4, linewidth=1)[0] for _ in bodies]
        self.lines = [axes.plot([], [], color="#666666", linewidth=2)[0] for _ in self.rods]
        self.points = axes.plot([], [], "o", color=colour, markersize=6)[0]

    def show(self, at: int, since: int) -> None:
        """Draw the bodies at a time, with their trails."""
        now = self.paths[at]
        for body, trail in enumerate(self.trails):
            trail.set_data(*self.paths[since : at + 1, body].T)
        points = np.concatenate((np.zeros((1, 2)), now))
        for pair, line in zip(self.rods, self.lines, strict=True):
            line.set_data(*points[list(pair)].T)
        self.points.set_data(*now.T)
