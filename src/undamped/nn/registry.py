"""A cell declares its network: `@network("cornn", "coRNN")` above the class is all it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from undamped._base.registry import models
from undamped.nn.bases.cell import Cell

C = TypeVar("C", bound=type[Cell])


@dataclass(frozen=True)
class Unrolled:
    """The network that a cell becomes when it is unrolled in time.

    Args:
        class_name: What the network's class is called, as the paper spells it.
        cell: The class of the cell.
    """

    class_name: str
    cell: type[Cell]


def network(name: str, class_name: str) -> Callable[[C], C]:
    """Return a decorator that declares the network of a cell.

    Args:
        name: The name of the model in the registry, on the command line and in runs.
        class_name: What the network's class is called: `undamped.nn.coRNN`.
    """

    def enter(cell: C) -> C:
        models.register(name)(Unrolled(class_name, cell))
        return cell

    return enter
