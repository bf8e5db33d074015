"""Measurement of promises: the properties that models claim, and what they measure."""

from undamped.analysis.promises import cells, flows, models
from undamped.analysis.promises.measurement import Measurement, measure

__all__ = ["Measurement", "cells", "flows", "measure", "models"]
