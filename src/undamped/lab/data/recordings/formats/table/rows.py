"""The rows of a CSV or Parquet file, in blocks of bounded size.

A CSV file is checked before it is parsed: a row with too few fields would otherwise silently become
missing values, a stray quotation mark would swallow rows, and a NUL byte would cut a number short.
It is opened once; every pass over it starts at its beginning again.
"""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import re
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undamped._base.errors import DataError, shortened
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
_SAMPLE_ROWS = 100
_PARQUET_ERRORS = (OSError, ValueError, TypeError, LookupError, OverflowError)
_LARGE_EXPONENT = re.compile(rb"[eE][+-]?[0-9]{4}")
_EXPONENT_BYTES = 5  # one less than the longest match
_BLOCK = 1 << 20
_WITH_COMMA = re.compile(r"\s*[+-]?\d*,\d+([eE][+-]?\d+)?\s*")
_WITH_POINT = re.compile(r"\s*[+-]?\d*\.\d+([eE][+-]?\d+)?\s*")


@dataclass(frozen=True)
class Table:
    """An open table.

    Args:
        path: The file.
        columns: The names of its columns.
        file: The open CSV file; None for Parquet.
        delimiter: The delimiter of a CSV file.
        decimal: The decimal mark of a CSV file.
        na: Further words for a missing value.
        large_exponents: Whether a CSV file may have numbers such as 1e5000. The fast parser of
            pandas wraps around at those, or crashes; the slow one takes half as long again.
    """

    path: Path
    columns: list[str]
    file: io.BufferedReader | None = None
    delimiter: str = ","
    decimal: str = "."
    na: tuple[str, ...] = ()
    large_exponents: bool = False

    def blocks(
        self, text: list[str], labels: list[str], rows: int = ROWS_AT_ONCE
    ) -> Generator[DataFrame]:
        """Return the rows in blocks.

        Args:
            text: Columns that are read as text, such as ids.
            labels: Columns in which only an empty field or NaN is a missing value.
            rows: How many at once.
        """
        if self.file is None:
            yield from _parquet_blocks(self.path, text, rows, self.na)
            return
        self.file.seek(0)
        import pandas as pd

        words = (*labels, *text)
        missing = {c: [*(_NO_LABEL if c in words else NO_NUMBER), *self.na] for c in self.columns}
        parser: Any = "round_trip" if self.large_exponents else None
        try:
            with pd.read_csv(
                self.file,
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
            raise _cannot_parse(self.path, error) from None


@contextlib.contextmanager
def open_table(
    path: Path, *, decimal: str | None = None, na: Sequence[str] = ()
) -> Iterator[Table]:
    """Open a table, and check its column names and the number of fields of every row.

    Args:
        path: The file.
        decimal: The decimal mark; detected if not given.
        na: Further words for a missing value.
    """
    if not path.is_file():
        raise DataError(f"{path} is a folder." if path.is_dir() else f"No such file: {path}")
    if path.suffix.lower() in (".parquet", ".pq"):
        yield Table(path, _parquet_columns(path), na=tuple(na))
        return
    with path.open("rb") as file:
        yield _check_csv(path, file, decimal, tuple(na))


def _check_csv(
    path: Path, file: io.BufferedReader, decimal: str | None, na: tuple[str, ...]
) -> Table:
    text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
    try:
        first = text.readline(_LONGEST_HEADER)
        if not first.strip():
            raise DataError(f"{path} is empty; it needs a first line of column names.")
        delimiter = max(",;\t", key=first.count)
        columns = [name.strip() for name in next(csv.reader([first], delimiter=delimiter))]
        _check_names(path, columns)
        text.seek(0)
        _check_rows(path, text, delimiter, len(columns))
        if decimal is None:
            text.seek(0)
            decimal = _decimal_mark(text, delimiter)
    except UnicodeDecodeError:
        raise DataError(
            f"{path} is not UTF-8 text. Save it as UTF-8, for example with iconv."
        ) from None
    text.detach()  # otherwise the file would be closed with its wrapper
    return Table(path, columns, file, delimiter, decimal, na, _has_large_exponents(file))


def _has_large_exponents(file: io.BufferedReader) -> bool:
    file.seek(0)
    end = b""
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
    for row in itertools.islice(csv.reader(file, delimiter=delimiter), 1, _SAMPLE_ROWS):
        if any(_WITH_POINT.fullmatch(field) for field in row):
            return "."
        comma = comma or any(_WITH_COMMA.fullmatch(field) for field in row)
    return "," if comma else "."


def _check_names(path: Path, columns: list[str]) -> None:
    numbers = [float(name) for name in columns if is_number(name)]
    if len(numbers) == len(columns) and not _counts_up(columns):
        raise DataError(f"{path}: the first line must be column names, got numbers.")
    if 2 * len(numbers) >= len(columns) and len(numbers) > 1 and not _are_names(numbers):
        first = next(name for name in columns if is_number(name))
        raise DataError(
            f"{path}: the first line must be column names, but has values such as "
            f"{shortened(first)}. Add a line of names."
        )
    _check_unique(path, columns)
    if "" in columns:
        raise DataError(f"{path}: column {columns.index('') + 1} has no name.")


def _check_unique(path: Path, columns: list[str]) -> None:
    repeated = sorted(name for name, count in Counter(columns).items() if count > 1)
    if repeated:
        raise DataError(f"{path}: two columns are named '{shortened(repeated[0])}'.")


def _are_names(numbers: list[float]) -> bool:
    """Whether numbers may be names: increasing or decreasing, as 400.5, 401.0, …, or a range."""
    pairs = list(itertools.pairwise(numbers))
    in_order = all(a < b for a, b in pairs) or all(a > b for a, b in pairs)
    low = min(numbers)
    counts = sorted(numbers) == [low + index for index in range(len(numbers))]
    return low >= 0 and (in_order or counts)


def _counts_up(columns: list[str]) -> bool:
    """Whether the names are 0, 1, 2, …: steps of a series, not values."""
    first = columns[0]
    return first in ("0", "1") and columns == [str(i + int(first)) for i in range(len(columns))]


def _check_rows(path: Path, file: Any, delimiter: str, width: int) -> None:
    """Raise an error for a wrong number of fields, a NUL byte or a stray quotation mark."""
    rows, number = 0, 0
    lines = iter(file)
    for line in lines:
        number += 1
        begin = number
        if "\0" in line:
            raise DataError(f"{path}, line {number}: a NUL byte. Is it a text file?")
        if '"' not in line:
            fields = line.count(delimiter) + 1
        else:
            fields, more = _count_quoted_fields(path, number, line, lines, delimiter, width)
            number += more
        empty = fields == 1 and not line.strip()
        if fields != width and not empty:
            raise DataError(
                f"{path}, line {begin}: {fields} fields, but there are {width} column names."
            )
        rows += not empty
    if rows < 2:
        raise DataError(f"{path} has no rows below the column names.")


def _count_quoted_fields(
    path: Path, begin: int, first: str, lines: Iterator[str], delimiter: str, width: int
) -> tuple[int, int]:
    """Return the number of fields of a row with quotes, and how many further lines it spans."""
    with contextlib.suppress(csv.Error):  # nearly every row ends in its line
        return len(next(csv.reader([first], delimiter=delimiter, strict=True))), 0
    record: list[str] = []

    def recorded_lines() -> Iterator[str]:
        for line in itertools.chain([first], lines):
            record.append(line)
            yield line

    try:
        fields = len(next(csv.reader(recorded_lines(), delimiter=delimiter)))
    except csv.Error as error:
        raise DataError(f"{path}, line {begin}: {shortened(error)}.") from None
    if any("\0" in line for line in record):
        raise DataError(f"{path}, line {begin}: a NUL byte in this row. Is it a text file?")
    if sum(line.count(delimiter) == width - 1 for line in record) > 1:
        raise DataError(
            f"{path}, line {begin}: a quoted field does not end in its row but in line "
            f"{begin + len(record) - 1}. Close the quotation mark, or remove it (or the line "
            "breaks within it)."
        )
    return fields, len(record) - 1


def is_number(word: str) -> bool:
    """Whether a word is a number."""
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
            f"{path}: reading Parquet needs pyarrow. Install it with "
            "pip install 'undamped[parquet]'."
        ) from None
    return pyarrow.parquet


