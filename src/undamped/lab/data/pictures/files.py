"""Picture files: a folder of them becomes one array, if they are all of one size."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from undamped._base.errors import DataError, explain
from undamped._base.packages import require

KINDS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")
Pictures = NDArray[np.uint8]


def picture_files(folder: Path) -> list[Path]:
    """Return the picture files in a folder, in the order a person would count them."""
    found = [path for path in folder.iterdir() if path.suffix.lower() in KINDS and path.is_file()]
    return sorted(found, key=lambda path: counted(path.name))


def counted(name: str) -> list[tuple[int, int, str]]:
    """Return a key that puts "item 10" behind "item 9"."""
    return [
        (0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name)
    ]


def read_pictures(paths: Sequence[Path]) -> Pictures:
    """Read picture files of one size: (pictures, channels, height, width) in red, green and blue.

    Args:
        paths: The files, at least one.
    """
    first = _read(paths[0])
    pictures = [first]
    for path in paths[1:]:
        picture = _read(path)
        if picture.shape != first.shape:
            raise DataError(
                explain(
                    str(path),
                    expected=f"a picture of {_size(first)} pixels like '{paths[0].name}'",
                    got=f"one of {_size(picture)}",
                    remedy="Bring all of them to one size.",
                )
            )
        pictures.append(picture)
    return np.stack(pictures)


def _read(path: Path) -> Pictures:
    require("pictures", "PIL")
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            return np.asarray(image.convert("RGB")).transpose(2, 0, 1)
    except (UnidentifiedImageError, OSError, Image.DecompressionBombError):
        raise DataError(
            explain(
                str(path),
                expected="a picture",
                got="a file that cannot be read as one",
                remedy="Replace it or take it out of the folder.",
            )
        ) from None


def _size(picture: Pictures) -> str:
    return f"{picture.shape[-1]} × {picture.shape[-2]}"
