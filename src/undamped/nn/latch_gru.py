"""Latch-GRU: a gated recurrence whose gates depend on the state and close completely."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from undamped._base.options import PositiveInt
from undamped._base.promises import Kind, Promise
from undamped.kernels.coupled import Step, steps
from undamped.nn.bases.cell import State
from undamped.nn.bases.coupled import CoupledCell
from undamped.nn.recurrent import Recurrent


class LatchGRUCell(CoupledCell):
    """Latch-GRU: a GRU without reset whose update gates close completely.

    Equation:
        q = min(max(½ + ¼ (W_q h + V_q x + b_q), 0), 1)
        h' = (1 − q) ⊙ h + q ⊙ tanh(W h + V x + b)

    Symbols:
        h hidden state, x input, q update gate. A gate whose argument is below −2 is exactly zero,
        and then h' = h to the last bit, as in latch. Here gate and candidate depend on the state,
        so that what an event writes can depend on the events before it. Gates start between closed
        and half open (b_q between −2 and 0).

    Promise:
        |h| ≤ 1 from a zero state.

    Example:
        >>> net = undamped.nn.LatchGRU(3, 16)
        >>> output, state = net(torch.randn(50, 4, 3))

    Reference:
        G.-B. Zhou, J. Wu, C.-L. Zhang, Z.-H. Zhou. Minimal gated unit for recurrent neural
        networks. International Journal of Automation and Computing 13, 2016; with the gate of
        M. Courbariaux, Y. Bengio, J.-P. David. BinaryConnect. NeurIPS, 2015 (hard sigmoid).
    """

    slope = 0.25
    promises = (Promise(Kind.BOUNDED_STATE, "|h| ≤ 1 from a zero state"),)

    def __init__(self, input_size: PositiveInt, hidden_size: PositiveInt) -> None:
        super().__init__(input_size, hidden_size)
        rows, bound, recurrent = 2 * hidden_size, input_size**-0.5, hidden_size**-0.5
        self.input_weight = nn.Parameter(torch.empty(rows, input_size).uniform_(-bound, bound))
        self.weight_hh = nn.Parameter(
            torch.empty(rows, hidden_size).uniform_(-recurrent, recurrent)
        )
        self.bias = nn.Parameter(torch.empty(rows).uniform_(-bound, bound))
        with torch.no_grad():
            self.bias[:hidden_size].uniform_(-0.5 / self.slope, 0)

    def elementwise(self) -> Step:
        """Return the kernel of the elementwise part."""
        return steps.HardGated(self.slope)

    def advance(self, projected: Tensor, state: State, constants: State) -> State:
        """Compute gate and candidate, and move the state towards the candidate."""
        gate, candidate = (projected + self.product(state, constants)).chunk(2, dim=-1)
        q = (self.slope * gate + 0.5).clamp(0, 1)
        return ((1 - q) * state[0] + q * torch.tanh(candidate),)

    def recurrent_matrices(self) -> tuple[Tensor, ...]:
        """Return the matrices of gate and candidate."""
        return self.weight_hh.chunk(2)

    def state_bound(self, steps: int) -> tuple[float]:
        """Return one: a state is a mean of values of tanh, and of zero."""
        return (1.0,)


class LatchGRU(Recurrent, cell=LatchGRUCell, name="latch-gru"): ...
