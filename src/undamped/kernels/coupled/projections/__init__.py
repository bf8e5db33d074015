"""What `coupled_scan` does to the input before the recurrence."""

from undamped.kernels.coupled.projections.linear import Linear
from undamped.kernels.coupled.projections.momentum import Filtered

__all__ = ["Filtered", "Linear"]
