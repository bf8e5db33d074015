"""The rows of a CSV or Parquet file, in pieces of bounded size.

A CSV file is looked through once before it is parsed: a row with too few fields would otherwise
become missing values without a word, a stray quotation mark would swallow rows, and a NUL byte
would cut a number short.
"""

from __future__ import annotations

import contextlib
import csv
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undamped._base.errors import DataError, explain
from undamped.lab.data.recordings.labels import label_of

if TYPE_CHECKING:
    from pandas import DataFrame

SUFFIXES = (".csv", ".parquet", ".pq")
ROWS_AT_ONCE = 100_000
NO_NUMBER = (
    *("", "NaN", "nan", "NA", "N/A", "n/a", "na", "<NA>", "#N/A", "#NA", "?", "-", "--"),
    *("null", "NULL", "Null", "None", "none", "#DIV/0!", "#VALUE!"),
)
_NO_LABEL = ("", "NaN", "nan", "?")
_LONGEST_HEADER = 1 << 24
_ROWS_LOOKED_AT = 100
_LARGE_EXPONENT = re.compile(rb"[eE][+-]?[0-9]{4}")
_EXPONENT_BYTES = 5  # one less than the longest match
_BLOCK = 1 << 20
_WITH_COMMA = re.compile(r"\s*[+-]?\d*,\d+([eE][+-]?\d+)?\s*")
_WITH_POINT = re.compile(r"\s*[+-]?\d*\.\d+([eE][+-]?\d+)?\s*")


@dataclass(frozen=True)
class Table:
    """A table on disk.

    Args:
        path: The file.
        columns: The names of its columns.
        delimiter: What separates the fields of a CSV file; None for Parquet.
        decimal: The decimal mark of a CSV file.
        na: What stands for a missing value, beside the usual words.
        large_exponents: Whether a CSV file may have numbers such as 1e5000. The fast parser of
            pandas wraps around at those, or crashes; the slow one takes half as long again.
    """

    path: Path
    columns: list[str]
    delimiter: str | None = None
    decimal: str = "."
    na: tuple[str, ...] = ()
    large_exponents: bool = False

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
            yield from _parquet_pieces(self.path, text, rows, self.na)
            return
        import pandas as pd

        words = (*labels, *text)
        missing = {c: [*(_NO_LABEL if c in words else NO_NUMBER), *self.na] for c in self.columns}
        parser: Any = "round_trip" if self.large_exponents else None
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
                float_precision=parser,
            ) as reader:
                yield from reader
        except (pd.errors.ParserError, pd.errors.EmptyDataError, ValueError) as error:
            if isinstance(error, DataError):
                raise
            raise _wrong(self.path, "rows of one table", _first_line(error)) from None


def open_table(path: Path, *, decimal: str | None = None, na: Sequence[str] = ()) -> Table:
    """Look at a table: its columns, its form, and whether every row has as many fields.

    Args:
        path: The file.
        decimal: The decimal mark; found in the file if not given.
        na: What stands for a missing value, beside the usual words.
    """
    if not path.is_file():
        raise _wrong(path, "a file", "a folder" if path.is_dir() else "no such file")
    if path.suffix.lower() in (".parquet", ".pq"):
        return Table(path, _parquet_columns(path), na=tuple(na))
    return _open_csv(path, decimal, tuple(na))


def _open_csv(path: Path, decimal: str | None, na: tuple[str, ...]) -> Table:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = file.readline(_LONGEST_HEADER)
            if not first.strip():
                raise _wrong(path, "a table with a first line of column names", "an empty file")
            delimiter = max(",;\t", key=first.count)
            columns = [name.strip() for name in next(csv.reader([first], delimiter=delimiter))]
            _check_names(path, columns)
            file.seek(0)
            _check_rows(path, file, delimiter, len(columns))
            if decimal is None:
                file.seek(0)
                decimal = _decimal_mark(file, delimiter)
    except UnicodeDecodeError:
        raise DataError(
            explain(
                str(path),
                expected="UTF-8 text",
                got="other bytes",
                remedy="Save it as UTF-8, for example with iconv.",
            )
        ) from None
    return Table(path, columns, delimiter, decimal, na, _has_large_exponents(path))


def _has_large_exponents(path: Path) -> bool:
    end = b""
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            if _LARGE_EXPONENT.search(end + block):
                return True
            end = block[-_EXPONENT_BYTES:]
    return False


def _decimal_mark(file: Any, delimiter: str) -> str:
    """Return the decimal mark: a comma if numbers of the first rows have one, and none a point."""
    if delimiter == ",":
        return "."
    comma = False
    for row in itertools.islice(csv.reader(file, delimiter=delimiter), 1, _ROWS_LOOKED_AT):
        if any(_WITH_POINT.fullmatch(field) for field in row):
            return "."
        comma = comma or any(_WITH_COMMA.fullmatch(field) for field in row)
    return "," if comma else "."


def _check_names(path: Path, columns: list[str]) -> None:
    numbers = [float(name) for name in columns if _is_number(name)]
    if len(numbers) == len(columns) and not _counts_up(columns):
        raise _wrong(path, "a first line of column names", "numbers")
    if 2 * len(numbers) >= len(columns) and len(numbers) > 1 and not _are_names(numbers):
        first = next(name for name in columns if _is_number(name))
        raise DataError(
            explain(
                str(path),
                expected="a first line of column names",
                got=f"what looks like values, such as {first}",
                remedy="Put a line of names above them.",
            )
        )
    _refuse_repeated(path, columns)
    if "" in columns:
        raise _wrong(path, "a name for every column", f"none for column {columns.index('') + 1}")


