"""Readers that stop where they should: a part of a file, and a stream with a ceiling."""

from __future__ import annotations

import io
from pathlib import Path
from typing import IO, Any

from undamped._base.errors import DataError, explain

_LARGEST_READ = 16 << 20


class BoundedReader:
    """A decompressed stream that refuses to go past a ceiling.

    tarfile believes the sizes in the headers, so that a header of a few bytes can make it read
    gigabytes into memory at once; here it cannot.

    Args:
        archive: Named in messages.
        stream: What is read.
        ceiling: Bytes.
    """

    def __init__(self, archive: Path, stream: Any, ceiling: int) -> None:
        self._archive = archive
        self._stream = stream
        self._ceiling = ceiling

    def read(self, size: int = -1) -> bytes:
        """Read at most `size` bytes."""
        if size < 0 or size > _LARGEST_READ:
            self._refuse("a header that asks for too much at once")
        if self.tell() + size > self._ceiling + _LARGEST_READ:
            self._refuse("more")
        return self._stream.read(size)

    def seek(self, position: int, whence: int = 0) -> int:
        """Go to a position."""
        if whence == 0 and position > self._ceiling:
            self._refuse("more")
        return self._stream.seek(position, whence)

    def tell(self) -> int:
        """Return the position."""
        return self._stream.tell()

    def _refuse(self, got: str) -> None:
        raise DataError(
            explain(
                self._archive.name,
                expected=f"at most {self._ceiling} bytes unpacked",
                got=got,
                remedy="Nothing of it was kept; get the archive from another source.",
            )
        )


class _Slice(io.RawIOBase):
    """Part of a file, as if it were a file of its own."""

    def __init__(self, file: IO[bytes], start: int, size: int) -> None:
        self._file, self._start, self._size, self._at = file, start, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        base = (0, self._at, self._size)[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        self._file.seek(self._start + self._at)
        chunk = self._file.read(max(0, min(len(buffer), self._size - self._at)))
        buffer[: len(chunk)] = chunk
        self._at += len(chunk)
        return len(chunk)


def debian_payload(archive: Path, file: IO[bytes]) -> tuple[str, IO[bytes]]:
    """Return name and content of the `data.tar.*` inside a Debian package.

    A Debian package is an `ar` archive: eight bytes of signature, then members, each behind a
    header of sixty bytes and padded to an even length.
    """
    if file.read(8) == b"!<arch>\n":
        position = 8
        while len(header := file.read(60)) == 60 and header[58:] == b"`\n":
            position += 60
            name = header[:16].decode("ascii", errors="replace").strip().rstrip("/")
            digits = header[48:58].strip()
            if not digits.isdigit():
                break
            size = int(digits)
            if name.startswith("data.tar"):
                return name, io.BufferedReader(_Slice(file, position, size))
            position += size + size % 2
            file.seek(position)
    raise DataError(
        explain(
            archive.name,
            expected="a Debian package",
            got="something else or a damaged one",
            remedy="Nothing of it was kept; get the package again.",
        )
    )
