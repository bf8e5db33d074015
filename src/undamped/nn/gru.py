"""GRU (Cho et al., 2014)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from undamped._base.options import PositiveFloat, PositiveInt
from undamped._base.registry import models
from undamped.kernels.coupled import steps
from undamped.nn.bases.cell import State
from undamped.nn.torch_like import TorchCell, TorchLike


class GRUCell(TorchCell):
    """GRU: gates as in an LSTM, without a separate memory cell.

    Equation:
        r, z = σ̂(W h + V x + b) for each gate,  n = tanh(V_n x + b_n + r ⊙ (W_n h + d_n))
        h' = (1 − z) ⊙ n + z ⊙ h

    Symbols:
        h hidden state, r reset gate, z update gate, n candidate, d_n the recurrent bias inside
        the reset. Weights are stacked in the order r, z, n, as in torch.nn.GRU.

    Promise:
        None. The direct path is multiplied by z at every step.

    Args:
        input_std: Standard deviation of the initial input matrix. By default it is uniform within
            1/√n as in torch.nn.GRU, with which a few inputs have little effect at first.
        update_bias: Initial bias of the update gate, all others being zero. By default they are
            drawn as in torch.nn.GRU, and a step forgets half of a state; with 2.5 a twelfth.

    Example:
        >>> net = undamped.nn.GRU(3, 16)
        >>> output, state = net(torch.randn(50, 4, 3))

    Reference:
        K. Cho et al. Learning phrase representations using RNN encoder-decoder for statistical
        machine translation. EMNLP, 2014.
    """

    torch_class = nn.GRU
    torch_kernel = "gru"
    gates = 3
    kernel = steps.GatedRecurrent()

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        bias: bool = True,
        input_std: PositiveFloat | None = None,
        update_bias: float | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias=bias)
        self.initialise(input_std, update_bias, "update_bias")

    def input_tensors(self) -> State:
        """Return V, and all biases but the one inside the reset."""
        if self.bias_ih is None or self.bias_hh is None:
            return (self.weight_ih,)
        gates = 2 * self.hidden_size
        outside = torch.cat([self.bias_hh[:gates], torch.zeros_like(self.bias_hh[gates:])])
        return self.weight_ih, self.bias_ih + outside

    def constants(self) -> State:
        """Return the stacked recurrent matrices, and the bias inside the reset."""
        if self.bias_hh is None:
            return self.weight_hh, self.weight_hh.new_zeros(self.hidden_size)
        return self.weight_hh, self.bias_hh[2 * self.hidden_size :]

    def advance(self, projected: Tensor, state: State, constants: State) -> State:
        """Make one step; the recurrent bias of the candidate is inside the reset."""
        (hidden,) = state
        weight, inside = constants
        p_r, p_z, p_n = projected.chunk(3, dim=-1)
        h_r, h_z, h_n = F.linear(hidden, weight).chunk(3, dim=-1)
        update = torch.sigmoid(p_z + h_z)
        candidate = torch.tanh(p_n + torch.sigmoid(p_r + h_r) * (h_n + inside))
        return ((1 - update) * candidate + update * hidden,)


@models.register("gru")
class GRU(TorchLike):
    cell_class = GRUCell
