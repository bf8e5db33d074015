"""HTML reports of runs and models, with a verdict and advice."""

from undamped.lab.report.animation import animate
from undamped.lab.report.diagnose import diagnose
from undamped.lab.report.model_report import ModelReport, Remedy, Score
from undamped.lab.report.page import page, write
from undamped.lab.report.remedies import remedies

__all__ = ["ModelReport", "Remedy", "Score", "animate", "diagnose", "page", "remedies", "write"]
