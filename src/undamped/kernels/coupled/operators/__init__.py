"""The linear maps of `coupled_scan`."""

from undamped.kernels.coupled.operators.fourier import Fourier
from undamped.kernels.coupled.operators.givens_layers import Layers
from undamped.kernels.coupled.operators.matrices import Dense, LowRank, Nothing

__all__ = ["Dense", "Fourier", "Layers", "LowRank", "Nothing"]
