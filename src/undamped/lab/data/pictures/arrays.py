"""Arrays of pictures as a file may hold them, brought to one form and checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undamped._base.errors import DataError, explain
from undamped.lab.data.published.arrays import DAMAGE

Array = NDArray[Any]


def read_arrays(path: Path, *wanted: str) -> dict[str, Array]:
    """Read the arrays of an .npz file by name; objects, which may be programs, are refused.

    Args:
        path: The file.
        wanted: Names that have to be in it.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            found = {name: np.asarray(file[name]) for name in file.files}
    except DAMAGE as error:
        raise DataError(
            explain(
                str(path),
                expected="an .npz file of plain arrays",
                got=f"'{(str(error).splitlines() or ['a damaged file'])[0]}'",
                remedy="Write it with numpy.savez.",
            )
        ) from None
    for name in wanted:
        if name not in found:
            raise DataError(
                explain(
                    str(path),
                    expected=f"an array '{name}'",
                    got=", ".join(found) or "none",
                    remedy="Name the arrays: numpy.savez(path, pictures=…, labels=…).",
                )
            )
    return found


def channels_first(pictures: Array, what: str) -> Array:
    """Return pictures (…, channels, height, width) from (…, height, width[, channels]).

    A last dimension of 1, 3 or 4 is taken for channels. Floating-point pixels have to be finite
    and lie between 0 and 1; whole ones are bytes.

    Args:
        pictures: What was read, with one leading dimension.
        what: What they are called in a message.
    """
    if pictures.ndim == 4 and pictures.shape[-1] in (1, 3, 4):
        pictures = np.moveaxis(pictures, -1, 1)
    elif pictures.ndim == 3:
        pictures = pictures[:, None]
    elif not (pictures.ndim == 4 and pictures.shape[1] in (1, 3, 4)):
        raise DataError(
            explain(
                what,
                expected="(pictures, height, width) or (pictures, height, width, channels)",
                got=pictures.shape,
                remedy="Stack pictures of one size; channels are 1, 3 or 4.",
            )
        )
    return _checked(pictures, what)


def _checked(pictures: Array, what: str) -> Array:
    """Return bytes or single-precision numbers between 0 and 1."""
    if pictures.dtype == np.uint8:
        return pictures
    if pictures.dtype == np.bool_:
        return pictures.astype(np.float32)
    if np.issubdtype(pictures.dtype, np.floating):
        if not np.isfinite(pictures).all():
            bad = np.argwhere(~np.isfinite(pictures))[0]
            raise DataError(
                explain(
                    what,
                    expected="pixels that are numbers",
                    got=f"{pictures[tuple(bad)]} in picture {bad[0]}",
                    remedy="Fill the gaps or leave the picture out.",
                )
            )
        low, high = float(pictures.min(initial=0)), float(pictures.max(initial=0))
        if low < 0 or high > 1:
            raise DataError(
                explain(
                    what,
                    expected="pixels between 0 and 1, or bytes",
                    got=f"numbers from {low:g} to {high:g}",
                    remedy="Divide them by their largest possible value.",
                )
            )
        return pictures.astype(np.float32)
    raise DataError(
        explain(
            what,
            expected="bytes (uint8), or floating-point pixels between 0 and 1",
            got=str(pictures.dtype),
            remedy="Convert them: pictures.astype('uint8').",
        )
    )
