"""Cells unrolled in time, and what is built around them."""

from undamped._base.lazy import lazy_names
from undamped._base.registry import models

_NAMES = {
    "Decoder": "undamped.networks.encoder_decoder",
    "EncoderDecoder": "undamped.networks.encoder_decoder",
    "PointModel": "undamped.networks.point_model",
    "Recurrent": "undamped.networks.recurrent",
    "SequenceModel": "undamped.networks.sequence_model",
    "build": "undamped.networks.models",
}

__getattr__, __dir__ = lazy_names(__name__, _NAMES, models.by_class_name)
