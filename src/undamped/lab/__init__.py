"""The workbench: tasks, data, training, estimators, instruments, reports and the command line."""

from undamped._base.lazy import lazy_names
from undamped._base.packages import LAB, require

require("undamped.lab", *LAB)

_PACKAGES = (
    *("baselines", "benchmarks", "cli", "data", "estimators", "export", "instruments", "papers"),
    *("report", "sweeps", "tasks", "training"),
)

__getattr__, __dir__ = lazy_names(__name__, {}, _PACKAGES)
