"""Cells and fields of a network, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from torch import nn

from undamped._base.errors import OptionError
from undamped._base.options import check_against, options_of, unknown_name
from undamped._base.registry import models
from undamped.nn.bases.cell import Cell
from undamped.ode.fields.concat_squash import ConcatSquashField
from undamped.ode.fields.gru_field import GRUField
from undamped.ode.fields.heavy_ball import HeavyBallField
from undamped.ode.fields.perceptron import BottleneckField, PerceptronField
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
        name: One of `FieldName`.
        size: Features of the state.
        width: Width of its hidden layers, if it has any.
        layers: Number of its hidden layers.
    """
    if name == "heavy-ball" and size % 2:
        raise OptionError(
            f"hidden_size must be even with field=heavy-ball (positions, momenta), got {size}."
        )
    return _FIELDS[name](size, width, layers)


def cell_named(name: str, input_size: int, hidden_size: int, options: Mapping[str, Any]) -> Cell:
    """Build a cell by the name of its network.

    Args:
        name: The registry name of a recurrent network.
        input_size: Features it reads.
        hidden_size: Number of its units.
        options: Options of the cell.
    """
    cell_class = getattr(models[name], "cell_class", None) if name in models else None
    if cell_class is None:
        recurrent = [entry for entry in models if hasattr(models[entry], "cell_class")]
        raise unknown_name("cell", name, recurrent)
    checked = check_against(name, options_of(cell_class), options)
    cell = cell_class(input_size, hidden_size, **cell_class.layer_options(checked, 1, 1))
    if None in cell.state_sizes:
        raise OptionError(
            f"cell='{name}' stores past states, and a state of fixed size is needed. Choose gru, "
            "lstm or another without a memory."
        )
    return cell
