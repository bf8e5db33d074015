"""What instruments are made of: probes, results and figures, and access to states and gradients."""

from undamped.analysis.core.figures import Layout, Style, Trace
from undamped.analysis.core.probe import InapplicableError, Probe
from undamped.analysis.core.result import Judgement, Record, Result

__all__ = [
    "InapplicableError",
    "Judgement",
    "Layout",
    "Probe",
    "Record",
    "Result",
    "Style",
    "Trace",
]
