"""Cells unrolled in time, and what is built around them."""

from undamped.networks.encoder_decoder import Decoder, EncoderDecoder
from undamped.networks.models import (
    GRU,
    IRNN,
    LSTM,
    RNN,
    ResidualUnICORNN,
    RNNOrth,
    UnICORNN,
    build,
)
from undamped.networks.recurrent import Recurrent
from undamped.networks.sequence_model import SequenceModel

__all__ = [
    "GRU",
    "IRNN",
    "LSTM",
    "RNN",
    "Decoder",
    "EncoderDecoder",
    "RNNOrth",
    "Recurrent",
    "ResidualUnICORNN",
    "SequenceModel",
    "UnICORNN",
    "build",
]
