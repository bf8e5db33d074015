"""Spectral RNN (Vorontsov et al., 2017): singular values kept within a margin of one."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from undamped._base.options import Fraction, PositiveInt
from undamped._base.promises import Kind, Promise
from undamped._base.registry import models
from undamped.nn.bases.activations import Activation
from undamped.nn.bases.isometric import IsometricCell
from undamped.nn.recurrent import Recurrent
from undamped.parametrizations.initial import OrthogonalStart, orthogonal_start
from undamped.parametrizations.singular_band import SingularBand


class SpectralRNNCell(IsometricCell):
    """Spectral RNN: W may leave the orthogonal matrices, but only by a margin.

    Equation:
        h' = φ(W h + V x + b),  W = U diag(s) Zᵀ,  s = 1 + 2m(σ̂(p) − ½)

    Symbols:
        h hidden state, x input, V input matrix, b bias, U and Z rotations (exponentials of
        trained skew matrices), p trained, m the margin.

    Promise:
        Every singular value of W lies in [1 − m, 1 + m], so that over T steps a linear signal
        changes its size by at most (1 ± m)^T.

    Args:
        initialisation: Where W starts.
        margin: The number m; 0 keeps W orthogonal.

    Example:
        >>> net = undamped.nn.SpectralRNN(3, 16, margin=0.1)
        >>> output, state = net(torch.randn(50, 4, 3))

    Reference:
        E. Vorontsov, C. Trabelsi, S. Kadoury, C. Pal. On orthogonality and learning recurrent
        networks with long term dependencies. ICML, 2017.
    """

    promises = (Promise(Kind.BOUNDED_STEP_GRADIENT, "‖∂h'/∂h‖ ≤ 1 + m at every step"),)

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        nonlinearity: Activation = "relu",
        initialisation: OrthogonalStart = "random",
        margin: Fraction = 0.01,
    ) -> None:
        super().__init__(input_size, hidden_size, nonlinearity)
        self.margin = margin
        start = orthogonal_start(initialisation, hidden_size)
        self.constrain(start, SingularBand(hidden_size, margin))

    def constrained_parameters(self) -> Iterable[nn.Parameter]:
        """U and Z; the singular values are plain numbers."""
        return self.free_parameters()[:2]

    def step_gradient_bound(self) -> Tensor:
        """1 + m: φ has slopes between 0 and 1."""
        return torch.tensor(1.0 + self.margin)


@models.register("spectral")
class SpectralRNN(Recurrent):
    """Stacked layers of `SpectralRNNCell`, which has the equation and the options."""

    cell_class = SpectralRNNCell
