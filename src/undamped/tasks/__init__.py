"""Tasks: data, loss, metric, and what a guess would score."""

from undamped._base.packages import require

require("undamped.tasks", "pandas", "scipy", "sklearn")

from undamped._base.lazy import lazy_names
from undamped._base.registry import tasks

_NAMES = {
    "Batch": "undamped.tasks.task",
    "Baseline": "undamped.tasks.task",
    "Chance": "undamped.tasks.task",
    "SeriesTask": "undamped.tasks.series",
    "Split": "undamped.tasks.task",
    "Task": "undamped.tasks.task",
    "build": "undamped.tasks.task",
}

__getattr__, __dir__ = lazy_names(__name__, _NAMES, tasks.by_class_name)
