"""Training: from a model and a task to a run folder."""

from undamped._base.packages import require

require("undamped.training", "lightning", "rich")

from undamped.training.fit import fit, resume
from undamped.training.options import TrainOptions
from undamped.training.run import Run

__all__ = ["Run", "TrainOptions", "fit", "resume"]
