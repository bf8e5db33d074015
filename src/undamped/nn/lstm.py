"""LSTM (Hochreiter and Schmidhuber, 1997)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from undamped._base.errors import OptionError
from undamped._base.options import Fraction, NonNegativeInt, PositiveFloat, PositiveInt
from undamped._base.registry import models
from undamped.kernels.coupled import Step, coupled_scan, projections, steps
from undamped.kernels.dispatch import use_plain_loops
from undamped.nn.bases.cell import State, reference_scan
from undamped.nn.bases.coupled import CoupledCell, runs_compiled
from undamped.nn.bases.torch_kernels import gate_parameters, kernel_scan, summed_bias
from undamped.nn.torch_like import TorchLike


class LSTMCell(CoupledCell):
    """LSTM: gates decide what a memory cell keeps, takes in and shows.

    Equation:
        i, f, o = σ̂(W h + V x + b) for each gate,  g = tanh(W_g h + V_g x + b_g)
        c' = f ⊙ c + i ⊙ g,  h' = o ⊙ tanh(c')

    Symbols:
        h hidden state, c memory cell, i, f, o input, forget and output gate, g candidate.
        Weights are stacked in the order i, f, g, o, as torch.nn.LSTM stacks them. With `proj_size`
        h' = R (o ⊙ tanh(c')) with a trained matrix R.

    Promise:
        None. The path through c is multiplied by the forget gate at every step, so the gradient
        fades as the product of gates does.

    Args:
        h_detach: Probability with which, at each step of training, no gradient flows through h,
            only through c (Kanuparthi et al., 2019); the paper uses 0.25 to 0.5. Values are not
            changed, and the fused kernel is not used while it is on.
        bias: Whether there are biases.
        proj_size: Number of features of h where it is projected, as in torch.nn.LSTM; 0 for as many
            as there are hidden units. A step then costs what one without a projection does.
        input_std: Standard deviation with which the input matrix is drawn; none draws it as
            torch.nn.LSTM does, uniformly within 1/√n. Symbols as one-hot vectors want 1: within
            1/√n the network hardly tells them apart at first.
        forget_bias: What the bias of the forget gate starts with, all others starting at zero;
            none draws them as torch.nn.LSTM does.

    Example:
        >>> net = undamped.nn.LSTM(3, 16, num_layers=2)
        >>> output, (h, c) = net(torch.randn(50, 4, 3))

    Reference:
        S. Hochreiter, J. Schmidhuber. Long short-term memory. Neural Computation 9, 1997.
        B. Kanuparthi, D. Arpit, G. Kerg, N. R. Ke, I. Mitliagkas, Y. Bengio. h-detach: modifying
        the LSTM gradient towards better optimization. ICLR, 2019.
        H. Sak, A. Senior, F. Beaufays. Long short-term memory based recurrent neural network
        architectures for large vocabulary speech recognition. arXiv:1402.1128, 2014.
    """

    state_names = ("hidden", "memory")
    torch_class = nn.LSTM

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        h_detach: Fraction = 0.0,
        bias: bool = True,
        proj_size: NonNegativeInt = 0,
        input_std: PositiveFloat | None = None,
        forget_bias: float | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size)
        if proj_size >= hidden_size:
            raise OptionError(
                f"proj_size must be smaller than hidden_size={hidden_size}, got {proj_size}."
            )
        self.h_detach, self.proj_size = h_detach, proj_size
        self.weight_ih: Tensor
        self.weight_hh: Tensor
        self.bias_ih: Tensor | None
        self.bias_hh: Tensor | None
        self.weight_hr: Tensor
        gate_parameters(self, input_size, hidden_size, 4, bias, proj_size)
        self.begin(input_std, forget_bias)

    @torch.no_grad()
    def begin(self, input_std: float | None, forget_bias: float | None) -> None:
        """Draw the input matrix and set the biases as the options of the same names say."""
        if input_std is not None:
            nn.init.normal_(self.weight_ih, std=input_std)
        if forget_bias is None:
            return
        if self.bias_ih is None or self.bias_hh is None:
            raise OptionError("forget_bias needs a network with biases. Set bias=True.")
        self.bias_ih.zero_()
        self.bias_hh.zero_()
        self.bias_ih[self.hidden_size : 2 * self.hidden_size] = forget_bias

    @property
    def state_sizes(self) -> tuple[int | None, ...]:
        """h, which may be projected, and c."""
        return self.output_size, self.hidden_size

    @property
    def output_size(self) -> int:
        """Number of features of h."""
        return self.proj_size or self.hidden_size

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
        """The recurrent matrices, one above the other, and R where there is one."""
        return (self.weight_hh, self.weight_hr) if self.proj_size else (self.weight_hh,)

    def advance(self, projected: Tensor, state: State, constants: State) -> State:
        """One step of the gates."""
        hidden, memory = state
        if self._detaching and float(torch.rand(())) < self.h_detach:
            hidden = hidden.detach()
        gates = projected + F.linear(hidden, constants[0])
        i, f, g, o = gates.chunk(4, dim=-1)
        memory = torch.sigmoid(f) * memory + torch.sigmoid(i) * torch.tanh(g)
        full_hidden = torch.sigmoid(o) * torch.tanh(memory)
        return F.linear(full_hidden, constants[1]) if self.proj_size else full_hidden, memory

    def elementwise(self) -> Step:
        """The kernel of the gates."""
        return steps.LongShort()

    def scan(self, x: Tensor, state: State, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        """Scan with the fused kernels, or plainly while h is detached."""
        if self._detaching:
            return reference_scan(self, x, state, lengths)
        if self.proj_size and not use_plain_loops() and runs_compiled(x, *state, self.weight_hh):
            return self._projected_scan(x, state, lengths)
        return super().scan(x, state, lengths)

    def _projected_scan(
        self, x: Tensor, state: State, lengths: Tensor | None
    ) -> tuple[Tensor, State]:
        """Scan with what R is applied to in place of h: W h is (W R) of it.

        R is then one large product for all steps. The first h, which R did not make, comes in as
        an input that is zero later on.
        """
        matrix, projection = self.constants()
        weight, *bias = self.input_tensors()
        first = F.pad(state[0].unsqueeze(0), (0, 0, 0, 0, 0, x.shape[0] - 1))
        output, (last, memory) = coupled_scan(
            self.elementwise(),
            self.operator(),
            projections.Linear(),
            torch.cat((x, first), dim=-1),
            (torch.zeros_like(state[1]), state[1]),
            input_tensors=(torch.cat((weight, matrix), dim=1), *bias),
            linear=(matrix @ projection,),
            lengths=lengths,
        )
        return F.linear(output, projection), (F.linear(last, projection), memory)

    def plain_scan(
        self, x: Tensor, state: State, lengths: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Scan in torch's kernel."""
        weights = [self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh]
        weights += [self.weight_hr] if self.proj_size else []
        return kernel_scan(torch.lstm, x, state, weights, lengths)


@models.register("lstm")
class LSTM(TorchLike):
    """Stacked layers of `LSTMCell`, which has the equation and the options."""

    cell_class = LSTMCell
