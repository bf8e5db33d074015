"""Asking a host for an address: https only, safe redirects, short patience, plain reasons."""

from __future__ import annotations

import http.client
import socket
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from undamped._base.errors import DataError, explain
from undamped.lab.data.published.progress import human
from undamped.version import __version__

# Short, because a host that does not answer is only the first of several sources.
TIMEOUT = 6.0
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


class DownloadError(DataError):
    """An address could not be read; the next source may do."""


class UnreachableError(DownloadError):
    """A host did not answer at all.

    Args:
        message: What happened.
        host: The host, which need not be asked again today.
    """

    def __init__(self, message: str, host: str | None) -> None:
        super().__init__(message)
        self.host = host


def read_page(
    url: str,
    *,
    headers: Mapping[str, str],
    plain_http: bool,
    certificates: str | None,
    limit: int = 64 << 20,
) -> tuple[str, str, str]:
    """Return a small page: its text, its content type, and the address it came from."""
    with open_address(
        make_opener(plain_http, certificates), url, headers, {}, plain_http
    ) as answer:
        try:
            content = answer.read(limit + 1)
        except (OSError, http.client.HTTPException) as error:
            raise failure(url, reason(error)) from None
        if len(content) > limit:
            raise failure(url, f"more than {human(limit)}")
        kind = answer.headers.get("Content-Type", "")
        return content.decode("utf-8", errors="replace"), kind, answer.url


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, though never from https down to http."""

    def __init__(self, plain_http: bool) -> None:
        self._plain_http = plain_http

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str):
        """Check the new address before it is asked."""
        if req.full_url.startswith("https:") and not newurl.startswith("https:"):
            raise failure(req.full_url, "a redirect away from https")
        _check_scheme(newurl, self._plain_http)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def make_opener(plain_http: bool, certificates: str | None) -> urllib.request.OpenerDirector:
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


def open_address(
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
        raise failure(url, f"HTTP {error.code}") from None
    except DownloadError:
        raise
    except (OSError, http.client.HTTPException, ValueError) as error:
        host = urllib.parse.urlsplit(url).hostname
        raise UnreachableError(str(failure(url, reason(error))), host) from None


def _check_scheme(url: str, plain_http: bool) -> None:
    """Refuse an address that is neither https nor, where acceptable, http."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "https":
        return
    if parts.scheme == "http" and (plain_http or parts.hostname in _LOOPBACK):
        return
    raise failure(url, f"an address over {parts.scheme or 'nothing'} instead of https")


def failure(url: str, got: str) -> DownloadError:
    """Return the error for an address that cannot be read."""
    return DownloadError(
        explain(shown(url), expected="a file", got=got, remedy="Try another source, or later.")
    )


def _without_user(url: str) -> str:
    """Return an address without user name and password, which urllib takes for a host."""
    parts = urllib.parse.urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def shown(url: str) -> str:
    """Return an address without user name, password and query."""
    parts = urllib.parse.urlsplit(url)
    host = parts.hostname or ""
    return f"{parts.scheme}://{host}{parts.path}"


def reason(error: BaseException) -> str:
    """Return the cause of a network error in a few words."""
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, socket.gaierror):
        return "a host name nobody knows"
    if isinstance(cause, TimeoutError):
        return f"no answer within {TIMEOUT:.0f} seconds"
    if isinstance(cause, ssl.SSLError):
        return f"a certificate or TLS problem ({getattr(cause, 'reason', None) or cause})"
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror.lower()
    return str(cause) or type(cause).__name__
