"""Where a value of a table stands, for messages."""

from __future__ import annotations

from typing import NamedTuple

from undamped._base.errors import DataError, explain


class Place(NamedTuple):
    """Where a piece of a table begins.

    Args:
        path: The file.
        rows_before: How many rows came before the piece.
        decimal: The decimal mark of the file.
    """

    path: str
    rows_before: int
    decimal: str = "."

    def of(self, column: str, row: int) -> str:
        """Return the place of a value in words; `row` counts from the beginning of the piece."""
        return f"{self.path}: column '{column}', row {self.rows_before + row + 1}"


def wrong_value(
    place: Place,
    column: str,
    row: int,
    expected: str,
    got: str,
    remedy: str = "Correct that place.",
) -> DataError:
    """Return the error for a value that cannot be used."""
    return DataError(explain(place.of(column, row), expected=expected, got=got, remedy=remedy))
