"""Tasks: data, loss, metric, and what a guess would score."""

from undamped.packages import require

require("undamped.tasks", "pandas", "scipy", "sklearn")

from undamped.lazy import lazy_names
from undamped.registry import tasks

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
