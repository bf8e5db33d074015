"""RNN-orth (Henaff, Szlam and LeCun, 2016): an Elman RNN that starts orthogonal."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn
from torch.nn import functional as F

from undamped.cells.activations import modrelu
from undamped.cells.cell import State, reference_scan
from undamped.cells.coupled_cell import runs_compiled
from undamped.cells.rnn import RNNCell
from undamped.kernels.coupled import coupled_scan
from undamped.options import PositiveInt
from undamped.parametrizations.initial import OrthogonalStart, orthogonal_start
from undamped.promises import Kind, Promise


class RNNOrthCell(RNNCell):
    """RNN-orth: an Elman RNN whose recurrent matrix starts as a rotation, and then is free.

    Equation:
        h' = φ(W_hh h + W_xh x + b),  W_hhᵀ W_hh = I and b = 0 at the start

    Symbols:
        h hidden state, x input. "random" draws the rotation uniformly; "henaff" puts 2 × 2
        rotations by angles in (−π, π) on the diagonal; "cayley" the same with angles in (0, π/2).

    Promise:
        The linear part of the first network keeps every norm. Nothing holds it there during
        training: for that, use a cell whose matrix is kept orthogonal.

    Args:
        input_size: Number of features of the input at each step.
        hidden_size: Number of hidden units.
        nonlinearity: The function φ; for modrelu b is its threshold.
        initialisation: How the rotation is drawn.

    Example:
        >>> net = undamped.RNNOrth(3, 16, initialisation="henaff")
        >>> output, state = net(torch.randn(50, 4, 3))

    Reference:
        M. Henaff, A. Szlam, Y. LeCun. Recurrent orthogonal networks and long-memory tasks.
        ICML, 2016.
    """

    promises = (
        *RNNCell.promises,
        Promise(Kind.STARTS_ISOMETRIC, "the linear part of a step starts as a rotation"),
    )

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        nonlinearity: Literal["tanh", "relu", "modrelu"] = "tanh",
        initialisation: OrthogonalStart = "henaff",
    ) -> None:
        plain = "tanh" if nonlinearity == "modrelu" else nonlinearity
        super().__init__(input_size, hidden_size, nonlinearity=plain)
        self.thresholds = nonlinearity == "modrelu"
        self.weight_hh.data.copy_(orthogonal_start(initialisation, hidden_size))
        nn.init.zeros_(self.bias_ih)
        nn.init.zeros_(self.bias_hh)

    def project(self, x: Tensor) -> Tensor:
        """W_xh x, and b where it is not a threshold."""
        return F.linear(x, self.weight_ih) if self.thresholds else super().project(x)

    def advance(self, projected: Tensor, state: State, constants: State) -> State:
        """φ(W_hh h + projected)."""
        if not self.thresholds:
            return super().advance(projected, state, constants)
        total = projected + F.linear(state[0], self.weight_hh)
        return (modrelu(total, self.bias_ih + self.bias_hh),)

    def scan(self, x: Tensor, state: State, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        """Walk through time in torch's kernel, or in the coupled one for modReLU."""
        if not self.thresholds:
            return super().scan(x, state, lengths)
        bias = self.bias_ih + self.bias_hh
        if not runs_compiled(x, *state, bias):
            return reference_scan(self, x, state, lengths)
        from undamped.kernels.coupled_activation import ModRelu
        from undamped.kernels.coupled_operators import Dense
        from undamped.kernels.coupled_projection import Linear

        return coupled_scan(
            ModRelu(),
            Dense(),
            Linear(),
            x,
            state,
            input_tensors=(self.weight_ih,),
            linear=(self.weight_hh,),
            parameters=(bias,),
            lengths=lengths,
        )
