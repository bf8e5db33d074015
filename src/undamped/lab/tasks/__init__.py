"""Tasks: data, loss, metric, and the score of a naive baseline."""

from undamped._base.lazy import lazy_names
from undamped._base.registry import tasks

_NAMES = {
    "Batch": "undamped.lab.tasks.task",
    "Baseline": "undamped.lab.tasks.task",
    "Chance": "undamped.lab.tasks.task",
    "SeriesTask": "undamped.lab.tasks.series",
    "Split": "undamped.lab.tasks.task",
    "Task": "undamped.lab.tasks.task",
    "build": "undamped.lab.tasks.task",
}

_CLASSES = tasks.classes_in(__name__)

__getattr__, __dir__ = lazy_names(__name__, {**_NAMES, **_CLASSES})
