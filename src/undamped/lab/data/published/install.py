"""The last steps of a fetch: every file checked, then the whole folder put in place at once."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from undamped._base.errors import DataError, explain
from undamped.lab.data.published import cache
from undamped.lab.data.published.arrays import check_array_file
from undamped.lab.data.published.progress import human
from undamped.lab.data.published.sources import DataSet, File, Source


def check_space(data_set: DataSet, source: Source) -> None:
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


def finish(data_set: DataSet, source: Source, workshop: Path) -> list[File]:
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


def install(
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
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".old-{target.name}-") as old:
            target.rename(Path(old) / "set")
            folder.rename(target)
    else:
        folder.rename(target)
