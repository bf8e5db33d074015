"""Image sequences of the user: a folder, or an .npz file, with a class for each sequence.

    folder/class/sequence/01.png, 02.png, …

If the folder starts with `train`, `valid` and `test`, these are the splits. An .npz file has
`pictures` (sequences, time, height, width[, channels]) and `labels`, or `pictures` (images,
height, width[, channels]) and `sequences` (sequences, time) with their indices; and optionally
`split`, one of these words per sequence.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undamped._base.errors import DataError, shortened
from undamped._base.packages import require
from undamped.lab.data.published.arrays import DAMAGE

Array = NDArray[Any]
_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")


def image_files(folder: Path) -> list[Path]:
    """Return the image files in a folder, sorted by their names and the numbers in them."""
    files = [p for p in folder.iterdir() if p.suffix.lower() in _SUFFIXES and p.is_file()]
    return sorted(files, key=lambda path: natural_key(path.name))


def natural_key(name: str) -> list[tuple[int, int, str]]:
    """Return a key for sorting that puts "item 10" behind "item 9"."""
    return [
        (0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name)
    ]


def read_images(paths: Sequence[Path]) -> NDArray[np.uint8]:
    """Read image files of equal size: (images, channels, height, width) in red, green and blue.

    Args:
        paths: The files, at least one.
    """
    images = []
    for path in paths:
        image = _read_image(path)
        if images and image.shape != images[0].shape:
            raise DataError(
                f"{path} has {_size(image)} pixels, but '{paths[0].name}' has {_size(images[0])}. "
                "All images must have the same size."
            )
        images.append(image)
    return np.stack(images)


def _read_image(path: Path) -> NDArray[np.uint8]:
    require("images", "PIL")
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            return np.asarray(image.convert("RGB")).transpose(2, 0, 1)
    except (UnidentifiedImageError, OSError, Image.DecompressionBombError):
        raise DataError(
            f"{path} cannot be read as an image. Replace it, or remove it from the folder."
        ) from None


def _size(image: Array) -> str:
    return f"{image.shape[-1]} × {image.shape[-2]}"


def read_arrays(path: Path, *names: str) -> dict[str, Array]:
    """Read the arrays of an .npz file by name; pickled objects are refused.

    Args:
        path: The file.
        names: Arrays that it must have.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: np.asarray(file[name]) for name in file.files}
    except DAMAGE as error:
        reason = shortened((str(error).splitlines() or ["it is damaged"])[0])
        raise DataError(
            f"{path} is not an .npz file of plain arrays: {reason}. Write it with numpy.savez."
        ) from None
    for name in names:
        if name not in arrays:
            raise DataError(
                f"{path} has no array '{name}', only {shortened(', '.join(arrays) or 'none')}. "
                "Name the arrays: numpy.savez(path, pictures=…, labels=…)."
            )
    return arrays


def channels_first(images: Array, name: str) -> Array:
    """Return images (…, channels, height, width) from (…, height, width[, channels]).

    A last dimension of 1, 3 or 4 is the channels. Floating-point pixels must be finite and between
    0 and 1; integer pixels must be bytes.

    Args:
        images: The array, with one leading dimension.
        name: A name for messages.
    """
    if images.ndim == 4 and images.shape[-1] in (1, 3, 4):
        images = np.moveaxis(images, -1, 1)
    elif images.ndim == 3:
        images = images[:, None]
    elif not (images.ndim == 4 and images.shape[1] in (1, 3, 4)):
        raise DataError(
            f"{name} must have the shape (images, height, width) or (images, height, width, "
            f"channels) with 1, 3 or 4 channels, got {images.shape}."
        )
    return _checked_pixels(images, name)


