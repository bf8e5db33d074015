"""Which model answers a task best: a race on validation data, and a run of the winner."""

from undamped.lab.training.portfolio.fit_best import fit_best

__all__ = ["fit_best"]
