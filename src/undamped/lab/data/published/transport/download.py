"""A file from the network: resumed where it broke off, hashed as it arrives."""

from __future__ import annotations

import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from undamped._base.errors import explain
from undamped.lab.data.published.progress import Listener, human
from undamped.lab.data.published.transport.partial import Partial
from undamped.lab.data.published.transport.web import (
    DownloadError,
    failure,
    make_opener,
    open_address,
    shown,
)

_ATTEMPTS = 4


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
    arriving = Partial(partial, limit, listener)
    if sha256 is None and not arriving.trusted:
        arriving.forget()
    resumed = partial.exists() and partial.stat().st_size > 0
    listener.begin(to.name, size)
    try:
        digest = _collect(opener, url, arriving, headers or {}, plain_http)
        if sha256 is not None and digest != sha256 and resumed:
            # The old half may belong to another edition of the file.
            listener.note(f"{to.name}: the resumed file has a wrong checksum, starting over")
            arriving.forget()
            digest = _collect(opener, url, arriving, headers or {}, plain_http)
    finally:
        listener.end()
    if sha256 is not None and digest != sha256:
        arriving.forget()
        raise DownloadError(
            explain(
                shown(url),
                expected=f"SHA-256 {sha256}",
                got=digest,
                remedy="The file was changed or damaged on the way; it was thrown away.",
            )
        )
    partial.replace(to)
    arriving.forget()
    return digest


def _collect(
    opener: urllib.request.OpenerDirector,
    url: str,
    arriving: Partial,
    headers: Mapping[str, str],
    plain_http: bool,
) -> str:
    """Take a file to its end, over as many attempts as make headway; return its SHA-256."""
    arriving.read_again()
    if arriving.have:
        arriving.listener.note(f"{shown(url)}: going on after {human(arriving.have)}")
    for attempt in range(_ATTEMPTS):
        try:
            answer = open_address(opener, url, headers, _asked_for(arriving), plain_http)
        except DownloadError:
            if attempt == 0 or attempt == _ATTEMPTS - 1:
                raise
            continue
        with answer:
            if answer.status == 416:
                # Nothing after what we have: complete, if the server says so.
                if answer.headers.get("Content-Range", "").rpartition("/")[2] == str(arriving.have):
                    return arriving.digest.hexdigest()
                raise failure(url, "a part that does not fit the file on the server")
            if arriving.have and not _continues(answer, arriving.have):
                arriving.forget()  # the server sends everything again; so be it
            arriving.remember_edition(answer)
            if arriving.take(answer, url):
                return arriving.digest.hexdigest()
        arriving.listener.note(
            f"{shown(url)}: broke off after {human(arriving.have)}, asking for the rest"
        )
    raise failure(url, f"a connection that broke off {_ATTEMPTS} times")


def _asked_for(arriving: Partial) -> dict[str, str]:
    """Return the headers that ask for the rest of a file, of the same edition if it is known."""
    if not arriving.have:
        return {}
    ranged = {"Range": f"bytes={arriving.have}-"}
    if validator := arriving.validator:
        ranged["If-Range"] = validator
    return ranged


def _continues(answer: Any, have: int) -> bool:
    """Whether an answer starts at the byte that was asked for."""
    stated = answer.headers.get("Content-Range", "")
    return answer.status == 206 and stated.startswith(f"bytes {have}-")