def _refuse_repeated(path: Path, columns: list[str]) -> None:
    twice = sorted(name for name, count in Counter(columns).items() if count > 1)
    if twice:
        raise _wrong(path, "a different name for every column", f"'{twice[0]}' twice")


def _are_names(numbers: list[float]) -> bool:
    """Whether numbers may be names: they rise or fall, as 400.5, 401.0, …, or count somehow."""
    pairs = list(itertools.pairwise(numbers))
    in_order = all(a < b for a, b in pairs) or all(a > b for a, b in pairs)
    low = min(numbers)
    counts = sorted(numbers) == [low + place for place in range(len(numbers))]
    return low >= 0 and (in_order or counts)


def _counts_up(columns: list[str]) -> bool:
    """Whether the names are 0, 1, 2, …: steps of a series, not values."""
    first = columns[0]
    return first in ("0", "1") and columns == [str(i + int(first)) for i in range(len(columns))]


def _check_rows(path: Path, file: Any, delimiter: str, width: int) -> None:
    """Refuse rows with more or fewer fields than there are names, NUL bytes and stray quotes."""
    rows, number = 0, 0
    lines = iter(file)
    for line in lines:
        number += 1
        begin = number
        if "\0" in line:
            raise _wrong(path, "text", f"a NUL byte in line {number}")
        if '"' not in line:
            fields = line.count(delimiter) + 1
        else:
            fields, lines_more = _fields_of_record(path, number, line, lines, delimiter, width)
            number += lines_more
        empty = fields == 1 and not line.strip()
        if fields != width and not empty:
            raise DataError(
                explain(
                    f"{path}, line {begin}",
                    expected=f"{width} fields, as many as there are column names",
                    got=fields,
                    remedy="Correct that row.",
                )
            )
        rows += not empty
    if rows < 2:
        raise _wrong(path, "rows below the column names", "none")


def _fields_of_record(
    path: Path, begin: int, first: str, lines: Iterator[str], delimiter: str, width: int
) -> tuple[int, int]:
    """Return how many fields a row with quotes has, and over how many more lines it goes."""
    with contextlib.suppress(csv.Error):  # as nearly all of them: it ends in its line
        return len(next(csv.reader([first], delimiter=delimiter, strict=True))), 0
    record: list[str] = []

    def taken() -> Iterator[str]:
        for line in itertools.chain([first], lines):
            record.append(line)
            yield line

    try:
        fields = len(next(csv.reader(taken(), delimiter=delimiter)))
    except csv.Error as error:
        raise _wrong(path, f"rows of fields from line {begin} on", str(error)) from None
    if any("\0" in line for line in record):
        raise _wrong(path, "text", f"a NUL byte in the row of line {begin}")
    if sum(line.count(delimiter) == width - 1 for line in record) > 1:
        raise DataError(
            explain(
                f"{path}, line {begin}",
                expected="a quoted field that ends in its row",
                got=f"one that goes on to line {begin + len(record) - 1}, over what looks like "
                "rows",
                remedy="Close the quotation mark, or remove it (or the line breaks within it).",
            )
        )
    return fields, len(record) - 1


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

    with _damage(path, "a Parquet file"):
        file = parquet.ParquetFile(path)
        columns, rows = [str(name) for name in file.schema_arrow.names], file.metadata.num_rows
        groups = (file.metadata.row_group(i) for i in range(file.metadata.num_row_groups))
        stored = sum(group.num_rows for group in groups)
    if rows != stored:
        raise _wrong(path, f"{rows} rows, as the file counts them", str(stored))
    columns = [name for name in columns if not name.startswith("__index_level_")]
    if not columns or not rows:
        raise _wrong(path, "a table with rows", "an empty one")
    _refuse_repeated(path, columns)
    return columns


def _parquet_pieces(
    path: Path, text: list[str], rows: int, na: tuple[str, ...]
) -> Iterator[DataFrame]:
    from pandas.api.types import is_numeric_dtype

    parquet = _pyarrow(path)
    numbers = [float(word) for word in na if _is_number(word)]
    with _damage(path, "a whole Parquet file"):
        file, read = parquet.ParquetFile(path), 0
        for batch in file.iter_batches(batch_size=rows):
            read += batch.num_rows
            # Without metadata, the index of a data frame is a column like all others.
            frame = batch.replace_schema_metadata(None).to_pandas()
            for name in text:
                frame[name] = frame[name].map(label_of, na_action="ignore")
            for name in frame.columns if na else ():
                missing = numbers if is_numeric_dtype(frame[name]) else list(na)
                frame[name] = frame[name].mask(frame[name].isin(missing))
            yield frame
        if read != file.metadata.num_rows:
            counted = f"{file.metadata.num_rows} rows, as the file counts them"
            raise _wrong(path, counted, str(read))


@contextlib.contextmanager
def _damage(path: Path, expected: str) -> Iterator[None]:
    """Turn whatever pyarrow raises at a damaged file into a `DataError`."""
    import pyarrow

    try:
        yield
    except DataError:
        raise
    except (
        pyarrow.ArrowException,
        OSError,
        ValueError,
        TypeError,
        LookupError,
        OverflowError,
    ) as error:
        raise _wrong(path, expected, _first_line(error)) from None


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


def _wrong(path: Path, expected: str, got: str) -> DataError:
    return DataError(explain(str(path), expected=expected, got=got, remedy="Check the file."))