def _checked_pixels(images: Array, name: str) -> Array:
    """Return bytes, or float32 between 0 and 1."""
    if images.dtype == np.uint8:
        return images
    if images.dtype == np.bool_:
        return images.astype(np.float32)
    if not np.issubdtype(images.dtype, np.floating):
        raise DataError(
            f"{name} must be bytes (uint8), or floating-point pixels between 0 and 1, got "
            f"{images.dtype}. Convert them: images.astype('uint8')."
        )
    if not np.isfinite(images).all():
        bad = np.argwhere(~np.isfinite(images))[0]
        raise DataError(
            f"{name}: image {bad[0]} has a pixel that is {images[tuple(bad)]}. Fill it, or remove "
            "the image."
        )
    low, high = float(images.min(initial=0)), float(images.max(initial=0))
    if low < 0 or high > 1:
        raise DataError(
            f"{name} must have pixels between 0 and 1, or bytes, got numbers from {low:g} to "
            f"{high:g}. Divide them by their largest possible value."
        )
    return images.astype(np.float32)


def no_images(path: Path, expected: str) -> DataError:
    """Return the error for a path that is neither a folder of images nor an .npz file."""
    if not path.exists():
        return DataError(f"No such file: {path}")
    return DataError(f"{path} must be {expected}.")


def read_objects(path: str | Path) -> NDArray[np.float32]:
    """Read a set of different objects: (objects, 3, height, width) with pixels between 0 and 1.

    Args:
        path: A folder of images of equal size, or an .npz file with an array `pictures`.
    """
    path = Path(path).expanduser()
    if path.is_dir():
        files = image_files(path)
        if not files:
            raise DataError(
                f"{path} has no images. It needs a file, such as .png, for each object."
            )
        names = [f"'{file.name}'" for file in files]
        images = read_images(files)
    elif path.suffix == ".npz" and path.is_file():
        images = channels_first(read_arrays(path, "pictures")["pictures"], f"{path}, pictures")
        names = [f"image {number}" for number in range(len(images))]
    else:
        raise no_images(path, "a folder of images, or an .npz file with an array 'pictures'")
    first: dict[bytes, str] = {}
    for image, name in zip(images, names, strict=True):
        twin = first.setdefault(image.tobytes(), name)
        if twin != name:
            raise DataError(f"{path}: {twin} and {name} are the same. Remove one of them.")
    scaled = images.astype(np.float32)
    if images.dtype == np.uint8:
        scaled /= 255
    # A fourth channel, opacity, is ignored.
    return np.repeat(scaled, 3, axis=1) if scaled.shape[1] == 1 else scaled[:, :3].copy()


SPLITS = ("train", "valid", "test")
_FORM = "folder/class/sequence/01.png, 02.png, …"


@dataclass(frozen=True)
class ImageSequences:
    """Sequences of images; each distinct image is stored once.

    Args:
        source: Where they were read.
        images: (images, channels, height, width), bytes or numbers between 0 and 1.
        sequences: (sequences, time) indices of the images.
        names: The name of each sequence.
        labels: (sequences,) the index of each class; None without labels.
        classes: The names of the classes.
        parts: The split of each sequence, or None if the source has no split.
    """

    source: str
    images: Array
    sequences: NDArray[np.int64]
    names: list[str]
    labels: NDArray[np.int64] | None
    classes: list[str]
    parts: list[str] | None = None

    def __len__(self) -> int:
        return len(self.sequences)


def read_image_sequences(path: str | Path, *, labelled: bool = True) -> ImageSequences:
    """Read sequences of images.

    Args:
        path: The folder or .npz file.
        labelled: Whether each needs a class; otherwise a folder is folder/sequence/01.png.
    """
    path = Path(path).expanduser()
    if path.is_dir():
        data = _read_folder(path, labelled)
    elif path.suffix == ".npz" and path.is_file():
        data = _read_file(path, labelled)
    else:
        raise no_images(path, f"a folder of images ({_FORM}) or an .npz file")
    if data.sequences.shape[1] < 2:
        raise DataError(f"{path}: a sequence must have at least two images, got one.")
    if labelled and len(data.classes) < 2:
        raise DataError(
            f"{path} must have at least two classes, got {', '.join(data.classes) or 'none'}."
        )
    return data


