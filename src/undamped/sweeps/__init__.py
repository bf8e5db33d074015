"""Sweeps: many trainings that look for good settings, shared by processes and machines."""

from undamped._base.packages import require

require("undamped.sweeps", "optuna")

from undamped.sweeps.folder import SweepFolder
from undamped.sweeps.plan import Plan
from undamped.sweeps.sweep import Progress, sweep
from undamped.sweeps.trials import Trial, importances, trials_of

__all__ = ["Plan", "Progress", "SweepFolder", "Trial", "importances", "sweep", "trials_of"]
