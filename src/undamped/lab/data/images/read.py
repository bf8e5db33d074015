"""Image files and arrays of images, converted to one format and checked."""

from __future__ import annotations

import re
from collections.abc import Sequence
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
