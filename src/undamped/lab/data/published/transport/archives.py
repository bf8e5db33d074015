"""Unpacking that cannot write anything but what was asked for, where it was asked for.

The whole list of members is checked before the first byte is written: no path out of the folder,
no link, no device, no more files and bytes than allowed. Only wanted members are written at all.
"""

from __future__ import annotations

import fnmatch
import gzip
import lzma
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from undamped._base.errors import DataError, explain
from undamped.lab.data.published.progress import human
from undamped.lab.data.published.sources import Pick
from undamped.lab.data.published.transport.bounded import BoundedReader, debian_payload

_DAMAGE = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError)
_TAR = (".tar.gz", ".tgz", ".tar.xz", ".tar.bz2", ".tar")
_ZIP = (".zip", ".whl", ".egg")
_CHUNK = 1 << 18


@dataclass(frozen=True)
class Limits:
    """How much an archive may hold, wanted or not.

    Args:
        size: Bytes after decompression.
        files: Members.
    """

    size: int = 1 << 30
    files: int = 200_000


@dataclass(frozen=True)
class _Member:
    """A member of any kind of archive."""

    name: str
    size: int
    regular: bool
    folder: bool
    kind: str


def unpack(archive: Path, into: Path, picks: Sequence[Pick], limits: Limits | None = None) -> None:
    """Write the wanted members of an archive, or of a single compressed file, below `into`.

    Nothing is written unless everything wanted is there and harmless. Damage inside a member
    shows only while it is written, so `into` should be a folder that can be thrown away.

    Args:
        archive: A tar (plain, gz, xz, bz2), zip, wheel or Debian package; anything else counts
            as a single file, decompressed if it ends in `.gz` and its pick does not.
        into: Existing folder.
        picks: What is wanted and where it goes.
        limits: How much the archive may hold.
    """
    limits = limits or Limits()
    try:
        if archive.name.endswith((*_TAR, ".deb")):
            with _tar(archive, limits) as tar:
                plan = _plan(archive, (_of_tar(member) for member in tar), picks, limits)
                # tarfile stops at the last member; the checksum comes behind it.
                while tar.fileobj.read(_CHUNK):  # type: ignore[union-attr]
                    pass
            with _tar(archive, limits) as tar:
                _write_tar(tar, plan, into, limits)
        elif archive.name.endswith(_ZIP):
            with zipfile.ZipFile(archive) as zipped:
                infos = zipped.infolist()
                plan = _plan(archive, (_of_zip(info) for info in infos), picks, limits)
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
        raise _refusal(archive, "a whole archive", "a truncated or damaged one") from error
    except OSError as error:
        if error.errno is not None:
            raise  # the system's, of the disk; those of gzip and bz2 have no number
        raise _refusal(archive, "a whole archive", "a damaged one") from error
    except (NotImplementedError, RuntimeError) as error:
        # zipfile's way of saying: encrypted, or a compression it does not know.
        raise _refusal(archive, "an archive that can be read", str(error)) from error


def _plan(
    archive: Path, members: Iterator[_Member], picks: Sequence[Pick], limits: Limits
) -> dict[str, str]:
    """Check all members; return where each wanted one goes."""
    plan: dict[str, str] = {}
    taken: set[str] = set()
    found: set[Pick] = set()
    count = total = 0
    for member in members:
        count += 1
        total += member.size
        if count > limits.files:
            raise _refusal(archive, f"at most {limits.files} members", "more")
        if total > limits.size:
            raise _refusal(archive, f"at most {human(limits.size)} unpacked", "more")
        _check_path(archive, member.name)
        if member.folder:
            continue
        for pick in picks:
            name = _target(pick, member.name)
            if name is None:
                continue
            if not member.regular:
                raise _refusal(archive, "plain files", f"{member.kind} {member.name!r}")
            if name.casefold() in taken or member.name in plan:
                raise _refusal(archive, "every file once", f"{name!r} twice")
            _check_path(archive, name)
            taken.add(name.casefold())
            plan[member.name] = name
            found.add(pick)
            break
    missing = [pick.member for pick in picks if pick not in found]
    if missing:
        raise _refusal(archive, f"{missing[0]!r} in it", f"{count} members without it")
    return plan


