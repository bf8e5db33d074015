"""The linear parts of `coupled_scan`."""

from undamped.kernels.coupled.operators.dense import Dense
from undamped.kernels.coupled.operators.fourier import Fourier
from undamped.kernels.coupled.operators.givens_layers import Layers
from undamped.kernels.coupled.operators.low_rank import LowRank
from undamped.kernels.coupled.operators.none import Nothing

__all__ = ["Dense", "Fourier", "Layers", "LowRank", "Nothing"]
