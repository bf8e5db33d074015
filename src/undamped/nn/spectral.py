"""Recurrent matrices with a controlled spectrum: spectral RNN and nnRNN.

Spectral RNN (Vorontsov et al., 2017) bounds the singular values, nnRNN (Kerg et al., 2019) keeps
the eigenvalues of a non-normal matrix near the unit circle.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from undamped._base.options import Fraction, NonNegativeFloat, PositiveInt
from undamped._base.promises import Kind, Promise
from undamped.nn.bases.coupled import Activation
from undamped.nn.bases.updates import Penalised
from undamped.nn.orthogonal import IsometricCell
from undamped.nn.recurrent import Recurrent
from undamped.parametrizations.initial import OrthogonalStart, orthogonal_start
from undamped.parametrizations.spectra import Schur, SingularBand


class SpectralRNNCell(IsometricCell):
    """Spectral RNN: W is orthogonal up to a margin.

    Equation:
        h' = φ(W h + V x + b),  W = U diag(s) Zᵀ,  s = 1 + 2m(σ̂(p) − ½)

    Symbols:
        h hidden state, x input, V input matrix, b bias, U and Z rotations (exponentials of
        trained skew matrices), p trained, m the margin.

    Promise:
        Every singular value of W lies in [1 − m, 1 + m], so that over T steps a linear signal
        changes its size by at most (1 ± m)^T.

    Args:
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
        """Return the parameters of U and Z; those of the singular values are unconstrained."""
        return self.free_parameters()[:2]


class NnRNNCell(Penalised, IsometricCell):
    """nnRNN: a recurrent matrix in Schur form, with rotations on the diagonal and a part below.

    Equation:
        h' = φ(W h + V x),  W = P(Λ + T)Pᵀ

    Symbols:
        h hidden state, x input, V input matrix, φ modReLU, P a rotation, Λ 2 × 2 blocks
        γ_i·rotation(θ_i) (and a last γ for an odd size), T strictly lower triangular and zero
        inside the blocks. All of them are trained.

    Promise:
        The eigenvalues of W are γ_i exp(±iθ_i), for any P and T. With γ = 1 powers of W grow at
        most polynomially, while T allows transient growth of signals.

    Args:
        initialisation: How the initial P is drawn; θ is initially uniform in [0, 2π), γ = 1, T = 0.
        scale_penalty: The number δ in the penalty δ‖1 − γ‖² that training adds.
        lower_decay: Weight decay of T.

    Example:
        >>> net = undamped.nn.nnRNN(3, 16, scale_penalty=0.1)
        >>> output, state = net(torch.randn(50, 4, 3))

    Reference:
        G. Kerg, K. Goyette, M. Puelma Touzel, G. Gidel, E. Vorontsov, Y. Bengio, G. Lajoie.
        Non-normal recurrent neural network (nnRNN): learning long time dependencies while
        improving expressivity with transient dynamics. NeurIPS, 2019.
    """

    promises = (
        Promise(Kind.STARTS_ISOMETRIC, "T = 0 and γ = 1 at the start: W is a rotation"),
        Promise(Kind.SCALED_SPECTRUM, "the eigenvalues of W have moduli γ"),
    )

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        nonlinearity: Activation = "modrelu",
        initialisation: OrthogonalStart = "henaff",
        scale_penalty: NonNegativeFloat = 1e-4,
        lower_decay: NonNegativeFloat = 1e-6,
    ) -> None:
        super().__init__(input_size, hidden_size, nonlinearity)
        self.scale_penalty, self.lower_decay = scale_penalty, lower_decay
        nn.init.xavier_normal_(self.input_weight)  # as in the authors' program
        self.constrain(torch.eye(hidden_size), Schur(hidden_size))
        start = self._schur.sample_free(orthogonal_start(initialisation, hidden_size).double())
        # The values computed from the identity are replaced by the initialisation of the paper.
        self._schur.base = torch.eye(hidden_size)
        with torch.no_grad():
            for parameter, value in zip(self.free_parameters(), start, strict=True):
                parameter.copy_(value)
        self.add_update_hooks()

    @property
    def _schur(self) -> Schur:
        matrix_set = self.matrix_set
        assert isinstance(matrix_set, Schur)
        return matrix_set

    def constrained_parameters(self) -> Iterable[nn.Parameter]:
        """Return the parameter of P; γ, θ and T are unconstrained."""
        return self.free_parameters()[:1]

    def decayed_parameters(self) -> dict[nn.Parameter, float]:
        """Return T and its weight decay."""
        return {self.free_parameters()[3]: self.lower_decay}

    def spectrum(self) -> Tensor:
        """Return |γ|, one for every eigenvalue."""
        scales = self.free_parameters()[1].detach().abs()
        pairs = self.hidden_size // 2
        return torch.cat([scales[:pairs].repeat_interleave(2), scales[pairs:]])

    def updated_parameters(self) -> Iterable[nn.Parameter]:
        return self.free_parameters()[1:2]

    def penalty_option(self) -> str:
        return f"scale_penalty={self.scale_penalty:g}" if self.scale_penalty else ""

    def penalty_value(self) -> Tensor:
        """Return δ‖1 − γ‖²."""
        return self.scale_penalty * (1 - self.free_parameters()[1]).square().sum()


class SpectralRNN(Recurrent, cell=SpectralRNNCell, name="spectral"): ...


class nnRNN(Recurrent, cell=NnRNNCell, name="nnrnn"): ...
