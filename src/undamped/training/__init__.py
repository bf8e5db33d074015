"""Training: from a model and a task to a run folder."""

from undamped.training.fit import fit, resume
from undamped.training.options import TrainOptions
from undamped.training.run import Run

__all__ = ["Run", "TrainOptions", "fit", "resume"]
