"""The registry lines: every recurrent network by name.

A cell becomes a network by standing here once; `undamped.build`, the command line, the checks
and the documentation find it through the registry.
"""

from __future__ import annotations

from typing import Any

from undamped import cells
from undamped.networks.oscillators import OscillatorNetwork
from undamped.networks.recurrent import Recurrent, recurrent_network
from undamped.registry import models


def _network(
    name: str, class_name: str, cell: type[cells.Cell], base: type[Recurrent] = Recurrent
) -> type[Recurrent]:
    return models.register(name)(recurrent_network(class_name, cell, base))


RNN = _network("rnn", "RNN", cells.RNNCell)
IRNN = _network("irnn", "IRNN", cells.IRNNCell)
RNNOrth = _network("rnn-orth", "RNNOrth", cells.RNNOrthCell)
LSTM = _network("lstm", "LSTM", cells.LSTMCell)
GRU = _network("gru", "GRU", cells.GRUCell)
UnICORNN = _network("unicornn", "UnICORNN", cells.UnICORNNCell, OscillatorNetwork)
ResidualUnICORNN = _network(
    "residual-unicornn", "ResidualUnICORNN", cells.ResidualUnICORNNCell, OscillatorNetwork
)


def build(name: str, **options: Any) -> Any:
    """Build any model by its registry name.

    Args:
        name: A name from `undamped list`.
        options: Its options; unknown names and values out of range are refused with a sentence.

    Example:
        >>> net = undamped.build("unicornn", input_size=6, hidden_size=32, num_layers=2)
    """
    return models.build(name, **options)
