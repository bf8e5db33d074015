"""undamped: networks that carry information a long way.

Public names, nothing else. Heavy libraries are imported where they are used.
"""

from undamped.fields import ContinuousFlow, NeuralODE, StableResidual
from undamped.networks import (
    GRU,
    IRNN,
    LSTM,
    RNN,
    Decoder,
    EncoderDecoder,
    ResidualUnICORNN,
    RNNOrth,
    SequenceModel,
    UnICORNN,
    build,
)
from undamped.networks.continuous import NODE, DataControlledNODE, DepthVariantNODE, RKNet
from undamped.networks.flows import FFJORD
from undamped.networks.residual_models import ResNet, StableResidualModel
from undamped.networks.second_order import GHBNODE, HBNODE, SONODE
from undamped.solvers import odeint
from undamped.version import __version__

__all__ = [
    "FFJORD",
    "GHBNODE",
    "GRU",
    "HBNODE",
    "IRNN",
    "LSTM",
    "NODE",
    "RNN",
    "SONODE",
    "ContinuousFlow",
    "DataControlledNODE",
    "Decoder",
    "DepthVariantNODE",
    "EncoderDecoder",
    "NeuralODE",
    "RKNet",
    "RNNOrth",
    "ResNet",
    "ResidualUnICORNN",
    "SequenceModel",
    "StableResidual",
    "StableResidualModel",
    "UnICORNN",
    "__version__",
    "build",
    "odeint",
]
