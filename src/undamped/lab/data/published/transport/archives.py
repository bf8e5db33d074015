"""Safe extraction of archives: only the requested files, only below the target folder.

All entries are checked before the first byte is written: no path out of the folder, no link, no
device, no more files and bytes than allowed.
"""

from __future__ import annotations

import bz2
import fnmatch
import gzip
import io
import lzma
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple

from undamped._base.errors import DataError
from undamped.lab.data.published.progress import human
from undamped.lab.data.published.sources import Pick

_DAMAGE = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError)
_TAR = (".tar.gz", ".tgz", ".tar.xz", ".tar.bz2", ".tar")
_ZIP = (".zip", ".whl", ".egg")
_DECOMPRESSORS = {"gz": gzip.open, "tgz": gzip.open, "xz": lzma.open, "bz2": bz2.open}
_CHUNK = 1 << 18
_LARGEST_READ = 16 << 20


@dataclass(frozen=True)
class Limits:
    """How much an archive may contain, including the entries that are not extracted.

    Args:
        size: Bytes after decompression.
        files: Number of entries.
    """

    size: int = 1 << 30
    files: int = 200_000


class _Entry(NamedTuple):
    """A file, folder, link or device in an archive."""

    name: str
    size: int
    regular: bool
    folder: bool
    kind: str


def unpack(archive: Path, into: Path, picks: Sequence[Pick], limits: Limits | None = None) -> None:
    """Extract some entries of an archive, or a single compressed file, below `into`.

    Nothing is written unless all of them are present and safe. Damage inside an entry is detected
    while it is written, so `into` should be a temporary folder.

    Args:
        archive: A tar (plain, gz, xz, bz2), zip, wheel or Debian package; any other file is a
            single file, which is decompressed if it ends in `.gz` and its pick does not.
        into: Existing folder.
        picks: Which entries, and their new names.
        limits: How much the archive may contain.
    """
    limits = limits or Limits()
    try:
        if archive.name.endswith((*_TAR, ".deb")):
            _unpack_tar(archive, into, picks, limits)
        elif archive.name.endswith(_ZIP):
            with zipfile.ZipFile(archive) as zipped:
                infos = zipped.infolist()
                plan = _plan(archive, map(_zip_entry, infos), picks, limits)
                for info in infos:
                    if info.filename in plan:
                        with zipped.open(info) as source:
                            _write(source, into, info.filename, plan[info.filename], limits)
        else:
            [pick] = picks
            _check_path(archive, pick.name)
            with archive.open("rb") as source:
                _write(source, into, archive.name, pick.name, limits)
    except _DAMAGE as error:
        raise _refusal(archive, "it is truncated or damaged") from error
    except OSError as error:
        if error.errno is not None:
            raise  # of the operating system; the errors of gzip and bz2 have no number
        raise _refusal(archive, "it is damaged") from error
    except (NotImplementedError, RuntimeError) as error:
        # zipfile raises these for encryption and for unknown compressions.
        raise _refusal(archive, str(error)) from error


def _unpack_tar(archive: Path, into: Path, picks: Sequence[Pick], limits: Limits) -> None:
    with _open_tar(archive, limits) as tar:
        plan = _plan(archive, map(_tar_entry, tar), picks, limits)
        # tarfile stops after the last entry; the checksum of the compression is behind it.
        while tar.fileobj.read(_CHUNK):  # type: ignore[union-attr]
            pass
    with _open_tar(archive, limits) as tar:
        for info in tar:
            source = tar.extractfile(info) if info.name in plan else None
            if source is not None:
                with source:
                    _write(source, into, info.name, plan[info.name], limits)


def _plan(
    archive: Path, entries: Iterator[_Entry], picks: Sequence[Pick], limits: Limits
) -> dict[str, str]:
    """Check all entries; return the new name of each requested one."""
    plan: dict[str, str] = {}
    names: set[str] = set()
    missing = set(picks)
    count = total = 0
    for entry in entries:
        count += 1
        total += entry.size
        if count > limits.files:
            raise _refusal(archive, f"it has more than {limits.files} members")
        if total > limits.size:
            raise _refusal(archive, f"it may have at most {human(limits.size)} unpacked")
        _check_path(archive, entry.name)
        if entry.folder:
            continue
        match = next(((p, n) for p in picks if (n := _target(p, entry.name)) is not None), None)
        if match is None:
            continue
        pick, name = match
        if not entry.regular:
            raise _refusal(archive, f"only plain files are unpacked, not {entry.kind} {name!r}")
        if name.casefold() in names or entry.name in plan:
            raise _refusal(archive, f"{name!r} is in it twice")
        _check_path(archive, name)
        names.add(name.casefold())
        plan[entry.name] = name
        missing.discard(pick)
    if missing:
        pattern = min(pick.pattern for pick in missing)
        raise _refusal(archive, f"none of its {count} members is {pattern!r}")
    return plan


