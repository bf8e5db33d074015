"""Images in the files of their data sets: IDX, and the three forms of CIFAR-10.

Pixels stay bytes, as in the files.
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

from undamped.lab.data.published.arrays import damaged
from undamped.lab.data.published.formats.pickles import read_pickled

CIFAR_SIDE = 32
_CIFAR_CLASSES = 10
_PIXELS = 3 * CIFAR_SIDE**2
_IDX_KINDS = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
_MOST_BYTES = 2**31  # of an IDX file, whose header may contain any number


@dataclass(frozen=True)
class Images:
    """Images and their classes, for training and for the test."""

    train: np.ndarray  # uint8 (images, rows, columns) or (images, 3, rows, columns)
    train_labels: np.ndarray  # int64 (images,)
    test: np.ndarray
    test_labels: np.ndarray


def read_idx(path: Path) -> np.ndarray:
    """Read an IDX file, plain or compressed with gzip.

    Args:
        path: The file; its content decides about the compression, and not its name.

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
        problem = "it is truncated or damaged"
    except ValueError as error:
        problem = str(error)
    except OSError as error:
        problem = error.strerror or "it cannot be read"
    raise damaged(path, f"is not an IDX file: {problem}")


def _parse_idx(file: Any) -> np.ndarray:
    zeros, kind, dimensions = struct.unpack(">HBB", file.read(4))
    if zeros or kind not in _IDX_KINDS or not dimensions:
        raise ValueError("its header is different")
    shape = struct.unpack(f">{dimensions}I", file.read(4 * dimensions))
    dtype = np.dtype(_IDX_KINDS[kind])
    expected = math.prod(shape) * dtype.itemsize
    if expected > _MOST_BYTES:
        raise ValueError(f"its header declares {expected:,} bytes")
    content = file.read(expected + 1)
    if len(content) != expected:
        more = "more" if len(content) > expected else "fewer"
        raise ValueError(f"it has {more} bytes than the {expected:,} of its header")
    return np.frombuffer(content, dtype).reshape(shape)


def read_idx_folder(folder: Path) -> Images:
    """Read the four files of MNIST or of a set in the same form.

    Args:
        folder: Contains train-images-idx3-ubyte, train-labels-idx1-ubyte and the two t10k files,
            each plain or with .gz.
    """
    splits = {}
    for split in ("train", "t10k"):
        images = read_idx(_existing(folder, f"{split}-images-idx3-ubyte"))
        labels = read_idx(_existing(folder, f"{split}-labels-idx1-ubyte"))
        if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels):
            raise damaged(folder, f"has {split} images {images.shape} and labels {labels.shape}")
        splits[split] = images, labels.astype(np.int64)
    return Images(*splits["train"], *splits["t10k"])


def read_cifar10(folder: Path) -> Images:
    """Read CIFAR-10 in its binary, its Python or its PNG form, whichever exists.

    Args:
        folder: Contains data_batch_1.bin …, or data_batch_1 …, or data_batch_1.png … with
            train_lables.json, each with its test_batch.

    Returns:
        Images (number, colour, row, column).
    """
    for suffix, read in ((".bin", _cifar_binary), ("", _cifar_pickle), (".png", _cifar_png)):
        if (folder / f"data_batch_1{suffix}").exists():
            batches = [f"data_batch_{number}{suffix}" for number in range(1, 6)]
            train = [read(_existing(folder, name)) for name in batches]
            test, test_labels = read(_existing(folder, f"test_batch{suffix}"))
            train_labels = [labels for _, labels in train if labels is not None]
            if suffix == ".png":
                train_labels = [_json_labels(_existing(folder, "train_lables.json"))]
                test_labels = _json_labels(_existing(folder, "test_lables.json"))
            assert test_labels is not None
            images = np.concatenate([images for images, _ in train])
            return _checked(folder, Images(images, np.concatenate(train_labels), test, test_labels))
    raise damaged(folder, "has no data_batch_1.bin, data_batch_1 or data_batch_1.png")


def _cifar_binary(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    content = np.fromfile(path, np.uint8)
    if not len(content) or len(content) % (_PIXELS + 1):
        raise damaged(path, f"has {len(content):,} bytes, not records of {_PIXELS + 1}")
    records = content.reshape(-1, _PIXELS + 1)
    return _planes(records[:, 1:]), records[:, 0].astype(np.int64)


def _cifar_pickle(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    content = read_pickled(path)
    entries = {}
    if isinstance(content, dict):
        entries = {
            k.decode("latin-1") if isinstance(k, bytes) else k: v for k, v in content.items()
        }
    images, labels = entries.get("data"), entries.get("labels")
    if (
        not isinstance(images, np.ndarray)
        or images.dtype != np.uint8
        or images.shape[1:] != (_PIXELS,)
        or not isinstance(labels, list)
        or not all(type(label) is int for label in labels)
        or len(labels) != len(images)
    ):
        raise damaged(path, f"has no 'data' of {_PIXELS} bytes per image with 'labels'")
    return _planes(images), np.array(labels, np.int64)


def _cifar_png(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            pixels = np.asarray(image.convert("RGB"))
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError):
        raise damaged(path, "is not a PNG file, or it is damaged") from None
    if pixels.shape[1] != CIFAR_SIDE**2:
        raise damaged(path, f"has rows of {pixels.shape[1]} pixels instead of {CIFAR_SIDE**2}")
    images = pixels.reshape(-1, CIFAR_SIDE, CIFAR_SIDE, 3)
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2)), None


def _planes(rows: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(rows).reshape(-1, 3, CIFAR_SIDE, CIFAR_SIDE)


def _json_labels(path: Path) -> np.ndarray:
    try:
        labels = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        labels = None
    if not isinstance(labels, list) or not all(
        type(label) is int and abs(label) < 1 << 62 for label in labels
    ):
        raise damaged(path, "is not a JSON list of integers")
    return np.array(labels, np.int64)


def _checked(folder: Path, images: Images) -> Images:
    for name, pixels, labels in (
        ("training", images.train, images.train_labels),
        ("test", images.test, images.test_labels),
    ):
        if len(pixels) != len(labels):
            raise damaged(folder, f"has {len(pixels):,} {name} images and {len(labels):,} labels")
        if len(labels) and not 0 <= labels.min() <= labels.max() < _CIFAR_CLASSES:
            raise damaged(folder, f"has labels from {labels.min()} to {labels.max()}, not 0 to 9")
    return images


def _existing(folder: Path, name: str) -> Path:
    for candidate in (folder / name, folder / f"{name}.gz"):
        if candidate.is_file():
            return candidate
    raise damaged(folder, f"has no file {name}")
