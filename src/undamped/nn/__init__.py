"""Recurrent layers, used like `torch.nn.LSTM`, and their cells, by family."""

from undamped._base.lazy import lazy_names
from undamped._base.registry import models

_NAMES = {
    "Cell": "undamped.nn.bases.cell",
    "Recurrent": "undamped.nn.recurrent",
    "State": "undamped.nn.bases.cell",
    "penalty": "undamped.nn.bases.updates",
}
_CLASSES = models.classes_in(__name__)

__getattr__, __dir__ = lazy_names(__name__, {**_NAMES, **_CLASSES})
