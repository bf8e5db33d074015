"""A data set from a folder of the user."""

from __future__ import annotations

import gzip
import shutil
import zlib
from pathlib import Path

from undamped._base.errors import DataError
from undamped.lab.data.published.cache import sha256_of
from undamped.lab.data.published.progress import Listener
from undamped.lab.data.published.sources import DataSet, Source
from undamped.lab.data.published.transport.archives import Limits, unpack


def collect(data_set: DataSet, folder: Path, into: Path, listener: Listener) -> Source:
    """Copy the files of a set from a folder; return the source that they correspond to.

    The folder may contain the files, the same files with `.gz` behind their names, or the archives
    that a source would download.

    Args:
        data_set: The set.
        folder: Where the files are; it is only read.
        into: Empty folder for the copies.
        listener: Receives the progress.
    """
    for source in data_set.sources:
        archives = [folder / part.file for part in source.parts]
        if all(archive.is_file() for archive in archives):
            listener.note(f"{data_set.name}: unpacking {archives[0].name} from {folder}")
            for archive, part in zip(archives, source.parts, strict=True):
                check_sum(archive, part.sha256, str(archive))
                unpack(archive, into, part.picks, Limits(size=data_set.limit))
            return source
    for source in data_set.sources:
        if source.files and _has_all(folder, [file.name for file in source.files]):
            listener.note(f"{data_set.name}: copying {len(source.files)} files from {folder}")
            for file in source.files:
                _copy(folder, file.name, into, file.size)
            return Source(source.parts, source.files)
    for names in data_set.unchecked:
        if _has_all(folder, names):
            listener.note(f"{data_set.name}: copying {', '.join(names)} from {folder} unchecked")
            for name in names:
                _copy(folder, name, into, data_set.limit)
            return Source(data_set.sources[0].parts)
    ways = [_describe(source) for source in data_set.sources]
    ways += [", ".join(names) for names in data_set.unchecked]
    raise DataError(
        f"{folder} does not contain {' or '.join(dict.fromkeys(ways))}. Files may have `.gz` "
        "behind their names; other names are not recognised."
    )


def check_sum(path: Path, expected: str | None, title: str) -> None:
    """Raise an error if a file does not have its checksum.

    Args:
        path: The file.
        expected: Its SHA-256; None if it is unknown.
        title: Name in the message.
    """
    digest = sha256_of(path)
    if expected not in (None, digest):
        raise DataError(
            f"{title} has the SHA-256 {digest} instead of {expected}: it is not the published "
            "file, or it is damaged. Nothing is kept."
        )


def _describe(source: Source) -> str:
    """Return which files a folder needs to replace a source."""
    if source.files and len(source.files) <= 8:
        return ", ".join(file.name for file in source.files)
    return ", ".join(part.file for part in source.parts)


def _has_all(folder: Path, names: list[str] | tuple[str, ...]) -> bool:
    """Whether a folder has all files, plain or compressed, and all subfolders."""
    return all(
        (folder / name).is_dir()
        if name.endswith("/")
        else (folder / name).is_file() or (folder / f"{name}.gz").is_file()
        for name in names
    )


def _copy(folder: Path, name: str, into: Path, limit: int) -> None:
    """Copy a file, decompressed if necessary, or all files of a subfolder; links are refused."""
    if name.endswith("/"):
        for path in sorted((folder / name).rglob("*")):
            if path.is_symlink():
                raise DataError(f"{path} is a link. Replace it by the file.")
            if path.is_file():
                _copy(folder, path.relative_to(folder).as_posix(), into, limit)
        return
    target = into / name
    target.parent.mkdir(parents=True, exist_ok=True)
    if (folder / name).is_file():
        shutil.copyfile(folder / name, target)
        return
    try:
        with gzip.open(folder / f"{name}.gz") as source, target.open("wb") as file:
            # One byte more than the limit is enough to fail the check of the size.
            while file.tell() <= limit and (chunk := source.read(1 << 20)):
                file.write(chunk)
    except (OSError, EOFError, zlib.error):
        raise DataError(
            f"{folder / name}.gz is truncated or damaged. Nothing is kept; copy the file again."
        ) from None
