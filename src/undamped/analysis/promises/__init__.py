"""Measurement of promises: the properties that models claim, and what they measure."""

from undamped.analysis.promises.measurement import Measurement, PromiseMeasurements, measure

__all__ = ["Measurement", "PromiseMeasurements", "measure"]
