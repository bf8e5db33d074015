"""The networks of cells, made of what the cells declare, and `build` for any model.

The classes have no line of their own: `undamped.nn.models.coRNN` is made when it is asked
for, by a program or by a pickle.
"""

from __future__ import annotations

import inspect
import textwrap
from typing import Any

from undamped._base.contract import TaskShape
from undamped._base.docstrings import documented_arguments
from undamped._base.errors import OptionError, explain
from undamped._base.lazy import lazy_names
from undamped._base.registry import models
from undamped.models.for_task import check_options, model_for
from undamped.models.task_model import TaskModel
from undamped.nn.bases.cell import Cell
from undamped.nn.cell_stack import CellStack
from undamped.nn.gru import GRUCell
from undamped.nn.lstm import LSTMCell
from undamped.nn.oscillators import OscillatorNetwork
from undamped.nn.recurrent import Recurrent
from undamped.nn.registry import Unrolled
from undamped.nn.rnn import RNNCell
from undamped.nn.torch_like import TorchLike
from undamped.nn.unicornn import UnICORNNCell

UNROLLED_BY: tuple[tuple[type[Cell], type[Recurrent]], ...] = (
    (UnICORNNCell, OscillatorNetwork),
    (RNNCell, TorchLike),
    (LSTMCell, TorchLike),
    (GRUCell, TorchLike),
    (Cell, Recurrent),
)
"""Cells, and what unrolls them; the first line that fits counts."""


@models.made_from(Unrolled)
def recurrent_network(declared: Unrolled) -> type[Recurrent]:
    """Make the network class of a cell: its name, its signature, its documentation."""
    cell = declared.cell
    base = next(network for kind, network in UNROLLED_BY if issubclass(cell, kind))
    network = type(
        declared.class_name,
        (base,),
        {"cell_class": cell, "__doc__": None, "__module__": __name__},
    )
    network.__doc__ = _documentation(network)
    network.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(
                option.name,
                inspect.Parameter.POSITIONAL_OR_KEYWORD
                if option.name in ("input_size", "hidden_size", "num_layers")
                else inspect.Parameter.KEYWORD_ONLY,
                default=option.default,
                annotation=option.annotation,
            )
            for option in network.declared_options().values()
        ]
        + [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None)
            for name in ("device", "dtype")
        ]
    )
    return network


def _documentation(network: type[Recurrent]) -> str:
    """Return the documentation of the cell with the arguments that all networks share."""
    text = inspect.getdoc(network.cell_class) or ""
    before, _, rest = text.partition("\nArgs:\n")
    after = rest[rest.find("\n\n") :] if "\n\n" in rest else ""
    shared = documented_arguments(CellStack)
    told = {option.name: option.description for option in network.declared_options().values()}
    told |= {name: shared[name] for name in ("device", "dtype")}
    lines = [
        textwrap.fill(f"{name}: {said}", 96, initial_indent="    ", subsequent_indent="        ")
        for name, said in told.items()
    ]
    return "\n".join((before, "Args:", *lines)) + after


def build(name: str, **options: Any) -> Any:
    """Build any model by its registry name.

    Args:
        name: A name from `undamped list`.
        options: Its options; unknown names and values out of range are refused with a sentence. A
            whole model also takes the `shape` of its task.

    Example:
        >>> net = undamped.build("unicornn", input_size=6, hidden_size=32, num_layers=2)
    """
    member = models[name]
    if not (isinstance(member, type) and issubclass(member, TaskModel)):
        return models.build(name, **options)
    shape = options.pop("shape", None)
    if not isinstance(shape, TaskShape):
        raise OptionError(
            explain(
                name,
                expected="the shape of its task",
                got="none" if shape is None else type(shape).__name__,
                remedy="For example shape=undamped.lab.tasks.build('rmts').task_shape.",
            )
        )
    return model_for(shape, name, check_options(name, options))


__getattr__, __dir__ = lazy_names(__name__, {}, models.by_class_name)
