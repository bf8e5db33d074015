"""Hyperparameter search: many trainings, distributed over processes and machines."""

from undamped._base.packages import require

require("undamped.lab.sweeps", "optuna")

from undamped.lab.sweeps.folder import SweepFolder
from undamped.lab.sweeps.plan import Plan
from undamped.lab.sweeps.sweep import Progress, sweep
from undamped.lab.sweeps.trials import Trial, importances, trials_of

__all__ = ["Plan", "Progress", "SweepFolder", "Trial", "importances", "sweep", "trials_of"]
