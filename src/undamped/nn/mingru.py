"""minGRU and minLSTM (Feng et al., 2024): gates that read the input alone."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from undamped._base.options import PositiveInt
from undamped._base.promises import Kind, Promise
from undamped._base.registry import models
from undamped.kernels.linear.scan import linear_scan
from undamped.nn.bases.cell import Cell, MemoryPlan, State
from undamped.nn.recurrent import Recurrent


class GatedByInput(Cell):
    """What minGRU and minLSTM share: h' = a h + (1 − a) g(V u), with a read from the input.

    Args:
        gates: Number of gates.
    """

    independent_units = True

    def __init__(self, input_size: int, hidden_size: int, gates: int) -> None:
        super().__init__(input_size, hidden_size)
        bound = input_size**-0.5
        rows = (gates + 1) * hidden_size
        self.input_weight = nn.Parameter(torch.empty(rows, input_size).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(rows).uniform_(-bound, bound))

    @abstractmethod
    def keep(self, gates: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """Return which part of the state stays and which part is new; together they are one."""

    def parts(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return a and (1 − a) g(V u)."""
        *gates, candidate = F.linear(x, self.input_weight, self.bias).split(self.hidden_size, -1)
        keep, new = self.keep(tuple(gates))
        return keep, new * positive(candidate)

    def project(self, x: Tensor) -> Tensor:
        """Return a and (1 − a) g(V u) side by side."""
        return torch.cat(self.parts(x), -1)

    def advance(self, projected: Tensor, state: State, constants: State) -> State:
        """a h + (1 − a) g(V u)."""
        keep, new = projected.chunk(2, dim=-1)
        return (keep * state[0] + new,)

    def scan(self, x: Tensor, state: State, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        """All steps in one compiled loop."""
        keep, new = self.parts(x)
        output, last = linear_scan(new, keep, state[0], lengths)
        return output, (last,)

    def step_gradient_bound(self) -> Tensor:
        """One: a lies between zero and one."""
        return torch.ones(())


def positive(v: Tensor) -> Tensor:
    """Return v + ½ where v ≥ 0, and σ̂(v) elsewhere."""
    return torch.where(v >= 0, v + 0.5, torch.sigmoid(v))


class MinGRUCell(GatedByInput):
    """minGRU: a GRU whose gate and candidate read the input alone.

    Equation:
        h' = (1 − q) ⊙ h + q ⊙ g(V u + b),  q = σ̂(V_q u + b_q)
        g(v) = v + ½ for v ≥ 0, σ̂(v) otherwise

    Symbols:
        h hidden state, u input, q update gate, g keeps candidates positive.

        The recurrence is linear in h; the layers above see h as it is.

    Promise:
        ‖∂h'/∂h‖ ≤ 1 at every step.

    Example:
        >>> net = undamped.nn.MinGRU(3, 16, num_layers=2)
        >>> output, state = net(torch.randn(50, 4, 3))

    Reference:
        L. Feng, F. Tung, M. O. Ahmed, Y. Bengio, H. Hajimirsadeghi. Were RNNs all we needed?
        arXiv:2410.01201, 2024.
    """

    # Measured: the peak of a pass that saved all chunks.
    memory_plan = MemoryPlan(chunked=True, saved_sequences=15)
    promises = (Promise(Kind.BOUNDED_STEP_GRADIENT, "‖∂h'/∂h‖ ≤ 1 at every step"),)

    def __init__(self, input_size: PositiveInt, hidden_size: PositiveInt) -> None:
        super().__init__(input_size, hidden_size, 1)

    def keep(self, gates: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """1 − q and q."""
        return torch.sigmoid(-gates[0]), torch.sigmoid(gates[0])


class MinLSTMCell(GatedByInput):
    """minLSTM: an LSTM whose gates read the input alone and add up to one.

    Equation:
        h' = f/(f + i) ⊙ h + i/(f + i) ⊙ g(V u + b)
        f = σ̂(V_f u + b_f),  i = σ̂(V_i u + b_i),  g as in mingru

    Symbols:
        h hidden state, u input, f forget gate, i input gate.

        The recurrence is linear in h; the layers above see h as it is.

    Promise:
        ‖∂h'/∂h‖ ≤ 1 at every step.

    Example:
        >>> net = undamped.nn.MinLSTM(3, 16, num_layers=2)
        >>> output, state = net(torch.randn(50, 4, 3))

    Reference:
        L. Feng, F. Tung, M. O. Ahmed, Y. Bengio, H. Hajimirsadeghi. Were RNNs all we needed?
        arXiv:2410.01201, 2024.
    """

    # Measured: the peak of a pass that saved all chunks.
    memory_plan = MemoryPlan(chunked=True, saved_sequences=20)
    promises = (Promise(Kind.BOUNDED_STEP_GRADIENT, "‖∂h'/∂h‖ ≤ 1 at every step"),)

    def __init__(self, input_size: PositiveInt, hidden_size: PositiveInt) -> None:
        super().__init__(input_size, hidden_size, 2)

    def keep(self, gates: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """f/(f + i) and i/(f + i), from logarithms, so that two closed gates divide too."""
        forget, enter = gates
        balance = F.logsigmoid(forget) - F.logsigmoid(enter)
        return torch.sigmoid(balance), torch.sigmoid(-balance)


@models.register("mingru")
class MinGRU(Recurrent):
    """Stacked layers of `MinGRUCell`, which has the equation and the options."""

    cell_class = MinGRUCell


@models.register("minlstm")
class MinLSTM(Recurrent):
    """Stacked layers of `MinLSTMCell`, which has the equation and the options."""

    cell_class = MinLSTMCell
