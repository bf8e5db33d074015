"""Recurrent cells: one step in time, one file per paper."""

from collections.abc import Callable

from undamped._base.lazy import lazy_names
from undamped._base.registry import models
from undamped.nn.bases.cell import Cell
from undamped.nn.registry import Unrolled

_NAMES = {
    "Cell": "undamped.nn.bases.cell",
    "State": "undamped.nn.bases.cell",
    "network": "undamped.nn.registry",
}


def _cells() -> dict[str, Callable[[], type[Cell]]]:
    declared = [entry for entry in models.entries().values() if isinstance(entry, Unrolled)]
    return {entry.cell.__name__: lambda cell=entry.cell: cell for entry in declared}


__getattr__, __dir__ = lazy_names(__name__, _NAMES, _cells)
