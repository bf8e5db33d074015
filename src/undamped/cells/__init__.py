"""Recurrent cells: one step in time, one file per paper."""

from collections.abc import Callable

from undamped._base.lazy import lazy_names
from undamped._base.registry import models
from undamped.cells.bases.cell import Cell
from undamped.cells.registry import Unrolled

_NAMES = {
    "Cell": "undamped.cells.bases.cell",
    "State": "undamped.cells.bases.cell",
    "network": "undamped.cells.registry",
}


def _cells() -> dict[str, Callable[[], type[Cell]]]:
    declared = [entry for entry in models.entries().values() if isinstance(entry, Unrolled)]
    return {entry.cell.__name__: lambda cell=entry.cell: cell for entry in declared}


__getattr__, __dir__ = lazy_names(__name__, _NAMES, _cells)