def _parquet_columns(path: Path) -> list[str]:
    parquet = _pyarrow(path)

    with _parquet_errors(path):
        file = parquet.ParquetFile(path)
        columns, rows = [str(name) for name in file.schema_arrow.names], file.metadata.num_rows
        groups = (file.metadata.row_group(i) for i in range(file.metadata.num_row_groups))
        stored = sum(group.num_rows for group in groups)
    if rows != stored:
        raise _truncated(path, rows, stored)
    columns = [name for name in columns if not name.startswith("__index_level_")]
    if not columns or not rows:
        raise DataError(f"{path} is an empty table.")
    _check_unique(path, columns)
    return columns


def _parquet_blocks(
    path: Path, text: list[str], rows: int, na: tuple[str, ...]
) -> Iterator[DataFrame]:
    from pandas.api.types import is_numeric_dtype

    parquet = _pyarrow(path)
    numbers = [float(word) for word in na if is_number(word)]
    with _parquet_errors(path):
        file, read = parquet.ParquetFile(path), 0
        for batch in file.iter_batches(batch_size=rows):
            read += batch.num_rows
            # Without metadata, the index of a data frame is a column like any other.
            frame = batch.replace_schema_metadata(None).to_pandas()
            for name in text:
                frame[name] = frame[name].map(label_of, na_action="ignore")
            for name in frame.columns if na else ():
                missing = numbers if is_numeric_dtype(frame[name]) else list(na)
                frame[name] = frame[name].mask(frame[name].isin(missing))
            yield frame
        if read != file.metadata.num_rows:
            raise _truncated(path, file.metadata.num_rows, read)


@contextlib.contextmanager
def _parquet_errors(path: Path) -> Iterator[None]:
    """Turn every error that pyarrow raises for a damaged file into a `DataError`."""
    import pyarrow

    try:
        yield
    except DataError:
        raise
    except (pyarrow.ArrowException, *_PARQUET_ERRORS) as error:
        raise _cannot_parse(path, error) from None


def _cannot_parse(path: Path, error: Exception) -> DataError:
    lines = str(error).strip().splitlines()
    reason = lines[0].rstrip(".") if lines else type(error).__name__
    return DataError(f"Cannot read {path}: {shortened(reason)}.")


def _truncated(path: Path, rows: int, read: int) -> DataError:
    return DataError(f"{path} is damaged: its header counts {rows} rows, but it has {read}.")
