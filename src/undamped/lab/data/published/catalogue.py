"""All published data sets by name."""

from __future__ import annotations

import difflib
import functools

from undamped._base.errors import UnknownNameError, explain
from undamped.lab.data.published.sets import forecasts, images, physiology, text, ucr
from undamped.lab.data.published.sources import DataSet, Package


@functools.cache
def all_sets() -> dict[str, DataSet]:
    """Return every set of the catalogue by its name."""
    listed = [*images.SETS, *text.SETS, *physiology.SETS, *forecasts.SETS, *ucr.SETS]
    return {data_set.name: data_set for data_set in listed}


def find(name: str) -> DataSet:
    """Return a set by its name, in any case, with or without its folder in front.

    A name behind `ucr/` that is not in the catalogue stands for the set of that name in the UCR
    and UEA archives.

    Example:
        >>> find("MNIST").name
        'mnist'
    """
    wanted = name.strip().rstrip("/").casefold()
    for data_set in all_sets().values():
        if wanted in (data_set.name.casefold(), data_set.place.casefold()):
            return data_set
    folder, _, archive_name = name.strip().rstrip("/").partition("/")
    if folder.casefold() == "ucr" and ucr.is_archive_name(archive_name):
        return ucr.anywhere(archive_name)
    near = difflib.get_close_matches(wanted, [known.casefold() for known in all_sets()], n=1)
    raise UnknownNameError(
        explain(
            "data set",
            expected="a name of the catalogue",
            got=repr(name),
            remedy=(f"Did you mean {near[0]!r}? " if near else "")
            + "`undamped data list` shows all of them.",
        )
    )


def members(name: str) -> list[DataSet]:
    """Return the sets a name stands for: one; or, for `ucr`, all of them that packages carry."""
    if name.strip().casefold() == "ucr":
        return [
            data_set
            for data_set in ucr.SETS
            if any(isinstance(part, Package) for each in data_set.sources for part in each.parts)
        ]
    return [find(name)]
