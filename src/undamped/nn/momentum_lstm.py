"""MomentumLSTM (Nguyen et al., 2020) and its Adam, RMSProp and Nesterov variants."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from undamped._base.options import PositiveInt
from undamped._base.registry import models
from undamped.kernels.coupled import Step, steps
from undamped.nn.bases.cell import State
from undamped.nn.bases.momentum import (
    AdamDriven,
    Drive,
    MomentumCell,
    MomentumDriven,
    NesterovDriven,
    RMSPropDriven,
)
from undamped.nn.recurrent import Recurrent


def _names(*filtered: str) -> tuple[str, ...]:
    """Return the state's names: the LSTM's two, and each of the filter's once per gate."""
    gates = ("input", "forget", "candidate", "output")
    return ("hidden", "memory", *(f"{gate} {name}" for name in filtered for gate in gates))


class MomentumLSTMBase(MomentumCell):
    """What the four variants share: an LSTM whose gates read filtered inputs."""

    blocks: ClassVar[int] = 4

    def __init__(self, input_size: PositiveInt, hidden_size: PositiveInt, drive: Drive) -> None:
        super().__init__(input_size, hidden_size, drive)
        self.bias_hh = nn.Parameter(torch.zeros(4 * hidden_size))
        # As in the authors' program: the identity for the input gate alone, and a forget bias
        # of one in both places.
        nn.init.eye_(self.weight_hh)
        nn.init.zeros_(self.bias_ih)
        for bias in (self.bias_ih, self.bias_hh):
            nn.init.ones_(bias[hidden_size : 2 * hidden_size])

    @property
    def _recurrent_tensors(self) -> int:
        return 2

    def input_tensors(self) -> State:
        """W, b, and what is added after the filter."""
        return self.weight_ih, self.bias_ih, self.bias_hh

    def project(self, x: Tensor) -> Tensor:
        """u = W x + b."""
        return F.linear(x, self.weight_ih, self.bias_ih)

    def advance_driven(self, drive: Tensor, state: State, constants: State) -> State:
        """One step of the gates."""
        hidden, memory = state[:2]
        gates = drive + self.bias_hh + F.linear(hidden, constants[0])
        i, f, g, o = gates.chunk(4, dim=-1)
        memory = torch.sigmoid(f) * memory + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(memory), memory

    def elementwise(self) -> Step:
        """The kernel of the gates."""
        return steps.LongShort()


class MomentumLSTMCell(MomentumDriven, MomentumLSTMBase):
    """MomentumLSTM: the input of every gate enters through a velocity.

    Equation:
        v' = μ v + s (W x + b),  (i, f, g, o) = v' + U h + d
        c' = σ̂(f) ⊙ c + σ̂(i) ⊙ tanh(g),  h' = σ̂(o) ⊙ tanh(c')

    Symbols:
        h hidden state, c memory, v velocity of each gate, x input, W input matrix, U recurrent
        matrix, b and d biases, μ momentum, s step.

    Promise:
        None strict.

    Example:
        >>> net = undamped.nn.MomentumLSTM(3, 16)
        >>> output, state = net(torch.randn(50, 4, 3))

    Reference:
        T. M. Nguyen, R. G. Baraniuk, A. L. Bertozzi, S. J. Osher, B. Wang. MomentumRNN: integrating
        momentum into recurrent neural networks. NeurIPS, 2020.
    """

    state_names = _names("velocity")


class NesterovLSTMCell(NesterovDriven, MomentumLSTMBase):
    """Nesterov LSTM (the paper's SRLSTM): momentum that grows, and starts again now and then.

    Equation:
        v' = k/(k + 3) v + s (W x + b),  k = t mod F,  then as momentum-lstm

    Symbols:
        As in momentum-lstm; t steps so far, F steps between restarts. This is the paper's
        equation; the authors' program has (k − 1)/(k + 2), of U h − s W x.

    Promise:
        None strict.

    Example:
        >>> net = undamped.nn.NesterovLSTM(3, 16, restart=40)
        >>> output, state = net(torch.randn(50, 4, 3))

    Reference:
        T. M. Nguyen, R. G. Baraniuk, A. L. Bertozzi, S. J. Osher, B. Wang. MomentumRNN: integrating
        momentum into recurrent neural networks. NeurIPS, 2020.
    """

    state_names = _names("velocity", "count")


class RMSPropLSTMCell(RMSPropDriven, MomentumLSTMBase):
    """RMSProp LSTM: the input of every gate enters divided by its running size.

    Equation:
        u = W x + b,  m' = β m + (1 − β) u²,  p = s u/√(m' + δ),  then as momentum-lstm with p

    Symbols:
        As in momentum-lstm; m running mean of squares, β its decay, δ against zero.

    Promise:
        None strict.

    Example:
        >>> net = undamped.nn.RMSPropLSTM(3, 16)
        >>> output, state = net(torch.randn(50, 4, 3))

    Reference:
        T. M. Nguyen, R. G. Baraniuk, A. L. Bertozzi, S. J. Osher, B. Wang. MomentumRNN: integrating
        momentum into recurrent neural networks. NeurIPS, 2020.
    """

    state_names = _names("moment")


class AdamLSTMCell(AdamDriven, MomentumLSTMBase):
    """Adam LSTM: a velocity divided by the running size of the input, for every gate.

    Equation:
        u = W x + b,  v' = μ v + s u,  m' = β m + (1 − β) u²,  p = v'/√(m' + δ)
        then as momentum-lstm with p

    Symbols:
        As in momentum-lstm and rmsprop-lstm.

    Promise:
        None strict.

    Example:
        >>> net = undamped.nn.AdamLSTM(3, 16)
        >>> output, state = net(torch.randn(50, 4, 3))

    Reference:
        T. M. Nguyen, R. G. Baraniuk, A. L. Bertozzi, S. J. Osher, B. Wang. MomentumRNN: integrating
        momentum into recurrent neural networks. NeurIPS, 2020.
    """

    state_names = _names("velocity", "moment")


@models.register("momentum-lstm")
class MomentumLSTM(Recurrent):
    """Stacked layers of `MomentumLSTMCell`, which has the equation and the options."""

    cell_class = MomentumLSTMCell


@models.register("nesterov-lstm")
class NesterovLSTM(Recurrent):
    """Stacked layers of `NesterovLSTMCell`, which has the equation and the options."""

    cell_class = NesterovLSTMCell


@models.register("rmsprop-lstm")
class RMSPropLSTM(Recurrent):
    """Stacked layers of `RMSPropLSTMCell`, which has the equation and the options."""

    cell_class = RMSPropLSTMCell


@models.register("adam-lstm")
class AdamLSTM(Recurrent):
    """Stacked layers of `AdamLSTMCell`, which has the equation and the options."""

    cell_class = AdamLSTMCell
