"""undamped: networks that carry information a long way.

Public names, nothing else. Heavy libraries are imported where they are used.
"""

from typing import TYPE_CHECKING, Any

from undamped.flows import ContinuousFlow, NeuralODE, StableResidual
from undamped.kernels.dispatch import plain_loops
from undamped.networks import (
    EURNN,
    GORU,
    GRU,
    IRNN,
    LSTM,
    RNN,
    SRU,
    AdamLSTM,
    AdamRNN,
    AntisymmetricRNN,
    Decoder,
    DenseIndRNN,
    EncoderDecoder,
    FastGRNN,
    FastRNN,
    FullCapacityURNN,
    GatedAntisymmetricRNN,
    IncrementalRNN,
    IndRNN,
    LipschitzRNN,
    MomentumLSTM,
    MomentumRNN,
    NesterovLSTM,
    NesterovRNN,
    ResidualIndRNN,
    ResidualUnICORNN,
    RMSPropLSTM,
    RMSPropRNN,
    RNNOrth,
    SequenceModel,
    SpectralRNN,
    UnICORNN,
    build,
    coRNN,
    expRNN,
    nnRNN,
    oRNN,
    scoRNN,
    uRNN,
)
from undamped.networks.continuous import (
    FFJORD,
    GHBNODE,
    HBNODE,
    NODE,
    SONODE,
    ConvHBNODE,
    ConvNODE,
    ConvSONODE,
    DataControlledNODE,
    DepthVariantNODE,
    ResNet,
    RKNet,
    StableResidualModel,
)
from undamped.solvers import odeint
from undamped.version import __version__

if TYPE_CHECKING:
    from undamped.estimators import SequenceClassifier, SequenceForecaster, SequenceRegressor

__all__ = [
    "EURNN",
    "FFJORD",
    "GHBNODE",
    "GORU",
    "GRU",
    "HBNODE",
    "IRNN",
    "LSTM",
    "NODE",
    "RNN",
    "SONODE",
    "SRU",
    "AdamLSTM",
    "AdamRNN",
    "AntisymmetricRNN",
    "ContinuousFlow",
    "ConvHBNODE",
    "ConvNODE",
    "ConvSONODE",
    "DataControlledNODE",
    "Decoder",
    "DenseIndRNN",
    "DepthVariantNODE",
    "EncoderDecoder",
    "FastGRNN",
    "FastRNN",
    "FullCapacityURNN",
    "GatedAntisymmetricRNN",
    "IncrementalRNN",
    "IndRNN",
    "LipschitzRNN",
    "MomentumLSTM",
    "MomentumRNN",
    "NesterovLSTM",
    "NesterovRNN",
    "NeuralODE",
    "RKNet",
    "RMSPropLSTM",
    "RMSPropRNN",
    "RNNOrth",
    "ResNet",
    "ResidualIndRNN",
    "ResidualUnICORNN",
    "SequenceClassifier",
    "SequenceForecaster",
    "SequenceModel",
    "SequenceRegressor",
    "SpectralRNN",
    "StableResidual",
    "StableResidualModel",
    "UnICORNN",
    "__version__",
    "build",
    "coRNN",
    "expRNN",
    "nnRNN",
    "oRNN",
    "odeint",
    "plain_loops",
    "scoRNN",
    "uRNN",
]

_ESTIMATORS = ("SequenceClassifier", "SequenceForecaster", "SequenceRegressor")


def __getattr__(name: str) -> Any:
    """Load the estimators when they are asked for: scikit-learn takes a second."""
    if name in _ESTIMATORS:
        from undamped import estimators

        return getattr(estimators, name)
    raise AttributeError(f"module 'undamped' has no attribute '{name}'")
