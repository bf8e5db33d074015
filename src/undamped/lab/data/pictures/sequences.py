"""Sequences of pictures of one's own: a folder, or an .npz file, with a class for each.

    folder/class/sequence/01.png, 02.png, …

Where the folder begins with `train`, `valid` and `test`, that is the split. An .npz file has
`pictures` (sequences, time, height, width[, channels]) and `labels`, or `pictures` (pictures,
height, width[, channels]) and `sequences` (sequences, time) with their numbers; and perhaps
`split`, one of those words for each sequence.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undamped._base.errors import DataError, explain
from undamped.lab.data.pictures.arrays import channels_first, read_arrays
from undamped.lab.data.pictures.files import counted, picture_files, read_pictures

Array = NDArray[Any]
PARTS = ("train", "valid", "test")
FORM = "folder/class/sequence/01.png, 02.png, …"


@dataclass(frozen=True)
class PictureSet:
    """Sequences of pictures, each picture once.

    Args:
        source: Where they come from.
        pictures: (pictures, channels, height, width), bytes or numbers between 0 and 1.
        sequences: (sequences, time) numbers of the pictures.
        names: What each sequence is called.
        labels: (sequences,) the number of each class; none where nobody knows it.
        classes: What the classes are called.
        parts: For each sequence the part it belongs to, where the source says so.
    """

    source: str
    pictures: Array
    sequences: NDArray[np.int64]
    names: list[str]
    labels: NDArray[np.int64] | None
    classes: list[str]
    parts: list[str] | None = None

    def __len__(self) -> int:
        return len(self.sequences)


def read_picture_sequences(path: str | Path, *, labelled: bool = True) -> PictureSet:
    """Read sequences of pictures.

    Args:
        path: The folder or .npz file.
        labelled: Whether each has to have a class; without, a folder is folder/sequence/01.png.
    """
    place = Path(path).expanduser()
    if place.is_dir():
        found = _read_folder(place, labelled)
    elif place.suffix == ".npz" and place.is_file():
        found = _read_file(place, labelled)
    else:
        raise DataError(
            explain(
                str(place),
                expected=f"a folder of pictures ({FORM}) or an .npz file",
                got="something else" if place.exists() else "no such file",
                remedy="Check the path.",
            )
        )
    if found.sequences.shape[1] < 2:
        raise DataError(
            explain(
                str(place),
                expected="at least two pictures in a sequence, since one has no relation",
                got="one",
                remedy="Give longer sequences.",
            )
        )
    if labelled and len(found.classes) < 2:
        raise DataError(
            explain(
                str(place),
                expected="at least two classes",
                got=", ".join(found.classes) or "none",
                remedy="There is nothing to tell apart otherwise.",
            )
        )
    return found


def _read_folder(place: Path, labelled: bool) -> PictureSet:
    files, names, labels, parts = [], [], [], []
    tops = _folders(place)
    split = labelled and bool(tops) and all(top.name in PARTS for top in tops)
    for top in tops if split else [place]:
        for kind in _folders(top) if labelled else [top]:
            for folder in _folders(kind):
                files.append(picture_files(folder))
                names.append(str(folder.relative_to(place)))
                labels.append(kind.name)
                parts.append(top.name)
    if not any(files):
        raise DataError(
            explain(
                str(place),
                expected=FORM if labelled else "folder/sequence/01.png, 02.png, …",
                got="no pictures there",
                remedy="Put every sequence into a folder of its own.",
            )
        )
    length = len(files[0])
    for each, name in zip(files, names, strict=True):
        if len(each) != length:
            raise DataError(
                explain(
                    str(place / name),
                    expected=f"{length} pictures, as '{names[0]}' has them",
                    got=len(each),
                    remedy="All sequences need as many.",
                )
            )
    pictures, numbers = _each_once(read_pictures([file for each in files for file in each]))
    classes = sorted(set(labels), key=counted)
    return PictureSet(
        str(place),
        pictures,
        numbers.reshape(-1, length),
        names,
        np.array([classes.index(label) for label in labels]) if labelled else None,
        classes if labelled else [],
        parts if split else None,
    )


def _folders(place: Path) -> list[Path]:
    return sorted((p for p in place.iterdir() if p.is_dir()), key=lambda path: counted(path.name))


def _read_file(place: Path, labelled: bool) -> PictureSet:
    arrays = read_arrays(place, "pictures", *(["labels"] if labelled else []))
    pictures, what = arrays["pictures"], f"{place}, pictures"
    if "sequences" in arrays:
        pictures = channels_first(pictures, what)
        sequences = _numbers(arrays["sequences"], len(pictures), f"{place}, sequences")
    else:
        if pictures.ndim not in (4, 5):
            raise DataError(
                explain(
                    what,
                    expected="(sequences, time, height, width) or one dimension of channels more",
                    got=pictures.shape,
                    remedy="Or number single pictures by an array 'sequences' (sequences, time).",
                )
            )
        flat = channels_first(pictures.reshape(-1, *pictures.shape[2:]), what)
        flat, numbers = _each_once(flat)
        pictures, sequences = flat, numbers.reshape(pictures.shape[:2])
    labels, classes = None, []
    if labelled:
        labels, classes = _classes(arrays["labels"], len(sequences), f"{place}, labels")
    parts = None
    if "split" in arrays:
        parts = _parts(arrays["split"], len(sequences), f"{place}, split")
    names = [f"sequence {number}" for number in range(len(sequences))]
    return PictureSet(str(place), pictures, sequences, names, labels, classes, parts)


def _each_once(pictures: Array) -> tuple[Array, NDArray[np.int64]]:
    """Return the pictures that differ, and the number of each that came."""
    first: dict[bytes, int] = {}
    numbers = [first.setdefault(picture.tobytes(), len(first)) for picture in pictures]
    kept = np.unique(numbers, return_index=True)[1]
    return pictures[kept], np.array(numbers, dtype=np.int64)


def _numbers(sequences: Array, count: int, what: str) -> NDArray[np.int64]:
    whole = np.issubdtype(sequences.dtype, np.integer) and sequences.ndim == 2
    if not whole or sequences.min(initial=0) < 0 or sequences.max(initial=0) >= count:
        raise DataError(
            explain(
                what,
                expected=f"(sequences, time), whole numbers from 0 to {count - 1}",
                got=f"{sequences.dtype} {sequences.shape}" if not whole else "others among them",
                remedy="They number the pictures.",
            )
        )
    return sequences.astype(np.int64)


def _classes(labels: Array, count: int, what: str) -> tuple[NDArray[np.int64], list[str]]:
    if labels.shape != (count,) or np.issubdtype(labels.dtype, np.floating):
        raise DataError(
            explain(
                what,
                expected=f"({count},), a class for each sequence as a whole number or a word",
                got=f"{labels.dtype} {labels.shape}",
                remedy="Give one for each.",
            )
        )
    found, numbers = np.unique(labels, return_inverse=True)
    return numbers.astype(np.int64), [str(name) for name in found]


def _parts(split: Array, count: int, what: str) -> list[str]:
    words = [str(word) for word in split.ravel()]
    if len(words) != count or not set(words) <= set(PARTS):
        raise DataError(
            explain(
                what,
                expected=f"one of {', '.join(PARTS)} for each of {count} sequences",
                got=", ".join(sorted(set(words))[:5]),
                remedy="Or leave the array out.",
            )
        )
    return words
