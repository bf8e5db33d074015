"""Who is told how a fetch is going."""

from __future__ import annotations


class Listener:
    """Hears what happens and keeps it to itself; the command line has one that draws bars."""

    def note(self, text: str) -> None:
        """Hear a sentence: a source tried, a source that failed, what was found."""

    def begin(self, what: str, total: int | None) -> None:
        """Hear that something of `total` bytes begins; None where the size is not known."""

    def advance(self, count: int) -> None:
        """Hear that `count` further bytes are there."""

    def end(self) -> None:
        """Hear that it is over, well or badly."""


def human(size: int | None) -> str:
    """Return a number of bytes as a person would say it.

    Example:
        >>> human(11_496_804)
        '11.5 MB'
    """
    if size is None:
        return "unknown size"
    value = float(size)
    for unit in ("B", "kB", "MB"):
        if value < 999.5:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"
