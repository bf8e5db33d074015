"""Downloads: https only, with safe redirects, resumed after an interruption, checked by SHA-256."""

from __future__ import annotations

import functools
import http.client
import socket
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from undamped._base.errors import DataError
from undamped.lab.data.published.cache import sha256_of
from undamped.lab.data.published.progress import Listener, human
from undamped.version import __version__

_LOOPBACK = {"localhost", "127.0.0.1", "::1"}
_ATTEMPTS = 4
_CHUNK = 1 << 18


class DownloadError(DataError):
    """A URL could not be read; another source may work."""


class UnreachableError(DownloadError):
    """A host did not answer at all.

    Args:
        message: The message.
        host: The host, which need not be tried again.
    """

    def __init__(self, message: str, host: str | None) -> None:
        super().__init__(message)
        self.host = host


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but never from https to http."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str):
        """Check the new URL before it is opened."""
        if req.full_url.startswith("https:") and not newurl.startswith("https:"):
            raise _failure(req.full_url, "it redirects away from https")
        self._client.check_scheme(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


@dataclass(frozen=True)
class Client:
    """Opens URLs.

    Args:
        headers: Further request headers, which are sent to the first host only and not after a
            redirect.
        plain_http: Whether http is allowed, as for a package with a checksum from a configured
            index; on this machine it always is.
        certificates: File of certificate authorities that replaces the system's.
        timeout: Seconds without an answer after which a host is given up.
    """

    headers: Mapping[str, str] = field(default_factory=dict)
    plain_http: bool = False
    certificates: str | None = None
    # Short, because a host that does not answer is only the first of several sources.
    timeout: float = 6.0

    @functools.cached_property
    def _opener(self) -> urllib.request.OpenerDirector:
        try:
            context = ssl.create_default_context(cafile=self.certificates)
        except OSError as error:
            raise DownloadError(
                f"Cannot read the certificates {self.certificates}: {error.strerror or error}. "
                "Correct pip's option `cert`."
            ) from None
        https = urllib.request.HTTPSHandler(context=context)
        return urllib.request.build_opener(_SafeRedirects(self), https)

    def open(self, url: str, headers: Mapping[str, str] | None = None) -> Any:
        """Return the response of a URL; status 416 is a response, other failures are errors.

        Args:
            url: The URL.
            headers: Headers of this request, which are sent after a redirect too.
        """
        self.check_scheme(url)
        # Without user name and password, which urllib would take for a part of the host.
        parts = urllib.parse.urlsplit(url)
        bare = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        agent = {"User-Agent": f"undamped/{__version__}", "Accept-Encoding": "identity"}
        request = urllib.request.Request(bare, headers={**agent, **(headers or {})})
        for name, value in self.headers.items():
            request.add_unredirected_header(name, value)
        try:
            return self._opener.open(request, timeout=self.timeout)
        except urllib.error.HTTPError as error:
            if error.code == 416:
                return error
            error.close()
            raise _failure(url, f"HTTP {error.code}") from None
        except DownloadError:
            raise
        except (OSError, http.client.HTTPException, ValueError) as error:
            message = str(_failure(url, _reason(error, self.timeout)))
            raise UnreachableError(message, parts.hostname) from None

    def read_page(self, url: str, limit: int = 64 << 20) -> tuple[str, str, str]:
        """Return a page of at most `limit` bytes: text, content type, and URL after redirects."""
        with self.open(url) as response:
            try:
                content = response.read(limit + 1)
            except (OSError, http.client.HTTPException) as error:
                raise _failure(url, _reason(error, self.timeout)) from None
            if len(content) > limit:
                raise _failure(url, f"more than {human(limit)}")
            kind = response.headers.get("Content-Type", "")
            return content.decode("utf-8", errors="replace"), kind, response.url

    def check_scheme(self, url: str) -> None:
        """Raise an error for a URL that is neither https nor, where it is allowed, http."""
        parts = urllib.parse.urlsplit(url)
        plain = parts.scheme == "http" and (self.plain_http or parts.hostname in _LOOPBACK)
        if parts.scheme != "https" and not plain:
            raise _failure(url, f"the scheme is '{parts.scheme}' instead of https")


def download(
    url: str,
    to: Path,
    *,
    partial: Path,
    sha256: str | None = None,
    size: int | None = None,
    limit: int = 4 << 30,
    client: Client | None = None,
    listener: Listener | None = None,
) -> str:
    """Download `url` to `to` and return its SHA-256.

    Received bytes are stored in `partial`; if the connection breaks, the next attempt requests the
    rest. A later call resumes too if there is a checksum or an ETag of the server, without which
    both parts might belong to different versions of the file.

    Args:
        url: The URL.
        to: File to write; it appears when the download is complete and correct.
        partial: File for the bytes received so far.
        sha256: Checksum that the file must have.
        size: Expected number of bytes, for the progress bar.
        limit: Number of bytes at which the download stops.
        client: Opens the URL.
        listener: Receives the progress.
    """
    transfer = _Transfer(url, partial, limit, client or Client(), listener or Listener())
    partial.parent.mkdir(parents=True, exist_ok=True)
    if sha256 is None and not transfer.version_file.exists():
        transfer.discard()
    resumed = transfer.received > 0
    transfer.listener.begin(to.name, size)
    try:
        digest = transfer.run()
        if resumed and sha256 not in (None, digest):
            # The first part may belong to another version of the file.
            transfer.listener.note(f"{to.name}: wrong checksum after a resumption, starting over")
            transfer.discard()
            digest = transfer.run()
    finally:
        transfer.listener.end()
    if sha256 not in (None, digest):
        transfer.discard()
        raise DownloadError(
            f"{_public(url)} has the SHA-256 {digest} instead of {sha256}: it was changed or "
            "damaged, and is discarded."
        )
    partial.replace(to)
    transfer.discard()
    return digest


@dataclass(frozen=True)
class _Transfer:
    """A download in progress; its arguments are those of `download`."""

    url: str
    partial: Path
    limit: int
    client: Client
    listener: Listener

    @property
    def version_file(self) -> Path:
        """The ETag or date by which the server recognises the version of the file."""
        return self.partial.with_name(f"{self.partial.name}.edition")

    @property
    def received(self) -> int:
        """Number of bytes so far."""
        return self.partial.stat().st_size if self.partial.exists() else 0

    def discard(self) -> None:
        """Delete what was received."""
        self.partial.unlink(missing_ok=True)
        self.version_file.unlink(missing_ok=True)

    def run(self) -> str:
        """Receive the file in several attempts if necessary; return its SHA-256."""
        if self.received:
            self.listener.note(f"{_public(self.url)}: resuming after {human(self.received)}")
            self.listener.advance(self.received)
        for attempt in range(_ATTEMPTS):
            try:
                response = self.client.open(self.url, self._range_headers())
            except DownloadError:
                if attempt in (0, _ATTEMPTS - 1):
                    raise
                continue
            with response:
                if self._receive(response):
                    return sha256_of(self.partial)
            self.listener.note(
                f"{_public(self.url)}: interrupted after {human(self.received)}, requesting the "
                "rest"
            )
        raise _failure(self.url, f"the connection was interrupted {_ATTEMPTS} times")

    def _range_headers(self) -> dict[str, str]:
        """Return the headers that request the rest, of the same version if it is recorded."""
        if not self.received:
            return {}
        headers = {"Range": f"bytes={self.received}-"}
        if self.version_file.exists():
            headers["If-Range"] = self.version_file.read_text(encoding="latin-1")
        return headers

    def _receive(self, response: Any) -> bool:
        """Append the content of a response; return whether the file is complete."""
        content_range = response.headers.get("Content-Range", "")
        if response.status == 416:
            if content_range.rpartition("/")[2] != str(self.received):
                raise _failure(self.url, "the partial file does not fit the file on the server")
            return True
        continues = response.status == 206 and content_range.startswith(f"bytes {self.received}-")
        if not continues:
            self.discard()  # the server sends the file from its beginning
        version = response.headers.get("ETag") or response.headers.get("Last-Modified")
        if version and not version.startswith("W/"):
            self.version_file.write_text(version, encoding="latin-1")
        else:
            self.version_file.unlink(missing_ok=True)
        length, received = response.headers.get("Content-Length", ""), self.received
        total = received + int(length) if length.isdigit() else 0
        if total > self.limit:
            raise _failure(self.url, f"{human(total)}, more than the limit of {human(self.limit)}")
        with self.partial.open("ab") as file:
            while True:
                try:
                    chunk = response.read(_CHUNK)
                except (OSError, http.client.HTTPException):
                    return False
                if not chunk:
                    return received >= total
                file.write(chunk)
                received += len(chunk)
                self.listener.advance(len(chunk))
                if received > self.limit:
                    self.discard()
                    raise _failure(self.url, f"more than the limit of {human(self.limit)}")


def _failure(url: str, reason: str) -> DownloadError:
    return DownloadError(f"Cannot read {_public(url)}: {reason}. Try another source, or later.")


def _public(url: str) -> str:
    """Return a URL without user name, password and query, for messages."""
    parts = urllib.parse.urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"


def _reason(error: BaseException, timeout: float) -> str:
    """Return the cause of a network error in a few words."""
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, socket.gaierror):
        return "unknown host"
    if isinstance(cause, TimeoutError):
        return f"no answer within {timeout:.0f} seconds"
    if isinstance(cause, ssl.SSLError):
        return f"certificate or TLS problem ({getattr(cause, 'reason', None) or cause})"
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror.lower()
    return str(cause) or type(cause).__name__
