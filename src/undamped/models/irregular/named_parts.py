"""Cells and fields by name, as parts of a network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from torch import nn

from undamped._base.errors import OptionError, explain
from undamped._base.options import check_against, options_of, unknown_name
from undamped._base.registry import models
from undamped.nn.bases.cell import Cell
from undamped.ode.fields.bottleneck import BottleneckField
from undamped.ode.fields.concat_squash import ConcatSquashField
from undamped.ode.fields.gru_field import GRUField
from undamped.ode.fields.heavy_ball import HeavyBallField
from undamped.ode.fields.perceptron import PerceptronField
from undamped.ode.fields.rotating import RotatingField

FieldName = Literal["perceptron", "rotating", "gru", "heavy-ball", "bottleneck", "concat-squash"]

_FIELDS: dict[str, Callable[[int, int, int], nn.Module]] = {
    "perceptron": lambda size, width, layers: PerceptronField(
        size, width, hidden_layers=layers, time=False
    ),
    "rotating": lambda size, width, layers: RotatingField(size, width, hidden_layers=layers),
    "gru": lambda size, width, layers: GRUField(size),
    "heavy-ball": lambda size, width, layers: HeavyBallField(
        PerceptronField(size // 2, width, hidden_layers=layers, time=False)
    ),
    "bottleneck": lambda size, width, layers: BottleneckField(size, max(1, size // 2), width),
    "concat-squash": lambda size, width, layers: ConcatSquashField(
        size, width, hidden_layers=layers
    ),
}


def field_named(name: str, size: int, width: int, layers: int) -> nn.Module:
    """Build a field by its name.

    Args:
        name: What it is called.
        size: Features of the state.
        width: Width of its hidden layers, where it has some.
        layers: Their number.
    """
    if name == "heavy-ball" and size % 2:
        raise OptionError(
            explain(
                "hidden_size",
                expected="an even number with field=heavy-ball: positions and momenta",
                got=size,
                remedy="Add or leave out one.",
            )
        )
    return _FIELDS[name](size, width, layers)


def cell_named(name: str, input_size: int, hidden_size: int, options: Mapping[str, Any]) -> Cell:
    """Build a cell by the name of its network.

    Args:
        name: The registry name of a recurrent network.
        input_size: Features it reads.
        hidden_size: Its units.
        options: Its own options.
    """
    cell_class = getattr(models[name], "cell_class", None) if name in models else None
    if cell_class is None:
        recurrent = [entry for entry in models if hasattr(models[entry], "cell_class")]
        raise unknown_name("cell", name, recurrent)
    chosen = check_against(name, options_of(cell_class), options)
    cell = cell_class(input_size, hidden_size, **cell_class.layer_options(chosen, 1, 1))
    if None in cell.state_sizes:
        raise OptionError(
            explain(
                "cell",
                expected="one whose state has a fixed size",
                got=f"'{name}', which remembers states of the past",
                remedy="Choose gru, lstm or another without a memory.",
            )
        )
    return cell
