"""One comparison of the benchmark of physics networks: a table and what it says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from undamped.lab.benchmarks.tables import markdown_table
from undamped.lab.benchmarks.timing import Timing


@dataclass(frozen=True)
class Section:
    """A table with its sentences.

    Args:
        title: What was compared.
        heads: Headings.
        rows: One text for each heading.
        sentences: What was wanted, and what came.
        numbers: Everything measured, for JSON.
    """

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    sentences: tuple[str, ...]
    numbers: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers for JSON."""
        return {"title": self.title, **self.numbers}

    def markdown(self) -> str:
        """Return table and sentences for a page."""
        table = markdown_table(self.heads, self.rows)
        return "\n\n".join([f"**{self.title}**", table, *self.sentences])


def timing_rows(timings: Mapping[str, Timing], ours: str) -> tuple[tuple[str, ...], ...]:
    """Return names, milliseconds, and how many times as long as ours each takes."""
    return tuple(
        (name, f"{1e3 * timing.median:.2f}", f"{timing.over(timings[ours]):.2f}")
        for name, timing in timings.items()
    )
