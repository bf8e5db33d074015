"""Models beyond recurrent layers: physics, continuous depth, irregular time, latent, relational."""

from undamped._base.lazy import lazy_names
from undamped._base.registry import models

_NAMES = {
    "Decoder": "undamped.models.encoder_decoder",
    "EncoderDecoder": "undamped.models.encoder_decoder",
    "PointModel": "undamped.models.point_model",
    "SequenceModel": "undamped.models.sequence_model",
    "Batch": "undamped._base.contract",
    "TaskModel": "undamped.models.task_model",
    "TaskShape": "undamped._base.contract",
    "build": "undamped.models.by_name",
}
_CLASSES = models.classes_in(__name__)

__getattr__, __dir__ = lazy_names(__name__, {**_NAMES, **_CLASSES})
