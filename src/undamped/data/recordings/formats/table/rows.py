"""The rows of a CSV or Parquet file, in pieces of bounded size.

A CSV file is looked through once before it is parsed: a row with too few fields would otherwise
become missing values without a word.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undamped.data.recordings.labels import label_of
from undamped.errors import DataError, explain

if TYPE_CHECKING:
    from pandas import DataFrame

SUFFIXES = (".csv", ".parquet", ".pq")
ROWS_AT_ONCE = 100_000
_NO_NUMBER = ["", "NaN", "nan", "NA", "N/A", "?", "null", "NULL", "None", "none", "-"]
_NO_LABEL = ["", "NaN", "nan", "?"]
_LONG = 1 << 16


@dataclass(frozen=True)
class Table:
    """A table on disk.

    Args:
        path: The file.
        columns: The names of its columns.
        delimiter: What separates the fields of a CSV file; None for Parquet.
        decimal: The decimal point of a CSV file.
    """

    path: Path
    columns: list[str]
    delimiter: str | None = None
    decimal: str = "."

    def pieces(
        self, text: list[str], labels: list[str], rows: int = ROWS_AT_ONCE
    ) -> Iterator[DataFrame]:
        """Return the rows in pieces.

        Args:
            text: Columns that are read as text, such as ids.
            labels: Columns where only an empty field or NaN means that nothing is there.
            rows: How many at once.
        """
        if self.delimiter is None:
            yield from _parquet_pieces(self.path, text, rows)
            return
        import pandas as pd

        missing = {c: _NO_LABEL if c in (*labels, *text) else _NO_NUMBER for c in self.columns}
        try:
            with pd.read_csv(
                self.path,
                sep=self.delimiter,
                decimal=self.decimal,
                header=0,
                names=self.columns,
                index_col=False,
                encoding="utf-8-sig",
                dtype=dict.fromkeys(text, str),
                na_values=missing,
                keep_default_na=False,
                chunksize=rows,
                low_memory=False,
            ) as reader:
                yield from reader
        except (pd.errors.ParserError, pd.errors.EmptyDataError, ValueError) as error:
            if isinstance(error, DataError):
                raise
            raise _wrong(self.path, "rows of one table", _first_line(error)) from None


def open_table(path: Path) -> Table:
    """Look at a table: its columns, its form, and whether every row has as many fields."""
    if not path.is_file():
        raise _wrong(path, "a file", "a folder" if path.is_dir() else "no such file")
    if path.suffix.lower() in (".parquet", ".pq"):
        return Table(path, _parquet_columns(path))
    return _open_csv(path)


def _open_csv(path: Path) -> Table:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = file.readline(_LONG)
            second = file.readline(_LONG)
            if not first.strip():
                raise _wrong(path, "a table with a first line of column names", "an empty file")
            delimiter = max(",;\t", key=first.count)
            columns = [name.strip() for name in next(csv.reader([first], delimiter=delimiter))]
            _check_names(path, columns)
            file.seek(0)
            _check_rows(path, file, delimiter, len(columns))
    except UnicodeDecodeError:
        raise DataError(
            explain(
                str(path),
                expected="UTF-8 text",
                got="other bytes",
                remedy="Save it as UTF-8, for example with iconv.",
            )
        ) from None
    except csv.Error as error:
        raise _wrong(path, "a table", str(error)) from None
    comma = delimiter == ";" and "," in second and "." not in second
    return Table(path, columns, delimiter, "," if comma else ".")


def _check_names(path: Path, columns: list[str]) -> None:
    if all(_is_number(name) for name in columns) and not _counts_up(columns):
        raise _wrong(path, "a first line of column names", "numbers")
    twice = sorted({name for name in columns if columns.count(name) > 1})
    if twice:
        raise _wrong(path, "a different name for every column", f"'{twice[0]}' twice")
    if "" in columns:
        raise _wrong(path, "a name for every column", f"none for column {columns.index('') + 1}")


def _counts_up(columns: list[str]) -> bool:
    """Whether the names are 0, 1, 2, …: steps of a series, not values."""
    first = columns[0]
    return first in ("0", "1") and columns == [str(i + int(first)) for i in range(len(columns))]


def _check_rows(path: Path, file: Any, delimiter: str, width: int) -> None:
    rows, quoted = 0, False
    for number, line in enumerate(file, start=1):
        if '"' in line:
            quoted = quoted or line.count('"') % 2 == 1
            if quoted:  # a field with a line break in it: counting per line makes no sense here
                return
            fields = len(next(csv.reader([line], delimiter=delimiter)))
        else:
            fields = line.count(delimiter) + 1
        if fields != width and line.strip():
            raise DataError(
                explain(
                    f"{path}, line {number}",
                    expected=f"{width} fields, as many as there are column names",
                    got=fields,
                    remedy="Correct that row.",
                )
            )
        rows += bool(line.strip())
    if rows < 2:
        raise _wrong(path, "rows below the column names", "none")


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _pyarrow(path: Path) -> Any:
    try:
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise DataError(
            explain(
                str(path),
                expected="the pyarrow package to read Parquet",
                got="none",
                remedy="Install it with pip install 'undamped[parquet]'.",
            )
        ) from None
    return pyarrow.parquet


def _parquet_columns(path: Path) -> list[str]:
    parquet = _pyarrow(path)
    import pyarrow

    try:
        file = parquet.ParquetFile(path)
        columns, rows = [str(name) for name in file.schema_arrow.names], file.metadata.num_rows
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise _wrong(path, "a Parquet file", _first_line(error)) from None
    columns = [name for name in columns if not name.startswith("__index_level_")]
    if not columns or not rows:
        raise _wrong(path, "a table with rows", "an empty one")
    return columns


def _parquet_pieces(path: Path, text: list[str], rows: int) -> Iterator[DataFrame]:
    parquet = _pyarrow(path)
    import pyarrow

    try:
        for batch in parquet.ParquetFile(path).iter_batches(batch_size=rows):
            frame = batch.to_pandas()
            for name in text:
                frame[name] = frame[name].map(label_of, na_action="ignore")
            yield frame
    except (pyarrow.ArrowException, OSError) as error:
        raise _wrong(path, "a whole Parquet file", _first_line(error)) from None


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


def _wrong(path: Path, expected: str, got: str) -> DataError:
    return DataError(explain(str(path), expected=expected, got=got, remedy="Check the file."))