def _target(pick: Pick, member: str) -> str | None:
    """Return where a member goes according to a pick; None if it is not meant."""
    plain = member.removeprefix("./")
    if "*" in pick.member:
        fits = fnmatch.fnmatchcase(plain, pick.member)
        return pick.name + plain.rpartition("/")[2] if fits else None
    if pick.member.endswith("/"):
        return pick.name + plain[len(pick.member) :] if plain.startswith(pick.member) else None
    return pick.name if plain == pick.member else None


def _check_path(archive: Path, name: str) -> None:
    """Refuse a name that could leave the folder on any system."""
    parts = PurePosixPath(name).parts
    if (
        not name
        or name.startswith("/")
        or ".." in parts
        or "\\" in name
        or "\0" in name
        or (len(name) > 1 and name[1] == ":")
    ):
        raise _refusal(archive, "paths that stay inside the folder", repr(name))


@contextmanager
def _tar(archive: Path, limits: Limits) -> Iterator[tarfile.TarFile]:
    """Open a tar archive, or the one inside a Debian package, behind a bounded reader."""
    with archive.open("rb") as file:
        name, raw = archive.name, file
        if name.endswith(".deb"):
            name, raw = debian_payload(archive, file)
        # Half as much again: headers and padding come on top of the files.
        ceiling = limits.size + limits.size // 2 + (1 << 20)
        with _decompressed(archive, name, raw) as stream:
            reader: Any = BoundedReader(archive, stream, ceiling)
            with tarfile.open(fileobj=reader, mode="r:") as tar:
                yield tar


def _decompressed(archive: Path, name: str, raw: IO[bytes]) -> Any:
    """Return the plain stream behind a compressed one."""
    if name.endswith((".gz", ".tgz")):
        return gzip.GzipFile(fileobj=raw, mode="rb")
    if name.endswith(".xz"):
        return lzma.LZMAFile(raw, "rb")
    if name.endswith(".bz2"):
        import bz2

        return bz2.BZ2File(raw, "rb")
    if name.endswith(".tar"):
        return raw
    raise _refusal(archive, "gz, xz or bz2 compression", name.rpartition(".")[2])


def _of_tar(member: tarfile.TarInfo) -> _Member:
    """Describe a member of a tar archive."""
    regular = member.isreg() and not member.issparse()
    kind = (
        "the link"
        if member.issym() or member.islnk()
        else "the sparse file"
        if member.issparse()
        else "the device"
    )
    return _Member(member.name, member.size, regular, member.isdir(), kind)


def _of_zip(info: zipfile.ZipInfo) -> _Member:
    """Describe a member of a zip archive, with the kind that Unix recorded in it."""
    mode = info.external_attr >> 16
    kind = stat.S_IFMT(mode)
    regular = kind in (0, stat.S_IFREG) and not info.flag_bits & 1
    word = "the link" if kind == stat.S_IFLNK else "the encrypted or special file"
    return _Member(info.orig_filename, info.file_size, regular, info.is_dir(), word)


def _write_tar(tar: tarfile.TarFile, plan: dict[str, str], into: Path, limits: Limits) -> None:
    """Write the planned members of a tar archive, in its order."""
    for member in tar:
        if member.name in plan:
            source = tar.extractfile(member)
            if source is not None:
                with source:
                    _write(source, into, member.name, plan[member.name], limits)


def _write(source: IO[bytes], into: Path, member: str, name: str, limits: Limits) -> None:
    """Write one member; never more bytes than allowed, whatever its header says."""
    path = into / name
    path.parent.mkdir(parents=True, exist_ok=True)
    stream: Any = source
    if member.endswith(".gz") and not name.endswith(".gz"):
        stream = gzip.GzipFile(fileobj=source, mode="rb")
    _copy(stream.read, path, limits.size)


def _copy(read: Callable[[int], bytes], path: Path, limit: int) -> None:
    """Copy a stream into a new file, up to a limit."""
    written = 0
    with path.open("xb") as file:
        while chunk := read(_CHUNK):
            written += len(chunk)
            if written > limit:
                raise _refusal(path, f"at most {human(limit)} unpacked", "more")
            file.write(chunk)


def _refusal(archive: Path, expected: str, got: str) -> DataError:
    """Return the error for an archive that will not be unpacked."""
    return DataError(
        explain(
            archive.name,
            expected=expected,
            got=got,
            remedy="Nothing of it was kept; get the archive from another source.",
        )
    )
