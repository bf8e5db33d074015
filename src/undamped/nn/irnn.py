"""IRNN (Le, Jaitly and Hinton, 2015): a relu network that starts as the identity."""

from __future__ import annotations

from torch import nn

from undamped._base.options import NonNegativeFloat, PositiveFloat, PositiveInt
from undamped._base.promises import Kind, Promise
from undamped._base.registry import models
from undamped.nn.rnn import RNNCell
from undamped.nn.torch_like import TorchLike


class IRNNCell(RNNCell):
    """IRNN: an Elman RNN with relu, whose recurrent matrix starts as the identity.

    Equation:
        h' = relu(W_hh h + W_xh x + b),  W_hh = s·I and b = 0 at the start

    Symbols:
        h hidden state, x input, s the scale of the identity (1 in most of the paper's tasks).

    Promise:
        With s = 1 the first network adds up its inputs: the gradient through active units is
        exactly the identity. Training may leave that point.

    Args:
        scale: The number s on the diagonal at the start.
        input_std: Standard deviation of the Gaussian from which W_xh is drawn.

    Example:
        >>> net = undamped.nn.IRNN(3, 16)
        >>> output, state = net(torch.randn(50, 4, 3))

    Reference:
        Q. V. Le, N. Jaitly, G. E. Hinton. A simple way to initialize recurrent networks of
        rectified linear units. arXiv:1504.00941, 2015.
    """

    promises = (
        *RNNCell.promises,
        Promise(Kind.STARTS_ISOMETRIC, "the linear part of a step starts as the identity"),
    )
    needs_full_precision = True

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        scale: PositiveFloat = 1.0,
        input_std: NonNegativeFloat = 0.001,
    ) -> None:
        super().__init__(input_size, hidden_size, nonlinearity="relu")
        nn.init.normal_(self.weight_ih, std=input_std)
        nn.init.eye_(self.weight_hh)
        for name in ("bias_ih", "bias_hh"):
            nn.init.zeros_(self.get_parameter(name))
        self.weight_hh.data.mul_(scale)


@models.register("irnn")
class IRNN(TorchLike):
    """Stacked layers of `IRNNCell`, which has the equation and the options."""

    cell_class = IRNNCell
