"""LSTM (Hochreiter and Schmidhuber, 1997) and GRU (Cho et al., 2014)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from undamped._base.errors import OptionError
from undamped._base.options import Fraction, NonNegativeInt, PositiveFloat, PositiveInt
from undamped.kernels.coupled import coupled_scan, projections, steps
from undamped.kernels.dispatch import use_plain_loops
from undamped.nn.bases.cell import ScanResult, State, reference_scan
from undamped.nn.bases.coupled import runs_compiled
from undamped.nn.torch_like import TorchCell, TorchLike


class LSTMCell(TorchCell):
    """LSTM: gates control what a memory cell keeps, reads and outputs.

    Equation:
        i, f, o = σ̂(W h + V x + b) for each gate,  g = tanh(W_g h + V_g x + b_g)
        c' = f ⊙ c + i ⊙ g,  h' = o ⊙ tanh(c')

    Symbols:
        h hidden state, c memory cell, i, f, o input, forget and output gate, g candidate.
        Weights are stacked in the order i, f, g, o, as in torch.nn.LSTM. With `proj_size`
        h' = R (o ⊙ tanh(c')) with a trained matrix R.

    Promise:
        None. The path through c is multiplied by the forget gate at every step, so the gradient
        vanishes with the product of the gates.

    Args:
        h_detach: Probability that a step of training has no gradient through h, only through c
            (Kanuparthi et al., 2019); the paper uses 0.25 to 0.5. Values are not changed, and the
            fused kernel is not used if it is positive.
        proj_size: Number of features of h after a projection, as in torch.nn.LSTM; 0 for no
            projection. A step costs the same as one without a projection.
        input_std: Standard deviation of the initial input matrix; by default it is uniform within
            1/√n as in torch.nn.LSTM. For symbols as one-hot vectors use 1, since with small weights
            the network hardly distinguishes them at first.
        forget_bias: Initial bias of the forget gate, all others being zero; by default they are
            drawn as in torch.nn.LSTM.

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
    torch_kernel = "lstm"
    gates = 4
    kernel = steps.LongShort()
    weight_hr: Tensor

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
        super().__init__(input_size, hidden_size, bias=bias, proj_size=proj_size)
        if proj_size >= hidden_size:
            raise OptionError(
                f"proj_size must be smaller than hidden_size={hidden_size}, got {proj_size}."
            )
        self.h_detach, self.proj_size = h_detach, proj_size
        self.initialise(input_std, forget_bias, "forget_bias")

    @property
    def state_sizes(self) -> tuple[int | None, ...]:
        """Sizes of h, which may be projected, and of c."""
        return self.output_size, self.hidden_size

    @property
    def output_size(self) -> int:
        return self.proj_size or self.hidden_size

    @property
    def _detaching(self) -> bool:
        return self.h_detach > 0 and self.training and torch.is_grad_enabled()

    def constants(self) -> State:
        """Return the stacked recurrent matrices, and R if there is one."""
        return (self.weight_hh, self.weight_hr) if self.proj_size else (self.weight_hh,)

    def advance(self, projected: Tensor, state: State, constants: State) -> State:
        hidden, memory = state
        if self._detaching and float(torch.rand(())) < self.h_detach:
            hidden = hidden.detach()
        gates = projected + F.linear(hidden, constants[0])
        i, f, g, o = gates.chunk(4, dim=-1)
        memory = torch.sigmoid(f) * memory + torch.sigmoid(i) * torch.tanh(g)
        full_hidden = torch.sigmoid(o) * torch.tanh(memory)
        return F.linear(full_hidden, *constants[1:]) if constants[1:] else full_hidden, memory

    def _step_function(self) -> Callable[[Tensor, State], State] | None:
        return None if self.proj_size or self._detaching else super()._step_function()

    def elementwise_tensors(self, constants: State) -> State:
        """Return nothing: the projection is applied outside of the kernel."""
        return ()

    def scan(self, x: Tensor, state: State, lengths: Tensor | None = None) -> ScanResult:
        """Scan with the fused kernels, or in a plain loop if h is detached."""
        if self._detaching:
            return reference_scan(self, x, state, lengths)
        if self.proj_size and not use_plain_loops() and runs_compiled(x, *state, self.weight_hh):
            return self._projected_scan(x, state, lengths)
        return super().scan(x, state, lengths)

    def _projected_scan(self, x: Tensor, state: State, lengths: Tensor | None) -> ScanResult:
        """Scan with the state before its projection in place of h: W h is (W R) times it.

        R is then one large product for all steps. The first h, which is not a result of R, is an
        input that is zero at later steps.
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
            reference=self.reference(lengths),
        )
        return F.linear(output, projection), (F.linear(last, projection), memory)


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


class LSTM(TorchLike, cell=LSTMCell, name="lstm"): ...


class GRU(TorchLike, cell=GRUCell, name="gru"): ...
