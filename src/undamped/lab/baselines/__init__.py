"""Baselines for recordings and forecasts: the bank, models of other libraries, naive ones."""

from undamped._base.lazy import lazy_names
from undamped._base.registry import models

_NAMES: dict[str, str] = {}
_CLASSES = models.classes_in(__name__)

__getattr__, __dir__ = lazy_names(__name__, _CLASSES)
