"""What an experiment is to reach, and whether it did; and the table all of them print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Goal:
    """A number that is to stay below a limit.

    Args:
        words: What the number is.
        value: What was found.
        limit: What it must not exceed.
    """

    words: str
    value: float
    limit: float

    @property
    def met(self) -> bool:
        """Whether it stays below."""
        return self.value <= self.limit

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return {**vars(self), "met": self.met}

    def line(self) -> str:
        """Return a line for a page."""
        sign = "✓" if self.met else "✗"
        return f"- {sign} {self.words}: {self.value:.3g}, at most {self.limit:.3g} wanted."


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown; the first column is text, the others are numbers."""
    lines = [f"| {' | '.join(heads)} |", "|---|" + "---:|" * (len(heads) - 1)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def short(value: float | None) -> str:
    """Write a number that may span decades; nothing where there is none."""
    return "" if value is None else f"{value:.2e}"
