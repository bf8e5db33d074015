"""A file from the network: over https, resumed where it broke off, hashed as it arrives."""

from __future__ import annotations

import hashlib
import http.client
import socket
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from undamped.data.progress import Listener, human
from undamped.errors import DataError, explain
from undamped.version import __version__

# Short, because a host that does not answer is only the first of several sources.
TIMEOUT = 6.0
_ATTEMPTS = 4
_CHUNK = 1 << 18
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


class DownloadError(DataError):
    """An address could not be read; the next source may do."""


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
    opener = _opener(plain_http, certificates)
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
                _shown(url),
                expected=f"SHA-256 {sha256}",
                got=digest,
                remedy="The file was changed or damaged on the way; it was thrown away.",
            )
        )
    partial.replace(to)
    _forget(partial)
    return digest


def read_page(
    url: str,
    *,
    headers: Mapping[str, str],
    plain_http: bool,
    certificates: str | None,
    limit: int = 64 << 20,
) -> tuple[str, str, str]:
    """Return a small page: its text, its content type, and the address it came from."""
    with _open(_opener(plain_http, certificates), url, headers, {}, plain_http) as answer:
        try:
            content = answer.read(limit + 1)
        except (OSError, http.client.HTTPException) as error:
            raise _failure(url, _reason(error)) from None
        if len(content) > limit:
            raise _failure(url, f"more than {human(limit)}")
        kind = answer.headers.get("Content-Type", "")
        return content.decode("utf-8", errors="replace"), kind, answer.url


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
            listener.note(f"{_shown(url)}: going on after {human(have)}")
    edition = _edition(partial)
    validator = edition.read_text(encoding="latin-1") if have and edition.exists() else None
    for attempt in range(_ATTEMPTS):
        ranged = {"Range": f"bytes={have}-"} if have else {}
        if have and validator:
            ranged["If-Range"] = validator
        try:
            answer = _open(opener, url, headers, ranged, plain_http)
        except DownloadError:
            if attempt == 0 or attempt == _ATTEMPTS - 1:
                raise
            continue
        with answer:
            if answer.status == 416:
                # Nothing after what we have: complete, if the server says so.
                if answer.headers.get("Content-Range", "").rpartition("/")[2] == str(have):
                    return digest.hexdigest()
                raise _failure(url, "a part that does not fit the file on the server")
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
                raise _failure(url, f"{human(total)}, more than the limit of {human(limit)}")
            broken = ""
            with partial.open("ab") as file:
                while True:
                    try:
                        chunk = answer.read(_CHUNK)
                    except (OSError, http.client.HTTPException) as error:
                        broken = _reason(error)
                        break
                    if not chunk:
                        break
                    file.write(chunk)
                    digest.update(chunk)
                    have += len(chunk)
                    listener.advance(len(chunk))
                    if have > limit:
                        _forget(partial)
                        raise _failure(url, f"more than the limit of {human(limit)}")
        if not broken and (total is None or have >= total):
            return digest.hexdigest()
        listener.note(f"{_shown(url)}: broke off after {human(have)}, asking for the rest")
    raise _failure(url, f"a connection that broke off {_ATTEMPTS} times")


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


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, though never from https down to http."""

    def __init__(self, plain_http: bool) -> None:
        self._plain_http = plain_http

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str):
        """Check the new address before it is asked."""
        _check_scheme(newurl, self._plain_http and not req.full_url.startswith("https:"))
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opener(plain_http: bool, certificates: str | None) -> urllib.request.OpenerDirector:
    """Return something that opens addresses the way this module wants it."""
    try:
        context = ssl.create_default_context(cafile=certificates)
    except OSError as error:
        raise DownloadError(
            explain(
                str(certificates),
                expected="a file of certificates",
                got=error.strerror or "something else",
                remedy="Correct pip's option `cert`.",
            )
        ) from None
    return urllib.request.build_opener(
        _SafeRedirects(plain_http), urllib.request.HTTPSHandler(context=context)
    )


def _open(
    opener: urllib.request.OpenerDirector,
    url: str,
    headers: Mapping[str, str],
    ranged: Mapping[str, str],
    plain_http: bool,
) -> Any:
    """Open an address, or say in one sentence why that failed; 416 is an answer."""
    _check_scheme(url, plain_http)
    request = urllib.request.Request(_without_user(url))
    request.add_header("User-Agent", f"undamped/{__version__}")
    request.add_header("Accept-Encoding", "identity")
    for name, value in ranged.items():
        request.add_header(name, value)
    for name, value in headers.items():
        # Unredirected: a password for one host is no business of the next.
        request.add_unredirected_header(name, value)
    try:
        return opener.open(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == 416:
            return error
        error.close()
        raise _failure(url, f"HTTP {error.code}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _failure(url, _reason(error)) from None


def _check_scheme(url: str, plain_http: bool) -> None:
    """Refuse an address that is neither https nor, where acceptable, http."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "https":
        return
    if parts.scheme == "http" and (plain_http or parts.hostname in _LOOPBACK):
        return
    raise _failure(url, f"an address over {parts.scheme or 'nothing'} instead of https")


def _failure(url: str, got: str) -> DownloadError:
    """Return the error for an address that cannot be read."""
    return DownloadError(
        explain(_shown(url), expected="a file", got=got, remedy="Try another source, or later.")
    )


def _without_user(url: str) -> str:
    """Return an address without user name and password, which urllib takes for a host."""
    parts = urllib.parse.urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _shown(url: str) -> str:
    """Return an address without user name, password and query."""
    parts = urllib.parse.urlsplit(url)
    host = parts.hostname or ""
    return f"{parts.scheme}://{host}{parts.path}"


def _reason(error: BaseException) -> str:
    """Return the cause of a network error in a few words."""
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, DataError):
        raise cause
    if isinstance(cause, socket.gaierror):
        return "a host name nobody knows"
    if isinstance(cause, TimeoutError):
        return f"no answer within {TIMEOUT:.0f} seconds"
    if isinstance(cause, ssl.SSLError):
        return f"a certificate or TLS problem ({getattr(cause, 'reason', None) or cause})"
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror.lower()
    return str(cause) or type(cause).__name__
