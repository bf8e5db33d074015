"""Progress of a fetch, and sizes in readable units."""

from __future__ import annotations


class Listener:
    """Receives the progress of a fetch and ignores it; the command line draws bars instead."""

    def note(self, text: str) -> None:
        """Receive a sentence: which source is tried, which one failed, what was fetched."""

    def begin(self, what: str, total: int | None) -> None:
        """Receive the start of a download of `total` bytes; None if the size is unknown."""

    def advance(self, count: int) -> None:
        """Receive that `count` further bytes have arrived."""

    def end(self) -> None:
        """Receive the end of a download, successful or not."""


def human(size: int | None) -> str:
    """Return a number of bytes in a readable unit.

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
