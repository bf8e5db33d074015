"""A file from the network: resumed where it broke off, hashed as it arrives."""

from __future__ import annotations

import hashlib
import http.client
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from undamped.data.published.progress import Listener, human
from undamped.data.published.transport.web import (
    DownloadError,
    failure,
    make_opener,
    open_address,
    reason,
    shown,
)
from undamped.errors import explain

_ATTEMPTS = 4
_CHUNK = 1 << 18


def download(
    url: str,
    to: Path,
    *,
    partial: Path,
    sha256: str | None = None,
    size: int | None = None,
    limit: int = 4 << 30,
    headers: Mapping[str, str] | None = None,
    plain_http: bool = False,
    certificates: str | None = None,
    listener: Listener | None = None,
) -> str:
    """Download `url` to `to` and return its SHA-256.

    What has arrived is kept in `partial`; if the connection breaks, the next attempt asks for
    the rest. A later call goes on from there too, provided that a checksum is known or the
    server named the edition of the file: otherwise nobody could tell whether both halves belong
    together.

    Args:
        url: Address.
        to: File to write; it appears when all is well, and not before.
        partial: File for what has arrived so far.
        sha256: Checksum it must have.
        size: Bytes it should have; shown, and the progress bar's full length.
        limit: Bytes at which to stop.
        headers: Further request headers, sent to this host only.
        plain_http: Whether http is acceptable, as it is for a checksummed package from an index
            that somebody configured; the machine itself may always be asked over http.
        certificates: File of certificate authorities to trust instead of the system's.
        listener: Told how it goes.
    """
    listener = listener or Listener()
    opener = make_opener(plain_http, certificates)
    partial.parent.mkdir(parents=True, exist_ok=True)
    if sha256 is None and not _edition(partial).exists():
        partial.unlink(missing_ok=True)
    resumed = partial.exists() and partial.stat().st_size > 0
    listener.begin(to.name, size)
    try:
        digest = _collect(opener, url, partial, limit, headers or {}, plain_http, listener)
        if sha256 is not None and digest != sha256 and resumed:
            # The old half may belong to another edition of the file.
            listener.note(f"{to.name}: the resumed file has a wrong checksum, starting over")
            _forget(partial)
            digest = _collect(opener, url, partial, limit, headers or {}, plain_http, listener)
    finally:
        listener.end()
    if sha256 is not None and digest != sha256:
        _forget(partial)
        raise DownloadError(
            explain(
                shown(url),
                expected=f"SHA-256 {sha256}",
                got=digest,
                remedy="The file was changed or damaged on the way; it was thrown away.",
            )
        )
    partial.replace(to)
    _forget(partial)
    return digest


def _collect(
    opener: urllib.request.OpenerDirector,
    url: str,
    partial: Path,
    limit: int,
    headers: Mapping[str, str],
    plain_http: bool,
    listener: Listener,
) -> str:
    """Fill `partial` to its end, over as many attempts as make headway; return its SHA-256."""
    digest = hashlib.sha256()
    have = 0
    if partial.exists():
        with partial.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
                have += len(chunk)
        listener.advance(have)
        if have:
            listener.note(f"{shown(url)}: going on after {human(have)}")
    edition = _edition(partial)
    validator = edition.read_text(encoding="latin-1") if have and edition.exists() else None
    for attempt in range(_ATTEMPTS):
        ranged = {"Range": f"bytes={have}-"} if have else {}
        if have and validator:
            ranged["If-Range"] = validator
        try:
            answer = open_address(opener, url, headers, ranged, plain_http)
        except DownloadError:
            if attempt == 0 or attempt == _ATTEMPTS - 1:
                raise
            continue
        with answer:
            if answer.status == 416:
                # Nothing after what we have: complete, if the server says so.
                if answer.headers.get("Content-Range", "").rpartition("/")[2] == str(have):
                    return digest.hexdigest()
                raise failure(url, "a part that does not fit the file on the server")
            if have and not _continues(answer, have):
                # The server sends everything again; so be it.
                digest, have = hashlib.sha256(), 0
                _forget(partial)
            validator = answer.headers.get("ETag") or answer.headers.get("Last-Modified")
            if validator and not validator.startswith("W/"):
                edition.write_text(validator, encoding="latin-1")
            else:
                validator = None
            length = answer.headers.get("Content-Length", "")
            total = have + int(length) if length.isdigit() else None
            if total is not None and total > limit:
                raise failure(url, f"{human(total)}, more than the limit of {human(limit)}")
            broken = ""
            with partial.open("ab") as file:
                while True:
                    try:
                        chunk = answer.read(_CHUNK)
                    except (OSError, http.client.HTTPException) as error:
                        broken = reason(error)
                        break
                    if not chunk:
                        break
                    file.write(chunk)
                    digest.update(chunk)
                    have += len(chunk)
                    listener.advance(len(chunk))
                    if have > limit:
                        _forget(partial)
                        raise failure(url, f"more than the limit of {human(limit)}")
        if not broken and (total is None or have >= total):
            return digest.hexdigest()
        listener.note(f"{shown(url)}: broke off after {human(have)}, asking for the rest")
    raise failure(url, f"a connection that broke off {_ATTEMPTS} times")


def _edition(partial: Path) -> Path:
    """Return the file that keeps the server's name for the edition of a partial download."""
    return partial.with_name(f"{partial.name}.edition")


def _forget(partial: Path) -> None:
    """Throw away what has arrived so far."""
    partial.unlink(missing_ok=True)
    _edition(partial).unlink(missing_ok=True)


def _continues(answer: Any, have: int) -> bool:
    """Whether an answer starts at the byte that was asked for."""
    stated = answer.headers.get("Content-Range", "")
    return answer.status == 206 and stated.startswith(f"bytes {have}-")
