"""Texts in the files their data sets are known by: Penn Treebank, IMDB reviews, GloVe."""

from __future__ import annotations

import csv
import random
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from undamped._base.errors import DataError, explain
from undamped.lab.data.published.arrays import DAMAGE

_WORD = re.compile(r"[a-z0-9]+(?:'[a-z]+)?|[!?.,;:()]")
_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
_LONGEST_FIELD = 2**27
_MOST_VECTORS = 3_000_000


@dataclass(frozen=True)
class Reviews:
    """Reviews and whether they are favourable (1) or not (0)."""

    texts: list[str]
    labels: np.ndarray  # int64 (reviews,)


def read_penn_treebank(folder: Path) -> dict[str, str]:
    """Read the three parts of the Penn Treebank as published by Mikolov.

    Every line loses the blanks around it and keeps its end, which makes the 50 characters of
    the character-level experiments.

    Args:
        folder: Holds ptb.train.txt, ptb.valid.txt and ptb.test.txt.
    """
    parts = {}
    for part in ("train", "valid", "test"):
        path = folder / f"ptb.{part}.txt"
        lines = (line.strip() for line in _read_text(path).splitlines())
        text = "".join(f"{line}\n" for line in lines if line)
        if len(text) < 2:
            raise _refuse(path, "a text", "an empty file")
        parts[part] = text
    return parts


def read_imdb(folder: Path) -> dict[str, Reviews]:
    """Read IMDB reviews: both halves as published, or the training half as one table.

    Args:
        folder: Holds train/pos, train/neg, test/pos and test/neg with one file per review
            (perhaps inside aclImdb), or imdb-half.csv with the columns text and label.

    Returns:
        "train" and "test", or "train" alone where only that half is there.
    """
    for root in (folder, folder / "aclImdb"):
        if (root / "train" / "pos").is_dir():
            return {part: _review_folder(root / part) for part in ("train", "test")}
    return {"train": _review_table(folder / "imdb-half.csv")}


def words(text: str) -> list[str]:
    """Split a review into lower-case words and marks; line breaks of HTML are dropped."""
    return _WORD.findall(_BREAK.sub(" ", text).lower())


def read_glove(folder: Path, wanted: set[str]) -> tuple[dict[str, np.ndarray], int]:
    """Read the GloVe vectors of some words.

    Args:
        folder: Holds glove.npz (words and vectors), or glove.….txt with a word and its numbers
            on each line.
        wanted: Which words; the others are passed over.

    Returns:
        A float32 vector for each word that has one, and the size of a vector.
    """
    packed = folder / "glove.npz"
    if packed.is_file():
        return _packed_vectors(packed, wanted)
    texts = sorted(folder.glob("glove*.txt"))
    if not texts:
        raise _refuse(folder, "glove.npz or glove….txt", "neither")
    return _text_vectors(texts[0], wanted)


def _packed_vectors(path: Path, wanted: set[str]) -> tuple[dict[str, np.ndarray], int]:
    try:
        with np.load(path, allow_pickle=False) as file:
            names, vectors = np.asarray(file["words"]), np.asarray(file["vectors"])
    except DAMAGE:
        raise _refuse(path, "the arrays 'words' and 'vectors'", "another kind of file") from None
    if vectors.ndim != 2 or names.shape != vectors.shape[:1] or names.dtype.kind not in "US":
        raise _refuse(path, "one vector for each word", f"{names.shape} and {vectors.shape}")
    spelled = names.astype(str).tolist()
    found = {
        word: vectors[row].astype(np.float32) for row, word in enumerate(spelled) if word in wanted
    }
    return found, vectors.shape[1]


def _text_vectors(path: Path, wanted: set[str]) -> tuple[dict[str, np.ndarray], int]:
    found: dict[str, np.ndarray] = {}
    size = 0
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file):
                word, *numbers = line.rstrip().split(" ")
                size = size or len(numbers)
                if len(numbers) != size or not size or number > _MOST_VECTORS:
                    raise ValueError
                if word in wanted:
                    found[word] = np.array(numbers, np.float32)
    except (ValueError, OSError):
        raise _refuse(path, "a word and its numbers on each line", "other lines") from None
    if not size:
        raise _refuse(path, "a word and its numbers on each line", "an empty file")
    return found, size


def _review_folder(root: Path) -> Reviews:
    texts, labels = [], []
    for name, label in (("neg", 0), ("pos", 1)):
        files = sorted((root / name).glob("*.txt"))
        if not files:
            raise _refuse(root / name, "one text file per review", "none")
        texts += [_read_text(file) for file in files]
        labels += [label] * len(files)
    return Reviews(texts, np.array(labels, np.int64))


def _review_table(path: Path) -> Reviews:
    texts, labels = [], []
    limit = csv.field_size_limit(_LONGEST_FIELD)
    try:
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                if row.get("text") is None or row.get("label") not in ("0", "1"):
                    raise _refuse(path, "the columns text and label (0 or 1)", "another row")
                texts.append(row["text"])
                labels.append(int(row["label"]))
    except (OSError, csv.Error, UnicodeDecodeError):
        raise _refuse(path, "the aclImdb folders, or this table", "neither of them") from None
    finally:
        csv.field_size_limit(limit)
    if len(set(labels)) < 2:
        raise _refuse(path, "reviews of both kinds", "one kind or none")
    return Reviews(texts, np.array(labels, np.int64))


def divide_reviews(
    reviews: Reviews, fractions: dict[str, float], seed: int
) -> dict[str, np.ndarray]:
    """Divide reviews by class, identical ones always together.

    Args:
        reviews: The reviews.
        fractions: The share of each part; they sum to one.
        seed: Which of the possible divisions.

    Returns:
        The numbers of the reviews in each part, in ascending order.
    """
    copies: dict[str, list[int]] = {}
    for number, text in enumerate(reviews.texts):
        copies.setdefault(text, []).append(number)
    order = random.Random(seed)
    parts: dict[str, list[int]] = {name: [] for name in fractions}
    for label in (0, 1):
        groups = [group for group in copies.values() if reviews.labels[group[0]] == label]
        order.shuffle(groups)
        total = sum(len(group) for group in groups)
        limits = np.cumsum(list(fractions.values())) * total
        place = 0
        for group in groups:
            name = list(fractions)[min(int(np.searchsorted(limits, place + 0.5)), len(parts) - 1)]
            parts[name] += group
            place += len(group)
    return {name: np.sort(np.array(index, np.int64)) for name, index in parts.items()}


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        got = "a file that is not UTF-8 text"
    except OSError as error:
        got = error.strerror or "a file that cannot be read"
    raise _refuse(path, "a UTF-8 text file", got)


def _refuse(path: Path, expected: str, got: object) -> DataError:
    remedy = "Fetch the data anew."
    return DataError(explain(str(path), expected=expected, got=got, remedy=remedy))
