"""GRU (Cho et al., 2014)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from undamped._base.errors import OptionError
from undamped._base.options import PositiveFloat, PositiveInt
from undamped._base.registry import models
from undamped.kernels.coupled import Step, steps
from undamped.nn.bases.cell import State
from undamped.nn.bases.coupled import CoupledCell
from undamped.nn.bases.torch_kernels import gate_parameters, kernel_scan
from undamped.nn.torch_like import TorchLike


class GRUCell(CoupledCell):
    """GRU: an LSTM's gates without the separate memory cell.

    Equation:
        r, z = σ̂(W h + V x + b) for each gate,  n = tanh(V_n x + b_n + r ⊙ (W_n h + d_n))
        h' = (1 − z) ⊙ n + z ⊙ h

    Symbols:
        h hidden state, r reset gate, z update gate, n candidate, d_n the recurrent bias inside
        the reset. Weights are stacked in the order r, z, n, as torch.nn.GRU stacks them.

    Promise:
        None. The direct path is multiplied by z at every step.

    Args:
        bias: Whether there are biases.
        input_std: Standard deviation with which the input matrix is drawn; none draws it as
            torch.nn.GRU does, uniformly within 1/√n, where a few numbers are hardly seen at first.
        update_bias: What the bias of the update gate starts with, all others starting at zero;
            none draws them as torch.nn.GRU does, and half of a state is forgotten in a step. With
            2.5 a twelfth is.

    Example:
        >>> net = undamped.nn.GRU(3, 16)
        >>> output, state = net(torch.randn(50, 4, 3))

    Reference:
        K. Cho et al. Learning phrase representations using RNN encoder-decoder for statistical
        machine translation. EMNLP, 2014.
    """

    torch_class = nn.GRU

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        bias: bool = True,
        input_std: PositiveFloat | None = None,
        update_bias: float | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size)
        self.weight_ih: Tensor
        self.weight_hh: Tensor
        self.bias_ih: Tensor | None
        self.bias_hh: Tensor | None
        gate_parameters(self, input_size, hidden_size, gates=3, bias=bias)
        self._begin(input_std, update_bias)

    @torch.no_grad()
    def _begin(self, input_std: float | None, update_bias: float | None) -> None:
        if input_std is not None:
            nn.init.normal_(self.weight_ih, std=input_std)
        if update_bias is None:
            return
        if self.bias_ih is None or self.bias_hh is None:
            raise OptionError("update_bias needs a network with biases. Set bias=True.")
        self.bias_ih.zero_()
        self.bias_hh.zero_()
        self.bias_ih[self.hidden_size : 2 * self.hidden_size] = update_bias

    def input_tensors(self) -> State:
        """V, and all biases but the one inside the reset."""
        if self.bias_ih is None or self.bias_hh is None:
            return (self.weight_ih,)
        gates = 2 * self.hidden_size
        outside = torch.cat([self.bias_hh[:gates], torch.zeros_like(self.bias_hh[gates:])])
        return self.weight_ih, self.bias_ih + outside

    def constants(self) -> State:
        """The recurrent matrices, one above the other, and the bias inside the reset."""
        if self.bias_hh is None:
            return self.weight_hh, self.weight_hh.new_zeros(self.hidden_size)
        return self.weight_hh, self.bias_hh[2 * self.hidden_size :]

    def advance(self, projected: Tensor, state: State, constants: State) -> State:
        """One step of the gates; the recurrent bias of the candidate lies inside the reset."""
        (hidden,) = state
        weight, inside = constants
        p_r, p_z, p_n = projected.chunk(3, dim=-1)
        h_r, h_z, h_n = F.linear(hidden, weight).chunk(3, dim=-1)
        update = torch.sigmoid(p_z + h_z)
        candidate = torch.tanh(p_n + torch.sigmoid(p_r + h_r) * (h_n + inside))
        return ((1 - update) * candidate + update * hidden,)

    def elementwise(self) -> Step:
        """The kernel of the gates."""
        return steps.GatedRecurrent()

    def elementwise_tensors(self, constants: State) -> State:
        """The bias inside the reset."""
        return constants[1:]

    def plain_scan(
        self, x: Tensor, state: State, lengths: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Scan in torch's kernel."""
        weights = [self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh]
        return kernel_scan(torch.gru, x, state, weights, lengths)

    def recurrent_matrices(self) -> tuple[Tensor, ...]:
        """The square block of each gate."""
        return self.weight_hh.chunk(3)


@models.register("gru")
class GRU(TorchLike):
    """Stacked layers of `GRUCell`, which has the equation and the options."""

    cell_class = GRUCell
