"""A data set from a folder somebody already has."""

from __future__ import annotations

import gzip
import shutil
import zlib
from pathlib import Path

from undamped._base.errors import DataError, explain
from undamped.lab.data.published.cache import sha256
from undamped.lab.data.published.progress import Listener
from undamped.lab.data.published.sources import DataSet, Source
from undamped.lab.data.published.transport.archives import Limits, unpack


def check_folder(folder: Path) -> None:
    """Refuse what is not a folder."""
    if not folder.is_dir():
        raise DataError(
            explain(
                str(folder),
                expected="a folder",
                got="a file" if folder.exists() else "nothing of that name",
                remedy="Name the folder that holds the files of the set.",
            )
        )


def collect(data_set: DataSet, folder: Path, into: Path, listener: Listener) -> Source:
    """Copy the files of a set out of a folder; return which source they look like.

    The folder may hold the files themselves, the same files with `.gz` behind their names, or the
    archives that a source would download.

    Args:
        data_set: What is wanted.
        folder: Where to look; it is only read.
        into: Empty folder to fill.
        listener: Told what was found.
    """
    for source in data_set.sources:
        archives = [folder / part.file for part in source.parts]
        if all(archive.is_file() for archive in archives):
            listener.note(f"{data_set.name}: unpacking {archives[0].name} from {folder}")
            for archive, part in zip(archives, source.parts, strict=True):
                check_sum(archive, part.sha256)
                unpack(archive, into, part.picks, Limits(size=data_set.limit))
            return source
    for source in data_set.sources:
        if source.files and all(_present(folder, file.name) for file in source.files):
            listener.note(f"{data_set.name}: copying {len(source.files)} files from {folder}")
            for file in source.files:
                _copy(folder, file.name, into / file.name, file.size)
            return Source(source.parts, source.files)
    for names in data_set.unchecked:
        if all((folder / name).is_dir() or _present(folder, name) for name in names):
            listener.note(f"{data_set.name}: taking {', '.join(names)} from {folder} as they are")
            for name in names:
                if name.endswith("/"):
                    _copy_folder(folder / name, into / name)
                else:
                    _copy(folder, name, into / name, data_set.limit)
            return Source(data_set.sources[0].parts)
    ways = [_wanted(source) for source in data_set.sources]
    ways += [", ".join(names) for names in data_set.unchecked]
    wanted = " or ".join(dict.fromkeys(ways))
    raise DataError(
        explain(
            str(folder),
            expected=wanted,
            got="a folder without them",
            remedy="Files may have `.gz` behind their names; other names are not guessed.",
        )
    )


def check_sum(path: Path, expected: str | None) -> None:
    """Refuse a file with another checksum than the one that is known, if one is."""
    digest = sha256(path)
    if expected is not None and digest != expected:
        raise DataError(
            explain(
                str(path),
                expected=f"SHA-256 {expected}",
                got=digest,
                remedy="It is not the published file, or it was damaged; nothing was kept.",
            )
        )


def _wanted(source: Source) -> str:
    """Return in words what a folder needs to stand in for a source."""
    if source.files and len(source.files) <= 8:
        return ", ".join(file.name for file in source.files)
    return ", ".join(part.file for part in source.parts)


def _copy_folder(folder: Path, to: Path) -> None:
    """Copy the plain files of a folder and what is below it; links are refused."""
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            raise DataError(
                explain(
                    str(path),
                    expected="a plain file",
                    got="a link",
                    remedy="Put the file itself there.",
                )
            )
        if path.is_file():
            target = to / path.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)


def _present(folder: Path, name: str) -> bool:
    """Whether a file is there, plain or compressed."""
    return (folder / name).is_file() or (folder / f"{name}.gz").is_file()


def _copy(folder: Path, name: str, to: Path, size: int) -> None:
    """Copy a file, decompressing it if need be; a byte too many is enough to know it is wrong."""
    to.parent.mkdir(parents=True, exist_ok=True)
    plain = folder / name
    if plain.is_file():
        shutil.copyfile(plain, to)
        return
    try:
        with gzip.open(folder / f"{name}.gz") as source, to.open("wb") as file:
            while file.tell() <= size and (chunk := source.read(1 << 20)):
                file.write(chunk)
    except (OSError, EOFError, zlib.error):
        raise DataError(
            explain(
                f"{folder / name}.gz",
                expected="a whole gzip file",
                got="a truncated or damaged one",
                remedy="Nothing was kept; copy the file again.",
            )
        ) from None
