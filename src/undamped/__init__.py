"""undamped: networks that carry information a long way.

Public names, nothing else. Heavy libraries are imported where they are used.
"""

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
from undamped.version import __version__

__all__ = [
    "GRU",
    "IRNN",
    "LSTM",
    "RNN",
    "Decoder",
    "EncoderDecoder",
    "RNNOrth",
    "ResidualUnICORNN",
    "SequenceModel",
    "UnICORNN",
    "__version__",
    "build",
]
