"""nnRNN (Kerg et al., 2019): a non-normal matrix whose spectrum is kept near the unit circle."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from undamped._base.options import NonNegativeFloat, PositiveInt
from undamped._base.promises import Kind, Promise
from undamped._base.registry import models
from undamped.nn.bases.activations import Activation
from undamped.nn.bases.isometric import IsometricCell
from undamped.nn.bases.updates import Penalised
from undamped.nn.recurrent import Recurrent
from undamped.parametrizations.initial import OrthogonalStart, orthogonal_start
from undamped.parametrizations.schur import Schur


class NnRNNCell(Penalised, IsometricCell):
    """nnRNN: a recurrent matrix in Schur form, rotations on the diagonal, feed-forward below.

    Equation:
        h' = φ(W h + V x),  W = P(Λ + T)Pᵀ

    Symbols:
        h hidden state, x input, V input matrix, φ modReLU, P a rotation, Λ 2 × 2 blocks
        γ_i·rotation(θ_i) (a last γ alone for an odd size), T strictly lower triangular and zero
        inside the blocks. All of them are trained.

    Promise:
        The eigenvalues of W are γ_i exp(±iθ_i), whatever P and T are. With γ = 1 powers of W grow
        at most polynomially, while T lets signals swell for a while: transients.

    Args:
        nonlinearity: The function φ; the paper's is modReLU.
        initialisation: Where P starts; θ starts uniform in [0, 2π), γ at one, T at zero.
        scale_penalty: The number δ in the penalty δ‖1 − γ‖² that training adds.
        lower_decay: Weight decay on T alone.

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
        nn.init.xavier_normal_(self.input_weight)  # as the authors have it
        self.constrain(torch.eye(hidden_size), Schur(hidden_size))
        start = self._schur.sample_free(orthogonal_start(initialisation, hidden_size).double())
        # What was read off the identity is replaced by the paper's start, P about B = I.
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
        """Only P lies in a set; γ, θ and T are free."""
        return self.free_parameters()[:1]

    def decayed_parameters(self) -> dict[nn.Parameter, float]:
        """T and its weight decay."""
        return {self.free_parameters()[3]: self.lower_decay}

    def spectrum(self) -> Tensor:
        """|γ|, one for every eigenvalue."""
        scales = self.free_parameters()[1].detach().abs()
        pairs = self.hidden_size // 2
        return torch.cat([scales[:pairs].repeat_interleave(2), scales[pairs:]])

    def updated_parameters(self) -> Iterable[nn.Parameter]:
        """γ."""
        return self.free_parameters()[1:2]

    def penalty_option(self) -> str:
        """The number δ."""
        return f"scale_penalty={self.scale_penalty:g}" if self.scale_penalty else ""

    def penalty_value(self) -> Tensor:
        """δ‖1 − γ‖²."""
        return self.scale_penalty * (1 - self.free_parameters()[1]).square().sum()


@models.register("nnrnn")
class nnRNN(Recurrent):
    """Stacked layers of `NnRNNCell`, which has the equation and the options."""

    cell_class = NnRNNCell
