"""Promises measured: what a model claims beside what it does."""

from undamped.analysis.promises.measurement import Measurement, measure

__all__ = ["Measurement", "measure"]
