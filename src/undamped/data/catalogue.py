"""All published data sets by name."""

from __future__ import annotations

import difflib
import functools

from undamped.data.sets import images
from undamped.data.sources import DataSet
from undamped.errors import UnknownNameError, explain


@functools.cache
def all_sets() -> dict[str, DataSet]:
    """Return every set of the catalogue by its name."""
    listed = [*images.SETS]
    return {data_set.name: data_set for data_set in listed}


def find(name: str) -> DataSet:
    """Return a set by its name, in any case, with or without its folder in front.

    Example:
        >>> find("MNIST").name
        'mnist'
    """
    wanted = name.strip().rstrip("/").casefold()
    for data_set in all_sets().values():
        if wanted in (data_set.name.casefold(), data_set.place.casefold()):
            return data_set
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
    """Return the sets a name stands for: one."""
    return [find(name)]
