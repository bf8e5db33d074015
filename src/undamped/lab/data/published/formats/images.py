"""Pictures in the files their data sets are known by: IDX, CIFAR-10's three forms.

Pixels stay bytes, as they are on disk; whoever reads them scales them.
"""

from __future__ import annotations

import gzip
import json
import math
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from undamped._base.errors import DataError, explain
from undamped.lab.data.published.formats.pickles import read_pickled

CIFAR_SIDE = 32
CIFAR_CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
_PIXELS = 3 * CIFAR_SIDE**2
_IDX_KINDS = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
_MOST_BYTES = 2**31  # of one IDX file; a header may promise anything


@dataclass(frozen=True)
class Images:
    """Pictures and their classes, one part to learn from and one to be tested on."""

    train: np.ndarray  # uint8 (pictures, rows, columns) or (pictures, 3, rows, columns)
    train_labels: np.ndarray  # int64 (pictures,)
    test: np.ndarray
    test_labels: np.ndarray


def read_idx(path: Path) -> np.ndarray:
    """Read an IDX file, plain or compressed with gzip.

    Args:
        path: The file; what is inside decides, not its name.

    Example:
        >>> read_idx(Path("train-images-idx3-ubyte.gz")).shape
        (60000, 28, 28)
    """
    try:
        with path.open("rb") as file:
            compressed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path, "rb") if compressed else path.open("rb") as file:
            return _parse_idx(file)
    except (struct.error, EOFError, zlib.error, gzip.BadGzipFile):
        got = "one that ends too soon or is damaged"
    except ValueError as error:
        got = str(error)
    except OSError as error:
        got = error.strerror or "a file that cannot be read"
    raise _refuse(path, "an IDX file", got)


def _parse_idx(file: Any) -> np.ndarray:
    zeros, kind, dimensions = struct.unpack(">HBB", file.read(4))
    if zeros or kind not in _IDX_KINDS or not dimensions:
        raise ValueError("another kind of file")
    shape = struct.unpack(f">{dimensions}I", file.read(4 * dimensions))
    dtype = np.dtype(_IDX_KINDS[kind])
    expected = math.prod(shape) * dtype.itemsize
    if expected > _MOST_BYTES:
        raise ValueError(f"a header that promises {expected:,} bytes")
    content = file.read(expected + 1)
    if len(content) != expected:
        more = "more" if len(content) > expected else "fewer"
        raise ValueError(f"{more} bytes than the {expected:,} that its header promises")
    return np.frombuffer(content, dtype).reshape(shape)


def read_idx_folder(folder: Path) -> Images:
    """Read the four files of MNIST or of a set that comes in the same form.

    Args:
        folder: Holds train-images-idx3-ubyte, train-labels-idx1-ubyte and the two t10k files,
            each plain or with .gz.
    """
    parts = {}
    for part in ("train", "t10k"):
        pictures = read_idx(_present(folder, f"{part}-images-idx3-ubyte"))
        labels = read_idx(_present(folder, f"{part}-labels-idx1-ubyte"))
        if pictures.ndim != 3 or labels.ndim != 1 or len(pictures) != len(labels):
            raise _refuse(
                folder,
                f"one label for each {part} picture",
                f"pictures {pictures.shape} and labels {labels.shape}",
            )
        parts[part] = pictures, labels.astype(np.int64)
    return Images(*parts["train"], *parts["t10k"])


