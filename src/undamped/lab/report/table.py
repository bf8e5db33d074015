"""Tables of results, and the report that every experiment and benchmark returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any

import torch

from undamped._base.options import options_of, refuse_unknown
from undamped._base.registry import Registry

Progress = Callable[..., None]
"""Called with a line of text and, where it is known, the fraction of the work that is finished."""


def silent(*message: Any) -> None:
    """Ignore progress messages."""


@dataclass(frozen=True)
class Table:
    """A table of text cells, for a Markdown page, a terminal or JSON.

    Args:
        header: The heading of every column.
        rows: One text for every column.
        title: A sentence above the table.
        notes: Paragraphs below the table.
        text_columns: How many columns on the left hold text; numbers are aligned to the right.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    notes: Sequence[str] = ()
    text_columns: int = 1

    def markdown(self) -> str:
        """Return title, table and notes for a Markdown page."""
        numbers = len(self.header) - self.text_columns
        rule = "|" + "---|" * self.text_columns + "---:|" * numbers
        grid = [_line(self.header), rule, *map(_line, self.rows)] if self.header else []
        paragraphs = [self.title, "\n".join(grid), *self.notes]
        return "\n\n".join(text for text in paragraphs if text)

    def terminal(self) -> Any:
        """Return what rich prints in a terminal."""
        from rich.console import Group
        from rich.table import Table as RichTable

        table = RichTable(title=self.title or None, title_justify="left")
        for number, heading in enumerate(self.header):
            table.add_column(heading, justify="left" if number < self.text_columns else "right")
        for row in self.rows:
            table.add_row(*row)
        return Group(*([table] if self.header else []), *self.notes)

    def to_dict(self) -> dict[str, Any]:
        """Return the cells for JSON."""
        return {
            "title": self.title,
            "header": list(self.header),
            "rows": [list(row) for row in self.rows],
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class Report:
    """The result of an experiment or benchmark: records, tables and figures, with the settings.

    Args:
        records: What was measured, one dataclass or mapping for each run.
        tables: The tables that are printed.
        plots: Functions that draw the matplotlib figures, by name.
        numbers: Further numbers for JSON, by name.
        settings: Conditions of the measurement; the decorator `reports` adds the options.
        motions: Motions to animate, by the name of the animation.
    """

    records: Sequence[Any]
    tables: Sequence[Table]
    plots: Mapping[str, Callable[[], Any]] = field(default_factory=dict)
    numbers: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    motions: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return settings, records, further numbers and tables for JSON."""
        return {
            "settings": plain(self.settings),
            "records": plain(self.records),
            **plain(self.numbers),
            "tables": [table.to_dict() for table in self.tables],
        }

    def markdown(self) -> str:
        """Return all tables for a Markdown page."""
        return "\n\n".join(table.markdown() for table in self.tables) + "\n"

    def summary(self) -> Any:
        """Return all tables for a terminal."""
        from rich.console import Group

        return Group(*(table.terminal() for table in self.tables))

    def figures(self) -> dict[str, Any]:
        """Draw and return the figures."""
        return {name: draw() for name, draw in self.plots.items()}

    def animations(self) -> dict[str, Any]:
        """Return the motions that can be animated."""
        return dict(self.motions)


def reports(registry: Registry[Any], name: str) -> Callable[[Callable[..., Report]], Any]:
    """Return a decorator that registers a function which returns a `Report`.

    A group of options, `**options: Unpack[Group]`, arrives complete. The settings of the report
    are the options without folder and progress, and the number of threads.

    Args:
        registry: `experiments` or `benchmarks`.
        name: The name.
    """

    def register(function: Callable[..., Report]) -> Any:
        @registry.register(name)
        @wraps(function)
        def run(**options: Any) -> Report:
            declared = options_of(run)
            refuse_unknown(name, options, list(declared))
            options = {key: option.default for key, option in declared.items()} | options
            report = function(**options)
            conditions = {key: options[key] for key in options if key not in ("out", "progress")}
            conditions["threads"] = torch.get_num_threads()
            return replace(report, settings={**conditions, **report.settings})

        return run

    return register


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it; fields that are tensors or arrays are left out.

    Args:
        value: Numbers, text, dataclasses, objects with `to_dict`, and collections of these.
    """
    if hasattr(value, "to_dict"):
        return plain(value.to_dict())
    if is_dataclass(value) and not isinstance(value, type):
        value = {item.name: getattr(value, item.name) for item in fields(value)}
    if isinstance(value, Mapping):
        items = {str(key): item for key, item in value.items()}
        return {key: plain(item) for key, item in items.items() if not hasattr(item, "dtype")}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
