"""Model selection: a comparison of models on validation data, and a run of the best one."""

from undamped.lab.training.portfolio.fit_best import fit_best

__all__ = ["fit_best"]
