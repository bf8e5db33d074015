"""Package files from the registries this machine is set up for: npm, pip, apt-get.

The tools are asked to hand over the file and nothing else; no code of a package is ever run.
`pip download` would run the build script of a source archive to learn its name, so source archives
are read from the index that pip is configured with, by this library itself.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from undamped._base.errors import explain
from undamped.lab.data.published.progress import Listener, human
from undamped.lab.data.published.sources import Package
from undamped.lab.data.published.transport import package_index
from undamped.lab.data.published.transport.web import DownloadError

_SECONDS = 900


def obtain(package: Package, into: Path, partial: Path, listener: Listener) -> Path:
    """Put the file of a package into the folder `into` and return its path; not yet checked.

    Args:
        package: What to get.
        into: Folder of its own, empty.
        partial: Where a broken-off download is kept.
        listener: Told how it goes.
    """
    if package.registry == "sdist":
        return package_index.download_file(package, pip_command(), into, partial, listener)
    listener.begin(f"{package.title} ({human(package.size)})", None)
    try:
        if package.registry == "npm":
            _run([_tool("npm", package), *_npm_arguments(package)], into, package)
        elif package.registry == "debian":
            _run([_tool("apt-get", package), "-q", "download", package.package], into, package)
        else:
            _run([*pip_command(), *_wheel_arguments(package, into)], into, package)
    finally:
        listener.end()
    files = [path for path in into.iterdir() if path.is_file()]
    if len(files) != 1:
        raise _failure(package, f"{len(files)} files")
    return files[0]


def pip_command() -> list[str]:
    """Return how to call pip here."""
    for name in ("pip", "pip3"):
        found = shutil.which(name)
        if found:
            return [found]
    return [sys.executable, "-m", "pip"]


def _npm_arguments(package: Package) -> list[str]:
    return [
        "pack",
        f"{package.package}@{package.version}",
        "--ignore-scripts",
        "--fetch-retries=1",
        "--fetch-timeout=60000",
        "--loglevel=error",
    ]


def _wheel_arguments(package: Package, into: Path) -> list[str]:
    return [
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--ignore-requires-python",
        "--no-input",
        "--quiet",
        "--disable-pip-version-check",
        "--retries=1",
        "--timeout=15",
        f"--dest={into}",
        f"{package.package}=={package.version}",
    ]


def _tool(name: str, package: Package) -> str:
    """Return the path of a tool, or say that it is missing."""
    found = shutil.which(name)
    if found is None:
        raise _failure(package, f"no `{name}` on this machine")
    return found


def _run(command: Sequence[str], folder: Path, package: Package) -> None:
    """Run a tool in a folder; its last word becomes the reason if it fails."""
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "PIP_REQUIRE_VIRTUALENV": "0"}
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _failure(package, f"nothing within {_SECONDS // 60} minutes") from None
    except OSError as error:
        raise _failure(package, f"a tool that does not start ({error.strerror})") from None
    if done.returncode:
        raise _failure(package, f"{Path(command[0]).name}: {_last_word(done)}")


def _last_word(done: subprocess.CompletedProcess[str]) -> str:
    """Return the line of a failed tool that says most."""
    lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    telling = [line for line in lines if line.lower().startswith(("error", "npm err", "e:"))]
    return (telling or lines or [f"exit code {done.returncode}"])[0][:200]


def _failure(package: Package, got: str) -> DownloadError:
    return DownloadError(
        explain(package.title, expected="a file", got=got, remedy="Try another source, or later.")
    )