def _target(pick: Pick, name: str) -> str | None:
    """Return the new name of an entry according to a pick; None if it does not match."""
    plain = name.removeprefix("./")
    if "*" in pick.pattern:
        fits = fnmatch.fnmatchcase(plain, pick.pattern)
        return pick.name + plain.rpartition("/")[2] if fits else None
    if pick.pattern.endswith("/"):
        return pick.name + plain[len(pick.pattern) :] if plain.startswith(pick.pattern) else None
    return pick.name if plain == pick.pattern else None


def _check_path(archive: Path, name: str) -> None:
    """Raise an error for a name that could leave the folder on any operating system."""
    absolute = name.startswith("/") or name[1:2] == ":"
    if not name or absolute or ".." in PurePosixPath(name).parts or set("\\\0") & set(name):
        raise _refusal(archive, f"paths must stay inside the folder, unlike {name!r}")


class _BoundedReader:
    """A decompressed stream that raises an error beyond a limit.

    tarfile trusts the sizes in headers, so that a header of a few bytes could make it read
    gigabytes into memory at once.
    """

    def __init__(self, archive: Path, stream: Any, limit: int) -> None:
        self._archive = archive
        self._stream = stream
        self._limit = limit
        self.tell = stream.tell

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _LARGEST_READ:
            raise _refusal(self._archive, "a header requests too much at once")
        self._check(self.tell() + size - _LARGEST_READ)
        return self._stream.read(size)

    def seek(self, position: int, whence: int = 0) -> int:
        self._check(position if whence == 0 else 0)
        return self._stream.seek(position, whence)

    def _check(self, position: int) -> None:
        if position > self._limit:
            raise _refusal(self._archive, f"it may have at most {self._limit} bytes unpacked")


@contextmanager
def _open_tar(archive: Path, limits: Limits) -> Iterator[tarfile.TarFile]:
    """Open a tar archive, or the one inside a Debian package, through a bounded reader."""
    with archive.open("rb") as file:
        name, raw = archive.name, file
        if name.endswith(".deb"):
            name, raw = _debian_payload(archive, file)
        suffix = name.rpartition(".")[2]
        if suffix != "tar" and suffix not in _DECOMPRESSORS:
            raise _refusal(archive, f"its compression is {suffix} instead of gz, xz or bz2")
        # Half as much again, for headers and padding.
        limit = limits.size + limits.size // 2 + (1 << 20)
        with raw if suffix == "tar" else _DECOMPRESSORS[suffix](raw, "rb") as stream:
            reader: Any = _BoundedReader(archive, stream, limit)
            with tarfile.open(fileobj=reader, mode="r:") as tar:
                yield tar


def _debian_payload(archive: Path, file: IO[bytes]) -> tuple[str, IO[bytes]]:
    """Return name and content of the `data.tar.*` inside a Debian package.

    A Debian package is an `ar` archive: eight bytes of signature, then entries, each behind a
    header of sixty bytes and padded to an even length.
    """
    if file.read(8) == b"!<arch>\n":
        position = 8
        while len(header := file.read(60)) == 60 and header[58:] == b"`\n":
            name = header[:16].decode("ascii", errors="replace").strip().rstrip("/")
            digits = header[48:58].strip()
            if not digits.isdigit():
                break
            # Python reserves memory for what is requested, so a wrong size must not count.
            size = min(int(digits), archive.stat().st_size)
            if name.startswith("data.tar"):
                return name, io.BytesIO(file.read(size))
            position += 60 + size + size % 2
            file.seek(position)
    raise _refusal(archive, "it is no Debian package, or damaged")


def _tar_entry(info: tarfile.TarInfo) -> _Entry:
    kind = "the device"
    if info.issym() or info.islnk():
        kind = "the link"
    elif info.issparse():
        kind = "the sparse file"
    regular = info.isreg() and not info.issparse()
    return _Entry(info.name, info.size, regular, info.isdir(), kind)


def _zip_entry(info: zipfile.ZipInfo) -> _Entry:
    """Describe an entry of a zip archive, with the file type that Unix recorded in it."""
    kind = stat.S_IFMT(info.external_attr >> 16)
    regular = kind in (0, stat.S_IFREG) and not info.flag_bits & 1
    word = "the link" if kind == stat.S_IFLNK else "the encrypted or special file"
    return _Entry(info.orig_filename, info.file_size, regular, info.is_dir(), word)


def _write(source: IO[bytes], into: Path, entry: str, name: str, limits: Limits) -> None:
    """Write an entry; never more bytes than allowed, whatever its header says."""
    path = into / name
    path.parent.mkdir(parents=True, exist_ok=True)
    stream: Any = source
    if entry.endswith(".gz") and not name.endswith(".gz"):
        stream = gzip.GzipFile(fileobj=source, mode="rb")
    size = 0
    with path.open("xb") as file:
        while chunk := stream.read(_CHUNK):
            size += len(chunk)
            if size > limits.size:
                raise _refusal(path, f"it may have at most {human(limits.size)} unpacked")
            file.write(chunk)


def _refusal(archive: Path, problem: str) -> DataError:
    return DataError(
        f"Cannot unpack {archive.name}: {problem}. Nothing is kept; use another source."
    )
