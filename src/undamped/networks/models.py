"""The registry lines: every recurrent network by name.

A cell becomes a network by standing here once; `undamped.build`, the command line, the checks
and the documentation find it through the registry.
"""

from __future__ import annotations

import inspect
from typing import Any

from undamped import cells
from undamped.networks.oscillators import OscillatorNetwork
from undamped.networks.recurrent import Recurrent
from undamped.registry import models


def recurrent_network(
    name: str, cell: type[cells.Cell], base: type[Recurrent] = Recurrent
) -> type[Recurrent]:
    """Make the network class of a cell: its name, its signature, its documentation."""
    network = type(
        name,
        (base,),
        {"cell_class": cell, "__doc__": cell.__doc__, "__module__": "undamped.networks.models"},
    )
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
    )
    return network


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
MomentumRNN = _network("momentum-rnn", "MomentumRNN", cells.MomentumRNNCell)
NesterovRNN = _network("nesterov-rnn", "NesterovRNN", cells.NesterovRNNCell)
RMSPropRNN = _network("rmsprop-rnn", "RMSPropRNN", cells.RMSPropRNNCell)
AdamRNN = _network("adam-rnn", "AdamRNN", cells.AdamRNNCell)
MomentumLSTM = _network("momentum-lstm", "MomentumLSTM", cells.MomentumLSTMCell)
NesterovLSTM = _network("nesterov-lstm", "NesterovLSTM", cells.NesterovLSTMCell)
RMSPropLSTM = _network("rmsprop-lstm", "RMSPropLSTM", cells.RMSPropLSTMCell)
AdamLSTM = _network("adam-lstm", "AdamLSTM", cells.AdamLSTMCell)
AntisymmetricRNN = _network("antisymmetric", "AntisymmetricRNN", cells.AntisymmetricRNNCell)
GatedAntisymmetricRNN = _network(
    "gated-antisymmetric", "GatedAntisymmetricRNN", cells.GatedAntisymmetricRNNCell
)
coRNN = _network("cornn", "coRNN", cells.CoRNNCell)  # noqa: N816 (the paper's spelling)
IndRNN = _network("indrnn", "IndRNN", cells.IndRNNCell)
ResidualIndRNN = _network("residual-indrnn", "ResidualIndRNN", cells.ResidualIndRNNCell)
DenseIndRNN = _network("dense-indrnn", "DenseIndRNN", cells.DenseIndRNNCell)
SRU = _network("sru", "SRU", cells.SRUCell)
LipschitzRNN = _network("lipschitz", "LipschitzRNN", cells.LipschitzRNNCell)
FastRNN = _network("fastrnn", "FastRNN", cells.FastRNNCell)
FastGRNN = _network("fastgrnn", "FastGRNN", cells.FastGRNNCell)
IncrementalRNN = _network("incremental", "IncrementalRNN", cells.IncrementalRNNCell)
uRNN = _network("urnn", "uRNN", cells.URNNCell)  # noqa: N816 (the paper's spelling)
FullCapacityURNN = _network("full-capacity-urnn", "FullCapacityURNN", cells.FullCapacityURNNCell)
oRNN = _network("ornn", "oRNN", cells.ORNNCell)  # noqa: N816 (the paper's spelling)
EURNN = _network("eurnn", "EURNN", cells.EURNNCell)
scoRNN = _network("scornn", "scoRNN", cells.ScoRNNCell)  # noqa: N816 (the paper's spelling)
SpectralRNN = _network("spectral", "SpectralRNN", cells.SpectralRNNCell)
expRNN = _network("exprnn", "expRNN", cells.ExpRNNCell)  # noqa: N816 (the paper's spelling)
nnRNN = _network("nnrnn", "nnRNN", cells.NnRNNCell)  # noqa: N816 (the paper's spelling)
GORU = _network("goru", "GORU", cells.GORUCell)


def build(name: str, **options: Any) -> Any:
    """Build any model by its registry name.

    Args:
        name: A name from `undamped list`.
        options: Its options; unknown names and values out of range are refused with a sentence.

    Example:
        >>> net = undamped.build("unicornn", input_size=6, hidden_size=32, num_layers=2)
    """
    return models.build(name, **options)
