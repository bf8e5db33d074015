"""A set of objects to make trials of: one picture each, no two alike."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from undamped._base.errors import DataError, explain
from undamped.lab.data.pictures.arrays import channels_first, read_arrays
from undamped.lab.data.pictures.files import picture_files, read_pictures


def read_objects(path: str | Path) -> NDArray[np.float32]:
    """Read a set of objects: (objects, 3, height, width) with pixels between 0 and 1.

    Args:
        path: A folder of pictures of one size, or an .npz file with an array `pictures`.
    """
    place = Path(path).expanduser()
    if place.is_dir():
        files = picture_files(place)
        if not files:
            raise DataError(
                explain(
                    str(place),
                    expected="a folder with pictures in it",
                    got="none",
                    remedy="Put one file for each object there, such as .png files.",
                )
            )
        names = [f"'{file.name}'" for file in files]
        pictures = read_pictures(files)
    elif place.suffix == ".npz" and place.is_file():
        pictures = channels_first(read_arrays(place, "pictures")["pictures"], f"{place}, pictures")
        names = [f"picture {i}" for i in range(len(pictures))]
    else:
        raise DataError(
            explain(
                str(place),
                expected="a folder of pictures, or an .npz file with an array 'pictures'",
                got="something else" if place.exists() else "no such file",
                remedy="Check the path.",
            )
        )
    _refuse_twins(pictures, names, str(place))
    return _coloured(pictures)


def _refuse_twins(pictures: NDArray[np.generic], names: list[str], source: str) -> None:
    """Refuse two objects with one picture: what is the same in a trial would not be known."""
    first: dict[bytes, str] = {}
    for picture, name in zip(pictures, names, strict=True):
        twin = first.setdefault(picture.tobytes(), name)
        if twin != name:
            raise DataError(
                explain(
                    source,
                    expected="pictures that differ from each other",
                    got=f"{twin} and {name}, which are the same",
                    remedy="Take one of them out.",
                )
            )


def _coloured(pictures: NDArray[np.generic]) -> NDArray[np.float32]:
    """Return three channels with pixels between 0 and 1; a fourth one, opacity, is left out."""
    scaled = pictures.astype(np.float32)
    if pictures.dtype == np.uint8:
        scaled /= 255
    return np.repeat(scaled, 3, axis=1) if scaled.shape[1] == 1 else scaled[:, :3].copy()
