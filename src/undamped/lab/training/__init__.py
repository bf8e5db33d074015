"""Training: from a model and a task to a run folder."""

from undamped.lab.training.fit import fit, resume
from undamped.lab.training.options import TrainOptions
from undamped.lab.training.run import Run

__all__ = ["Run", "TrainOptions", "fit", "resume"]
