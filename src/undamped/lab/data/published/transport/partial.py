"""What has arrived of a file so far: on disk, counted and hashed."""

from __future__ import annotations

import hashlib
import http.client
from pathlib import Path
from typing import Any

from undamped.lab.data.published.progress import Listener, human
from undamped.lab.data.published.transport.web import failure, reason

_CHUNK = 1 << 18


class Partial:
    """A file that arrives in pieces, perhaps over several attempts.

    Beside it lies the server's name for the edition of the file, by which a later attempt finds
    out whether the rest still belongs to it.

    Args:
        path: Where the pieces are put together.
        limit: Bytes at which to stop.
        listener: Told what arrives.
    """

    def __init__(self, path: Path, limit: int, listener: Listener) -> None:
        self.path, self.limit, self.listener = path, limit, listener
        self.edition = path.with_name(f"{path.name}.edition")
        self.digest = hashlib.sha256()
        self.have = 0

    @property
    def trusted(self) -> bool:
        """Whether the server named the edition, so that another attempt can ask for the same."""
        return self.edition.exists()

    @property
    def validator(self) -> str | None:
        """The server's name for the edition of what is here."""
        known = self.have and self.trusted
        return self.edition.read_text(encoding="latin-1") if known else None

    def read_again(self) -> None:
        """Count and hash what an earlier attempt left."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                self.digest.update(chunk)
                self.have += len(chunk)
        self.listener.advance(self.have)

    def forget(self) -> None:
        """Throw away what has arrived so far."""
        self.digest, self.have = hashlib.sha256(), 0
        self.path.unlink(missing_ok=True)
        self.edition.unlink(missing_ok=True)

    def remember_edition(self, answer: Any) -> None:
        """Write down the edition that an answer belongs to, if it can be told from others."""
        name = answer.headers.get("ETag") or answer.headers.get("Last-Modified")
        if name and not name.startswith("W/"):
            self.edition.write_text(name, encoding="latin-1")
        else:
            self.edition.unlink(missing_ok=True)

    def take(self, answer: Any, url: str) -> bool:
        """Append what an answer brings; return whether the file is whole now.

        Args:
            answer: The server's answer, beginning with the next byte.
            url: Where it comes from, for messages.
        """
        length = answer.headers.get("Content-Length", "")
        total = self.have + int(length) if length.isdigit() else None
        if total is not None and total > self.limit:
            raise failure(url, f"{human(total)}, more than the limit of {human(self.limit)}")
        broken = ""
        with self.path.open("ab") as file:
            while True:
                try:
                    chunk = answer.read(_CHUNK)
                except (OSError, http.client.HTTPException) as error:
                    broken = reason(error)
                    break
                if not chunk:
                    break
                file.write(chunk)
                self.digest.update(chunk)
                self.have += len(chunk)
                self.listener.advance(len(chunk))
                if self.have > self.limit:
                    self.forget()
                    raise failure(url, f"more than the limit of {human(self.limit)}")
        return not broken and (total is None or self.have >= total)
