"""Recordings of one's own, whatever file they come in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from undamped._base.errors import DataError, OptionError, explain
from undamped._base.options import check_against, options_in
from undamped._base.registry import readers
from undamped.lab.data.recordings.formats import folder, ucr
from undamped.lab.data.recordings.formats.kept import IN_MEMORY
from undamped.lab.data.recordings.options import ReadingOptions
from undamped.lab.data.recordings.series import SeriesSet

WRITTEN = ("decimal", "na", "dayfirst", "duplicates")
"""Options of tables that say how values are written; a run reads later files in the same way."""


def looks_like_data(word: str) -> bool:
    """Whether a word of a command line names a file or folder of recordings."""
    return Path(word).suffix.lower() in readers or "/" in word or _exists(Path(word))


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # longer than any name, or with a NUL in it
        return False


def read_recordings(
    path: str | Path,
    *,
    needs_target: bool = True,
    forecast: bool = False,
    in_memory: int = IN_MEMORY,
    **reading: Unpack[ReadingOptions],
) -> SeriesSet:
    """Read recordings: a file whose ending has a reader, or a folder of tables.

    Args:
        path: The file or folder.
        needs_target: Whether labels are looked for.
        forecast: Whether values to come are asked for.
        in_memory: What is larger than so many bytes is read in pieces and stays on disk.
        reading: Which column is what, and how values are written: target, id, time, group,
            channels, layout, decimal, na, dayfirst, duplicates; see
            `undamped.lab.data.recordings.options.ReadingOptions`.

    Example:
        >>> read_recordings("walks.csv", target="gait", id="walk").describe()  # doctest: +SKIP
        '60 series of 4,000 steps with 3 channels'
    """
    asked = _complete(reading)
    target, id, time, group = (asked[name] for name in ("target", "id", "time", "group"))
    channels = asked["channels"]
    path = Path(path).expanduser()
    if not _exists(path):
        raise DataError(
            explain(str(path), expected="a file or folder", got="nothing", remedy="Check the path.")
        )
    if channels is not None and not len(channels):
        raise OptionError(
            explain(
                "channels",
                expected="one or more names",
                got="an empty list",
                remedy="Leave it out to take all.",
            )
        )
    suffix = path.suffix.lower()
    if ucr.find_training_file(path) is not None:
        found = ucr.read_ucr(path)
    elif path.is_dir():
        _not_for_folders(path, id=id, group=group)
        return folder.read_folder(
            path,
            target=target,
            time=time,
            channels=channels,
            needs_target=needs_target and not forecast,
            forecast=forecast,
            in_memory=in_memory,
            **{name: asked[name] for name in WRITTEN},
        )
    elif suffix not in readers:
        raise DataError(
            explain(
                str(path),
                expected=f"one of {', '.join(readers)} or a folder",
                got=suffix or "no ending",
                remedy="Convert it, for example to CSV.",
            )
        )
    elif readers[suffix].columns:
        return readers[suffix].read(
            path,
            **asked,
            needs_target=needs_target,
            forecast=forecast,
            in_memory=in_memory,
        )
    elif readers[suffix].in_pieces:
        found = readers[suffix].read(path, in_memory=in_memory)
    else:
        found = readers[suffix].read(path)
    declared = options_in(ReadingOptions)
    given = {"target": target, "id": id, "time": time, "group": group}
    given |= {name: asked[name] for name in WRITTEN}
    said = [name for name, value in given.items() if value != declared[name].default]
    if said:
        raise OptionError(
            explain(
                said[0],
                expected=f"none, since {suffix or 'such'} files have no columns",
                got=f"'{given[said[0]]}'",
                remedy="Leave it out; the file says itself what is what.",
            )
        )
    if forecast:
        found = replace(found, targets=None)
    return found if channels is None else found.select(channels)


def _complete(reading: ReadingOptions) -> dict[str, Any]:
    declared = options_in(ReadingOptions)
    said = check_against("read_recordings", declared, reading)
    return {name: said.get(name, option.default) for name, option in declared.items()}


def _not_for_folders(path: Path, **given: str | None) -> None:
    for name, value in given.items():
        if value is not None:
            raise OptionError(
                explain(
                    name,
                    expected="none, since a file of the folder is a series",
                    got=f"'{value}'",
                    remedy=f"Put it into {path / folder.LIST} if it is a group.",
                )
            )