def _read_folder(path: Path, labelled: bool) -> ImageSequences:
    tops = _subfolders(path)
    split = labelled and bool(tops) and all(top.name in SPLITS for top in tops)
    folders = []  # of each sequence, with its class and its split
    for top in tops if split else [path]:
        for kind in _subfolders(top) if labelled else [top]:
            folders += [(folder, kind.name, top.name) for folder in _subfolders(kind)]
    files = [image_files(folder) for folder, _, _ in folders]
    if not any(files):
        form = _FORM if labelled else "folder/sequence/01.png, 02.png, …"
        raise DataError(f"{path} has no images. Every sequence needs a folder: {form}")
    names = [str(folder.relative_to(path)) for folder, _, _ in folders]
    images, sequences = _read_sequences(path, names, files)
    _, kinds, parts = (list(column) for column in zip(*folders, strict=True))
    data = ImageSequences(str(path), images, sequences, names, None, [], parts if split else None)
    if not labelled:
        return data
    classes = sorted(set(kinds), key=natural_key)
    return replace(data, labels=np.array([classes.index(kind) for kind in kinds]), classes=classes)


def _read_sequences(
    path: Path, names: list[str], files: list[list[Path]]
) -> tuple[Array, NDArray[np.int64]]:
    """Return the distinct images of some sequences, and their indices (sequences, time)."""
    length = len(files[0])
    for sequence, name in zip(files, names, strict=True):
        if len(sequence) != length:
            raise DataError(
                f"{path / name} has {len(sequence)} images, but '{names[0]}' has {length}. All "
                "sequences must have the same length."
            )
    images, indices = _distinct(read_images([file for sequence in files for file in sequence]))
    return images, indices.reshape(-1, length)


def _subfolders(path: Path) -> list[Path]:
    return sorted((p for p in path.iterdir() if p.is_dir()), key=lambda p: natural_key(p.name))


def _read_file(path: Path, labelled: bool) -> ImageSequences:
    arrays = read_arrays(path, "pictures", *(["labels"] if labelled else []))
    images, name = arrays["pictures"], f"{path}, pictures"
    if "sequences" in arrays:
        images = channels_first(images, name)
        sequences = _check_indices(arrays["sequences"], len(images), f"{path}, sequences")
    elif images.ndim in (4, 5):
        shape = images.shape
        images, indices = _distinct(channels_first(images.reshape(-1, *shape[2:]), name))
        sequences = indices.reshape(shape[:2])
    else:
        raise DataError(
            f"{name} must have the shape (sequences, time, height, width[, channels]), got "
            f"{images.shape}. Without time, give an array 'sequences' (sequences, time) of indices."
        )
    count, labels, classes, parts = len(sequences), None, [], None
    if labelled:
        labels, classes = _classes(arrays["labels"], count, f"{path}, labels")
    if "split" in arrays:
        parts = [str(word) for word in arrays["split"].ravel()]
        if len(parts) != count or not set(parts) <= set(SPLITS):
            words = shortened(", ".join(sorted(set(parts))[:5]))
            raise DataError(
                f"{path}, split must be one of {', '.join(SPLITS)} for each of {count} sequences, "
                f"got {words}."
            )
    names = [f"sequence {number}" for number in range(count)]
    return ImageSequences(str(path), images, sequences, names, labels, classes, parts)


def _distinct(images: Array) -> tuple[Array, NDArray[np.int64]]:
    """Return the distinct images, and the index of each image in them."""
    first: dict[bytes, int] = {}
    indices = [first.setdefault(image.tobytes(), len(first)) for image in images]
    rows = np.unique(indices, return_index=True)[1]
    return images[rows], np.array(indices, dtype=np.int64)


def _check_indices(sequences: Array, count: int, name: str) -> NDArray[np.int64]:
    integers = np.issubdtype(sequences.dtype, np.integer) and sequences.ndim == 2
    if not integers or sequences.min(initial=0) < 0 or sequences.max(initial=0) >= count:
        raise DataError(
            f"{name} must be indices of the images (sequences, time) from 0 to {count - 1}, got "
            f"{sequences.dtype} {sequences.shape}."
        )
    return sequences.astype(np.int64)


def _classes(labels: Array, count: int, name: str) -> tuple[NDArray[np.int64], list[str]]:
    if labels.shape != (count,) or np.issubdtype(labels.dtype, np.floating):
        raise DataError(
            f"{name} must be an integer or a word for each of {count} sequences, got "
            f"{labels.dtype} {labels.shape}."
        )
    classes, indices = np.unique(labels, return_inverse=True)
    return indices.astype(np.int64), [str(name) for name in classes]