def read_cifar10(folder: Path) -> Images:
    """Read CIFAR-10 in its binary, its Python or its picture form, whichever is there.

    Args:
        folder: Holds data_batch_1.bin …, or data_batch_1 …, or data_batch_1.png … with
            train_lables.json, each with its test_batch.

    Returns:
        Pictures as (number, colour, row, column).
    """
    for ending, read in ((".bin", _cifar_binary), ("", _cifar_pickle), (".png", _cifar_picture)):
        if (folder / f"data_batch_1{ending}").exists():
            batches = [f"data_batch_{number}{ending}" for number in range(1, 6)]
            train = [read(_present(folder, name)) for name in batches]
            test = read(_present(folder, f"test_batch{ending}"))
            train_labels = [labels for _, labels in train if labels is not None]
            if ending == ".png":
                train_labels = [_labels(_present(folder, "train_lables.json"))]
                test = test[0], _labels(_present(folder, "test_lables.json"))
            assert test[1] is not None
            return _checked(
                folder,
                Images(
                    np.concatenate([pictures for pictures, _ in train]),
                    np.concatenate(train_labels),
                    test[0],
                    test[1],
                ),
            )
    raise _refuse(folder, "data_batch_1.bin, data_batch_1 or data_batch_1.png", "none of them")


def _cifar_binary(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    content = np.fromfile(path, np.uint8)
    if not len(content) or len(content) % (_PIXELS + 1):
        raise _refuse(path, f"records of {_PIXELS + 1} bytes", f"{len(content):,} bytes")
    records = content.reshape(-1, _PIXELS + 1)
    return _planes(records[:, 1:]), records[:, 0].astype(np.int64)


def _cifar_pickle(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    found = read_pickled(path)
    entries = {}
    if isinstance(found, dict):
        entries = {k.decode("latin-1") if isinstance(k, bytes) else k: v for k, v in found.items()}
    pictures, labels = entries.get("data"), entries.get("labels")
    if (
        not isinstance(pictures, np.ndarray)
        or pictures.dtype != np.uint8
        or pictures.shape[1:] != (_PIXELS,)
        or not isinstance(labels, list)
        or not all(type(label) is int for label in labels)
        or len(labels) != len(pictures)
    ):
        raise _refuse(path, f"'data' of {_PIXELS} bytes per picture and 'labels'", "other entries")
    return _planes(pictures), np.array(labels, np.int64)


def _cifar_picture(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            pixels = np.asarray(image.convert("RGB"))
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError):
        raise _refuse(path, "a PNG picture", "one that is damaged or of another kind") from None
    if pixels.shape[1] != CIFAR_SIDE**2:
        raise _refuse(path, f"rows of {CIFAR_SIDE**2} pixels", pixels.shape[1])
    pictures = pixels.reshape(-1, CIFAR_SIDE, CIFAR_SIDE, 3)
    return np.ascontiguousarray(pictures.transpose(0, 3, 1, 2)), None


def _planes(rows: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(rows).reshape(-1, 3, CIFAR_SIDE, CIFAR_SIDE)


def _labels(path: Path) -> np.ndarray:
    try:
        labels = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        labels = None
    if not isinstance(labels, list) or not all(
        type(label) is int and abs(label) < 1 << 62 for label in labels
    ):
        raise _refuse(path, "a JSON list of whole numbers", "something else")
    return np.array(labels, np.int64)


def _checked(folder: Path, images: Images) -> Images:
    for name, pictures, labels in (
        ("training", images.train, images.train_labels),
        ("test", images.test, images.test_labels),
    ):
        if len(pictures) != len(labels):
            raise _refuse(
                folder,
                f"one label for each {name} picture",
                f"{len(pictures):,} pictures and {len(labels):,} labels",
            )
        if len(labels) and not 0 <= labels.min() <= labels.max() < len(CIFAR_CLASSES):
            raise _refuse(folder, "labels from 0 to 9", f"{labels.min()} to {labels.max()}")
    return images


def _present(folder: Path, name: str) -> Path:
    for candidate in (folder / name, folder / f"{name}.gz"):
        if candidate.is_file():
            return candidate
    raise _refuse(folder, f"the file {name}", "none")


def _refuse(path: Path, expected: str, got: object) -> DataError:
    remedy = "Fetch the data anew."
    return DataError(explain(str(path), expected=expected, got=got, remedy=remedy))
