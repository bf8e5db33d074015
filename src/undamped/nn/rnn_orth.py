"""RNN-orth (Henaff, Szlam and LeCun, 2016): an Elman RNN that starts orthogonal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from torch import Tensor, nn

from undamped._base.options import PositiveInt
from undamped._base.promises import Kind, Promise
from undamped._base.registry import models
from undamped.kernels.coupled import Step
from undamped.nn.bases.activations import activation_kernel, modrelu
from undamped.nn.bases.cell import State, loop_scan
from undamped.nn.bases.torch_kernels import summed_bias
from undamped.nn.rnn import RNNCell
from undamped.nn.torch_like import TorchLike
from undamped.parametrizations.initial import OrthogonalStart, orthogonal_start


class RNNOrthCell(RNNCell):
    """RNN-orth: an Elman RNN whose recurrent matrix starts as a rotation, and then is free.

    Equation:
        h' = φ(W_hh h + W_xh x + b),  W_hhᵀ W_hh = I and b = 0 at the start

    Symbols:
        h hidden state, x input. "random" draws the rotation uniformly; "henaff" puts 2 × 2
        rotations by angles in (−π, π) on the diagonal; "cayley" the same with angles in (0, π/2).

    Promise:
        The linear part of the first network keeps every norm. Nothing holds it there during
        training: for that, use a cell whose matrix is kept orthogonal. How long it stays near a
        rotation is a matter of the step size, so training gives W_hh the second learning rate. On
        the copy task over 100 steps (128 units, modReLU, RMSprop) one rate of 2e-4 for everything
        spread the singular values to 0.86 and 1.20 in 250 updates, with a loss above a guess's;
        with 1e-4 for W_hh and 1e-3 for the rest they stayed within 0.93 and 1.05, and the loss was
        0.008 where a guess has 0.173.

    Args:
        nonlinearity: The function φ; for modrelu b is its threshold.
        initialisation: How the rotation is drawn.

    Example:
        >>> net = undamped.nn.RNNOrth(3, 16, initialisation="henaff")
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
        for name in ("bias_ih", "bias_hh"):
            nn.init.zeros_(self.get_parameter(name))

    def constrained_parameters(self) -> Iterable[nn.Parameter]:
        """W_hh: it is free, but only slow steps leave it near a rotation."""
        return [self.get_parameter("weight_hh")]

    def input_tensors(self) -> State:
        """W_xh, and b where it is not a threshold."""
        return (self.weight_ih,) if self.thresholds else super().input_tensors()

    def constants(self) -> State:
        """W_hh, and the threshold where there is one."""
        threshold = summed_bias(self.bias_ih, self.bias_hh) if self.thresholds else ()
        return self.weight_hh, *threshold

    def advance(self, projected: Tensor, state: State, constants: State) -> State:
        """φ(W_hh h + projected)."""
        if not self.thresholds:
            return super().advance(projected, state, constants)
        return (modrelu(projected + self.product(state, constants), constants[1]),)

    def elementwise(self) -> Step:
        """The kernel of φ."""
        return activation_kernel("modrelu") if self.thresholds else super().elementwise()

    def elementwise_tensors(self, constants: State) -> State:
        """The threshold of modReLU."""
        return constants[1:]

    def plain_scan(
        self, x: Tensor, state: State, lengths: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Scan in torch's kernel, which has no modReLU."""
        if self.thresholds:
            return loop_scan(self, x, state, lengths)
        return super().plain_scan(x, state, lengths)


@models.register("rnn-orth")
class RNNOrth(TorchLike):
    """Stacked layers of `RNNOrthCell`, which has the equation and the options."""

    cell_class = RNNOrthCell
