"""Motion as a file that moves: bodies, true beside learned, as GIF or as one HTML page."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from undamped._base.errors import OptionError, explain
from undamped._base.files import refuse_folder, write_atomically, write_text
from undamped.analysis.core.figures import PALETTE
from undamped.analysis.core.result import plain
from undamped.lab.instruments.motion_picture import MotionPicture
from undamped.lab.report.page import embedded, policy

KINDS = (".gif", ".html")
FRAMES = 150
SECONDS = 8.0
TRAIL = 40
"""How many frames a trail remembers."""
DIGITS = 4


def animate(
    pictures: Mapping[str, MotionPicture],
    path: str | Path,
    *,
    seconds: float = SECONDS,
    tick: Callable[[str], None] | None = None,
) -> None:
    """Write bodies in motion, the true ones and those of every model side by side.

    Args:
        pictures: What was drawn of each model, by its name; from one task and one start.
        path: A file that ends in .gif, or in .html, which needs no server.
        seconds: How long it takes before it begins anew.
        tick: Called after every frame with a line that says which, for a progress bar.

    Example:
        >>> animate({"hnn": motion_picture(model, task)}, "pendulum.gif")
    """
    path = Path(path)
    refuse_path(path)
    if path.suffix == ".html":
        write_text(path, _page(pictures, seconds))
    else:
        write_atomically(path, lambda there: _write_gif(pictures, there, seconds, tick))


def refuse_path(path: Path) -> None:
    """Refuse a file that cannot hold an animation; worth asking before long work."""
    refuse_folder(path)
    if path.suffix not in KINDS or not path.parent.is_dir():
        raise OptionError(
            explain(
                str(path),
                expected=f"a file that ends in {' or '.join(KINDS)}, in a folder that exists",
                got="another",
                remedy="For example motion.gif.",
            )
        )


def _panels(pictures: Mapping[str, MotionPicture]) -> dict[str, np.ndarray]:
    """Return what stands in every panel, (times, bodies, 2)."""
    first = next(iter(pictures.values()))
    return {"true": first.true, **{name: one.learned for name, one in pictures.items()}}


def _limits(first: MotionPicture) -> tuple[float, float, float, float]:
    """Return left, right, bottom and top: the true paths or all that rods can reach, and room."""
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


def _page(pictures: Mapping[str, MotionPicture], seconds: float) -> str:
    first = next(iter(pictures.values()))
    scene = {
        "times": np.round(first.times, DIGITS).tolist(),
        "speed": float(first.times[-1]) / seconds,
        "rods": first.rods,
        "limits": _limits(first),
        "panels": [
            {"title": name, "paths": _points(paths)} for name, paths in _panels(pictures).items()
        ],
    }
    names = ", ".join(pictures)
    caption = f"The true motion beside {names}. {first.axes[0]} across, {first.axes[1]} upwards."
    text = (files("undamped.lab.report") / "assets" / "motion.html").read_text(encoding="utf-8")
    script = text.partition("<script>")[2].partition("</script>")[0]
    parts = {
        "POLICY": policy(script),
        "TITLE": html.escape(f"Bodies in motion: {names}"),
        "CAPTION": html.escape(caption),
        "SCENE": embedded(plain(scene)),
    }
    # In one pass: a model may be called like one of the places.
    return re.sub("__([A-Z]+)__", lambda place: parts[place[1]], text)


def _points(paths: np.ndarray) -> list[list[list[float] | None]]:
    """Return points as JSON has them, null where a body is lost."""
    rounded = np.round(paths, DIGITS)
    return [[p.tolist() if np.isfinite(p).all() else None for p in bodies] for bodies in rounded]


def _write_gif(
    pictures: Mapping[str, MotionPicture],
    path: Path,
    seconds: float,
    tick: Callable[[str], None] | None,
) -> None:
    from matplotlib.animation import PillowWriter
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    first, panels = next(iter(pictures.values())), _panels(pictures)
    chosen = np.unique(np.linspace(0, len(first.times) - 1, FRAMES).round().astype(int))
    figure = Figure(figsize=(2.9 * len(panels), 3.2), dpi=80, layout="constrained")
    FigureCanvasAgg(figure)
    places = figure.subplots(1, len(panels), squeeze=False)[0]
    colours = ("#7F7F7F", *(colour for colour in PALETTE if colour != "#7F7F7F"))
    drawn = [
        _Panel(axes, title, paths, first, colours[number % len(colours)])
        for number, (axes, (title, paths)) in enumerate(zip(places, panels.items(), strict=True))
    ]
    writer = PillowWriter(fps=max(1, round(len(chosen) / seconds)))
    writer.setup(figure, str(path.with_suffix(".gif")))
    for count, at in enumerate(chosen):
        for panel in drawn:
            panel.show(at, chosen[max(0, count - TRAIL)])
        figure.suptitle(f"time {first.times[at]:.2f}", fontsize=9)
        writer.grab_frame()
        if tick is not None:
            tick(f"frame {count + 1} of {len(chosen)}")
    writer.finish()
    path.with_suffix(".gif").replace(path)


class _Panel:
    """One set of axes with bodies, rods and trails that can be moved.

    Args:
        axes: Matplotlib's axes.
        title: What moves there.
        paths: Where its bodies go, (times, bodies, 2).
        picture: What knows rods and axes.
        colour: Of bodies and trails.
    """

    def __init__(
        self, axes: Any, title: str, paths: np.ndarray, picture: MotionPicture, colour: str
    ) -> None:
        self.paths, self.rods = paths, picture.rods
        left, right, bottom, top = _limits(picture)
        axes.set(xlim=(left, right), ylim=(bottom, top), title=title)
        axes.set_xlabel(picture.axes[0])
        axes.set_ylabel(picture.axes[1])
        if picture.equal:
            axes.set_aspect("equal")
        bodies = range(paths.shape[1])
        self.trails = [axes.plot([], [], color=colour, alpha=0.4, linewidth=1)[0] for _ in bodies]
        self.lines = [axes.plot([], [], color="#666666", linewidth=2)[0] for _ in self.rods]
        self.points = axes.plot([], [], "o", color=colour, markersize=6)[0]

    def show(self, at: int, since: int) -> None:
        """Move everything to a time."""
        now = self.paths[at]
        for body, trail in enumerate(self.trails):
            trail.set_data(*self.paths[since : at + 1, body].T)
        everything = np.concatenate((np.zeros((1, 2)), now))
        for pair, line in zip(self.rods, self.lines, strict=True):
            line.set_data(*everything[list(pair)].T)
        self.points.set_data(*now.T)
