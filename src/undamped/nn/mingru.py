"""minGRU and minLSTM (Feng et al., 2024): gates that read only the input."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from undamped._base.options import PositiveInt
from undamped._base.promises import Kind, Promise
from undamped._base.registry import models
from undamped.kernels.linear.scan import linear_scan
from undamped.nn.bases.cell import Cell, MemoryPlan, ScanResult, State
from undamped.nn.recurrent import Recurrent


class InputGatedCell(Cell):
    """h' = a h + (1 − a) g(V u), with a computed from the input.

    Symbols:
        h hidden state, u input; g keeps candidates positive. The recurrence is linear in h, which
        is the output of the layer.

    Promise:
        ‖∂h'/∂h‖ ≤ 1 at every step.

    Reference:
        L. Feng, F. Tung, M. O. Ahmed, Y. Bengio, H. Hajimirsadeghi. Were RNNs all we needed?
        arXiv:2410.01201, 2024.
    """

    independent_units = True
    promises = (Promise(Kind.BOUNDED_STEP_GRADIENT, "‖∂h'/∂h‖ ≤ 1 at every step"),)
    gates: ClassVar[int]

    def __init__(self, input_size: PositiveInt, hidden_size: PositiveInt) -> None:
        super().__init__(input_size, hidden_size)
        bound = input_size**-0.5
        rows = (self.gates + 1) * hidden_size
        self.input_weight = nn.Parameter(torch.empty(rows, input_size).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(rows).uniform_(-bound, bound))

    @abstractmethod
    def mixture(self, gates: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """Return the weights of the old state and of the candidate, whose sum is one."""

    def parts(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return a and (1 − a) g(V u)."""
        *gates, candidate = F.linear(x, self.input_weight, self.bias).split(self.hidden_size, -1)
        old, new = self.mixture(tuple(gates))
        return old, new * positive(candidate)

    def project(self, x: Tensor) -> Tensor:
        """Return a and (1 − a) g(V u), concatenated."""
        return torch.cat(self.parts(x), -1)

    def advance(self, projected: Tensor, state: State, constants: State) -> State:
        """Return a h + (1 − a) g(V u)."""
        old, new = projected.chunk(2, dim=-1)
        return (old * state[0] + new,)

    def scan(self, x: Tensor, state: State, lengths: Tensor | None = None) -> ScanResult:
        """Make all steps in one compiled loop."""
        old, new = self.parts(x)
        output, last = linear_scan(new, old, state[0], lengths)
        return output, (last,)

    def step_gradient_bound(self) -> Tensor:
        """Return one: a lies between zero and one."""
        return torch.ones(())


def positive(v: Tensor) -> Tensor:
    """Return v + ½ where v ≥ 0, and σ̂(v) elsewhere."""
    return torch.where(v >= 0, v + 0.5, torch.sigmoid(v))


class MinGRUCell(InputGatedCell):
    """minGRU: a GRU whose gate and candidate read only the input.

    Equation:
        h' = (1 − q) ⊙ h + q ⊙ g(V u + b),  q = σ̂(V_q u + b_q)
        g(v) = v + ½ for v ≥ 0, σ̂(v) otherwise

    Example:
        >>> net = undamped.nn.MinGRU(3, 16, num_layers=2)
        >>> output, state = net(torch.randn(50, 4, 3))
    """

    gates = 1
    # Measured: the peak of a pass that saved all chunks.
    memory_plan = MemoryPlan(chunked=True, saved_sequences=15)

    def mixture(self, gates: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """Return 1 − q and q."""
        return torch.sigmoid(-gates[0]), torch.sigmoid(gates[0])


class MinLSTMCell(InputGatedCell):
    """minLSTM: an LSTM whose gates read only the input and are normalised to a sum of one.

    Equation:
        h' = f/(f + i) ⊙ h + i/(f + i) ⊙ g(V u + b)
        f = σ̂(V_f u + b_f),  i = σ̂(V_i u + b_i),  g as in mingru

    Example:
        >>> net = undamped.nn.MinLSTM(3, 16, num_layers=2)
        >>> output, state = net(torch.randn(50, 4, 3))
    """

    gates = 2
    # Measured: the peak of a pass that saved all chunks.
    memory_plan = MemoryPlan(chunked=True, saved_sequences=20)

    def mixture(self, gates: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """Return f/(f + i) and i/(f + i), from logarithms, so that two closed gates divide too."""
        forget, enter = gates
        balance = F.logsigmoid(forget) - F.logsigmoid(enter)
        return torch.sigmoid(balance), torch.sigmoid(-balance)


@models.register("mingru")
class MinGRU(Recurrent):
    cell_class = MinGRUCell


@models.register("minlstm")
class MinLSTM(Recurrent):
    cell_class = MinLSTMCell
