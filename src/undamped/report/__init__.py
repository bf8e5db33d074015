"""Runs and models become one HTML page, with a verdict and what to do about it."""

from undamped._base.packages import require

require("undamped.report", "plotly")

from undamped.report.animation import animate
from undamped.report.diagnose import diagnose
from undamped.report.model_report import ModelReport, Remedy, Score
from undamped.report.page import page, write
from undamped.report.remedies import remedies

__all__ = ["ModelReport", "Remedy", "Score", "animate", "diagnose", "page", "remedies", "write"]
