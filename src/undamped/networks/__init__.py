"""Cells unrolled in time, and what is built around them."""

from undamped._base.lazy import lazy_names
from undamped._base.registry import models

_NAMES = {
    "Decoder": "undamped.models.encoder_decoder",
    "EncoderDecoder": "undamped.models.encoder_decoder",
    "PointModel": "undamped.models.point_model",
    "Recurrent": "undamped.networks.recurrent",
    "SequenceModel": "undamped.models.sequence_model",
    "build": "undamped.networks.models",
}

__getattr__, __dir__ = lazy_names(__name__, _NAMES, models.by_class_name)
