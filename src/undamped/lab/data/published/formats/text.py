"""Texts in the files of their data sets: Penn Treebank, IMDB reviews, GloVe vectors."""

from __future__ import annotations

import csv
import random
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from undamped.lab.data.published.arrays import DAMAGE, damaged

_WORD = re.compile(r"[a-z0-9]+(?:'[a-z]+)?|[!?.,;:()]")
_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
_LONGEST_FIELD = 2**27
_MOST_VECTORS = 3_000_000


@dataclass(frozen=True)
class Reviews:
    """Reviews, positive (1) or negative (0)."""

    texts: list[str]
    labels: np.ndarray  # int64 (reviews,)


def read_penn_treebank(folder: Path) -> dict[str, str]:
    """Read the three splits of the Penn Treebank as published by Mikolov.

    Lines are stripped of spaces and end in a line break, which results in the 50 characters of
    the character-level experiments.

    Args:
        folder: Contains ptb.train.txt, ptb.valid.txt and ptb.test.txt.
    """
    splits = {}
    for split in ("train", "valid", "test"):
        path = folder / f"ptb.{split}.txt"
        lines = (line.strip() for line in _read_text(path).splitlines())
        text = "".join(f"{line}\n" for line in lines if line)
        if len(text) < 2:
            raise damaged(path, "is empty")
        splits[split] = text
    return splits


def read_imdb(folder: Path) -> dict[str, Reviews]:
    """Read IMDB reviews: both halves as published, or the training half as one table.

    Args:
        folder: Contains train/pos, train/neg, test/pos and test/neg with one file per review
            (perhaps inside aclImdb), or imdb-half.csv with the columns text and label.

    Returns:
        "train" and "test", or only "train" for the half.
    """
    for root in (folder, folder / "aclImdb"):
        if (root / "train" / "pos").is_dir():
            return {split: _review_folder(root / split) for split in ("train", "test")}
    return {"train": _review_table(folder / "imdb-half.csv")}


def words(text: str) -> list[str]:
    """Return the lower-case words and punctuation marks of a review, without HTML line breaks."""
    return _WORD.findall(_BREAK.sub(" ", text).lower())


def read_glove(folder: Path, vocabulary: set[str]) -> tuple[dict[str, np.ndarray], int]:
    """Read the GloVe vectors of some words.

    Args:
        folder: Contains glove.npz (words and vectors), or glove.….txt with a word and its numbers
            on each line.
        vocabulary: The words.

    Returns:
        A float32 vector for each word that has one, and the size of a vector.
    """
    packed = folder / "glove.npz"
    if packed.is_file():
        return _packed_vectors(packed, vocabulary)
    texts = sorted(folder.glob("glove*.txt"))
    if not texts:
        raise damaged(folder, "has neither glove.npz nor glove….txt")
    return _text_vectors(texts[0], vocabulary)


def _packed_vectors(path: Path, vocabulary: set[str]) -> tuple[dict[str, np.ndarray], int]:
    try:
        with np.load(path, allow_pickle=False) as file:
            names, vectors = np.asarray(file["words"]), np.asarray(file["vectors"])
    except DAMAGE:
        raise damaged(path, "does not have the arrays 'words' and 'vectors'") from None
    if vectors.ndim != 2 or names.shape != vectors.shape[:1] or names.dtype.kind not in "US":
        raise damaged(path, f"has words {names.shape} and vectors {vectors.shape}")
    rows = {word: row for row, word in enumerate(names.astype(str).tolist()) if word in vocabulary}
    return {word: vectors[row].astype(np.float32) for word, row in rows.items()}, vectors.shape[1]


def _text_vectors(path: Path, vocabulary: set[str]) -> tuple[dict[str, np.ndarray], int]:
    vectors: dict[str, np.ndarray] = {}
    size = 0
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file):
                word, *numbers = line.rstrip().split(" ")
                size = size or len(numbers)
                if len(numbers) != size or not size or number > _MOST_VECTORS:
                    raise ValueError
                if word in vocabulary:
                    vectors[word] = np.array(numbers, np.float32)
    except (ValueError, OSError):
        raise damaged(path, "must have a word and its numbers on each line") from None
    if not size:
        raise damaged(path, "is empty")
    return vectors, size


def _review_folder(root: Path) -> Reviews:
    texts, labels = [], []
    for name, label in (("neg", 0), ("pos", 1)):
        files = sorted((root / name).glob("*.txt"))
        if not files:
            raise damaged(root / name, "has no text files")
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
                    raise damaged(path, "needs the columns text and label (0 or 1)")
                texts.append(row["text"])
                labels.append(int(row["label"]))
    except (OSError, csv.Error, UnicodeDecodeError):
        raise damaged(path, "cannot be read, and there is no folder aclImdb") from None
    finally:
        csv.field_size_limit(limit)
    if len(set(labels)) < 2:
        raise damaged(path, "does not have reviews of both classes")
    return Reviews(texts, np.array(labels, np.int64))


def divide_reviews(
    reviews: Reviews, fractions: dict[str, float], seed: int
) -> dict[str, np.ndarray]:
    """Split reviews, stratified by class; identical ones are in the same split.

    Args:
        reviews: The reviews.
        fractions: The fraction of each split; they sum to one.
        seed: The seed of the random split.

    Returns:
        The indices of the reviews of each split, sorted.
    """
    copies: dict[str, list[int]] = {}
    for number, text in enumerate(reviews.texts):
        copies.setdefault(text, []).append(number)
    order = random.Random(seed)
    splits: dict[str, list[int]] = {name: [] for name in fractions}
    for label in (0, 1):
        groups = [group for group in copies.values() if reviews.labels[group[0]] == label]
        order.shuffle(groups)
        total = sum(len(group) for group in groups)
        limits = np.cumsum(list(fractions.values())) * total
        count = 0
        for group in groups:
            name = list(fractions)[min(int(np.searchsorted(limits, count + 0.5)), len(splits) - 1)]
            splits[name] += group
            count += len(group)
    return {name: np.sort(np.array(index, np.int64)) for name, index in splits.items()}


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        problem = "is not UTF-8 text"
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
    raise damaged(path, problem)
