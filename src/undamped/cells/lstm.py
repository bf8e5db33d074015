"""LSTM (Hochreiter and Schmidhuber, 1997)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from undamped.cells.bases.cell import State, reference_scan
from undamped.cells.bases.coupled import CoupledCell
from undamped.cells.bases.torch_kernels import gate_parameters, kernel_scan, summed_bias
from undamped.cells.registry import network
from undamped.errors import OptionError, explain
from undamped.kernels.coupled import Step, steps
from undamped.options import Fraction, PositiveFloat, PositiveInt


@network("lstm", "LSTM")
class LSTMCell(CoupledCell):
    """LSTM: gates decide what a memory cell keeps, takes in and shows.

    Equation:
        i, f, o = σ̂(W h + V x + b) for each gate,  g = tanh(W_g h + V_g x + b_g)
        c' = f ⊙ c + i ⊙ g,  h' = o ⊙ tanh(c')

    Symbols:
        h hidden state, c memory cell, i, f, o input, forget and output gate, g candidate.
        Weights are stacked in the order i, f, g, o, as torch.nn.LSTM stacks them.

    Promise:
        None. The path through c is multiplied by the forget gate at every step, so the gradient
        fades as the product of gates does.

    Args:
        input_size: Number of features of the input at each step.
        hidden_size: Number of hidden units.
        h_detach: Probability with which, at each step of training, no gradient flows through h,
            only through c (Kanuparthi et al., 2019); the paper uses 0.25 to 0.5. Values are not
            changed, and the fused kernel is not used while it is on.
        bias: Whether there are biases.
        input_std: Standard deviation with which the input matrix is drawn; none draws it as
            torch.nn.LSTM does, uniformly within 1/√n. Symbols as one-hot vectors want 1: within
            1/√n the network hardly tells them apart at first.
        forget_bias: What the bias of the forget gate starts with, all others starting at zero;
            none draws them as torch.nn.LSTM does.

    Example:
        >>> net = undamped.LSTM(3, 16, num_layers=2)
        >>> output, (h, c) = net(torch.randn(50, 4, 3))

    Reference:
        S. Hochreiter, J. Schmidhuber. Long short-term memory. Neural Computation 9, 1997.
        B. Kanuparthi, D. Arpit, G. Kerg, N. R. Ke, I. Mitliagkas, Y. Bengio. h-detach: modifying
        the LSTM gradient towards better optimization. ICLR, 2019.
    """

    usual_choice = True
    state_names = ("hidden", "memory")
    dense = True
    torch_class = nn.LSTM

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        h_detach: Fraction = 0.0,
        bias: bool = True,
        input_std: PositiveFloat | None = None,
        forget_bias: float | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size)
        self.h_detach = h_detach
        self.weight_ih: Tensor
        self.weight_hh: Tensor
        self.bias_ih: Tensor | None
        self.bias_hh: Tensor | None
        gate_parameters(self, input_size, hidden_size, gates=4, bias=bias)
        self.begin(input_std, forget_bias)

    @torch.no_grad()
    def begin(self, input_std: float | None, forget_bias: float | None) -> None:
        """Draw the input matrix and set the biases as the options of the same names say."""
        if input_std is not None:
            nn.init.normal_(self.weight_ih, std=input_std)
        if forget_bias is None:
            return
        if self.bias_ih is None or self.bias_hh is None:
            raise OptionError(
                explain(
                    "forget_bias",
                    expected="none without biases",
                    got=forget_bias,
                    remedy="Build it with bias=True.",
                )
            )
        self.bias_ih.zero_()
        self.bias_hh.zero_()
        self.bias_ih[self.hidden_size : 2 * self.hidden_size] = forget_bias

    @property
    def _detaching(self) -> bool:
        return self.h_detach > 0 and self.training and torch.is_grad_enabled()

    def recurrent_matrices(self) -> tuple[Tensor, ...]:
        """The square block of each gate."""
        return self.weight_hh.chunk(4)

    def input_tensors(self) -> State:
        """V and b of all four gates."""
        return self.weight_ih, *summed_bias(self.bias_ih, self.bias_hh)

    def constants(self) -> State:
        """The recurrent matrices, one above the other."""
        return (self.weight_hh,)

    def advance(self, projected: Tensor, state: State, constants: State) -> State:
        """One step of the gates."""
        hidden, memory = state
        if self._detaching and float(torch.rand(())) < self.h_detach:
            hidden = hidden.detach()
        gates = projected + F.linear(hidden, constants[0])
        i, f, g, o = gates.chunk(4, dim=-1)
        memory = torch.sigmoid(f) * memory + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(memory), memory

    def elementwise(self) -> Step:
        """The kernel of the gates."""
        return steps.LongShort()

    def scan(self, x: Tensor, state: State, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        """Walk through time with the fused kernels, or plainly while h is detached."""
        if self._detaching:
            return reference_scan(self, x, state, lengths)
        return super().scan(x, state, lengths)

    def plain_scan(
        self, x: Tensor, state: State, lengths: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Walk through time in torch's kernel."""
        weights = [self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh]
        return kernel_scan(torch.lstm, x, state, weights, lengths)
