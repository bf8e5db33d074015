"""MemRNN and MemLSTM (Bahdanau et al., 2014; Kerg et al., 2020): attention over all past states."""

from __future__ import annotations

import torch
from torch import Tensor

from undamped._base.options import PositiveFloat, PositiveInt
from undamped._base.registry import models
from undamped.nn.bases.attention import Alignment, Mix
from undamped.nn.bases.cell import MemoryPlan, State
from undamped.nn.bases.memory import MemoryCell, Nonlinearity, recurrence_of
from undamped.nn.recurrent import Recurrent


class MemRNNCell(MemoryCell):
    """MemRNN: an RNN that remembers every state it had and attends to all of them.

    Equation:
        h_t = φ(V s_{t−1} + U x_t + b),  s_t = f(h_t, c_t),  c_t = Σ_{i ≤ t} a_i h_i
        a = softmax(e),  e_i = vᵀ tanh(W s_{t−1} + K h_i)

    Symbols:
        h hidden state, s what the next step reads in its place, c context, a attention weights,
        V recurrent matrix (it starts as a rotation), U input matrix; W, K, v trained.
        f(h, c) = (h + c)/2 by default: with h + c and weights that do not yet prefer anything,
        gradients grow like a power of the length when V has eigenvalues above one half, with
        the half they never do (docs/memory.md).

    Promise:
        None that is strict: what a state of long ago contributes depends on what is attended to.
        Under uniform attention and a linear recurrence the gradient falls or grows as a power of
        the length, never exponentially; `undamped.analysis.attention_exponent` gives the power.
        The state grows by one hidden vector a step.

    Args:
        recurrence: The recurrent part, by the name of its network; `exprnn` keeps V a rotation.
        nonlinearity: The function φ; none takes that of the recurrence.
        attention: Additive, as in the equation, or a scaled dot product (W s)ᵀ(K h_i)/√n.
        mix: The function f: half is (h + c)/2, sum is h + c, learned is a matrix times both.

    Example:
        >>> net = undamped.nn.MemRNN(3, 16)
        >>> output, state = net(torch.randn(50, 4, 3))

    Reference:
        D. Bahdanau, K. Cho, Y. Bengio. Neural machine translation by jointly learning to align
        and translate. ICLR, 2015.
        G. Kerg, B. Kanuparthi, A. Goyal, K. Goyette, Y. Bengio, G. Lajoie. Untangling tradeoffs
        between recurrence and self-attention in neural networks. NeurIPS, 2020.
    """

    state_names = ("hidden", "mixed", "past", "seen")
    memory_names = ("past", "seen")
    memory_plan = MemoryPlan(state_grows=True)

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        recurrence: str = "rnn-orth",
        nonlinearity: Nonlinearity | None = None,
        attention: Alignment = "additive",
        mix: Mix = "half",
    ) -> None:
        inner = recurrence_of(recurrence, input_size, hidden_size, nonlinearity)
        super().__init__(input_size, hidden_size, inner, attention, mix)

    @property
    def memory_sizes(self) -> tuple[int | None, ...]:
        """Past states and their flags, both growing."""
        return (None, None)

    def remember(
        self, projected: Tensor, hidden: Tensor, state: State, memory: State, constants: State
    ) -> tuple[Tensor, State]:
        """Append the new state, attend to all."""
        past, flags = memory
        past = torch.cat((past, hidden), dim=-1)
        flags = torch.cat((flags, torch.ones_like(hidden[:, :1])), dim=-1).detach()
        states = past.view(hidden.shape[0], -1, self.hidden_size)
        weights = self.weights(state[1], states, flags)
        return (weights.unsqueeze(1) @ states).squeeze(1), (past, flags)

    def as_slots(self, memory: State, batch: int) -> State:
        """The past, without scores."""
        past, flags = memory
        return past.view(batch, -1, self.hidden_size), torch.zeros_like(flags), flags

    def from_slots(self, slots: Tensor, scores: Tensor, flags: Tensor) -> State:
        """The past."""
        return slots.flatten(1), flags

    def _freeze_finished(self, new: State, old: State, running: Tensor) -> State:
        """Samples that are over get an empty slot where the others get a state."""
        *rest, past, flags = new
        earlier = old[-2].shape[1]
        empty = torch.where(running, past[:, earlier:], 0)
        return (
            *(torch.where(running, n, o) for n, o in zip(rest, old, strict=False)),
            torch.cat((past[:, :earlier], empty), dim=-1),
            torch.cat((flags[:, :-1], flags[:, -1:] * running), dim=-1),
        )


class MemLSTMCell(MemRNNCell):
    """MemLSTM: an LSTM that remembers every state it had and attends to all of them.

    Equation:
        h_t, m_t = LSTM(s_{t−1}, m_{t−1}, x_t),  s_t = f(h_t, c_t),  c_t = Σ_{i ≤ t} a_i h_i
        a = softmax(e),  e_i = vᵀ tanh(W s_{t−1} + K h_i)

    Symbols:
        h hidden state, m the LSTM's memory cell, s what the gates read in place of h, c context,
        a attention weights; W, K, v trained, f as for MemRNN.

    Promise:
        None that is strict, as for MemRNN. The state grows by one hidden vector a step.

    Args:
        input_std: Standard deviation with which the input matrix is drawn, as for LSTM.
        forget_bias: What the bias of the forget gate starts with, as for LSTM.

    Example:
        >>> net = undamped.nn.MemLSTM(3, 16)
        >>> output, state = net(torch.randn(50, 4, 3))

    Reference:
        G. Kerg, B. Kanuparthi, A. Goyal, K. Goyette, Y. Bengio, G. Lajoie. Untangling tradeoffs
        between recurrence and self-attention in neural networks. NeurIPS, 2020.
    """

    state_names = ("hidden", "mixed", "memory", "past", "seen")

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        attention: Alignment = "additive",
        mix: Mix = "half",
        input_std: PositiveFloat | None = None,
        forget_bias: float | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, recurrence="lstm", attention=attention, mix=mix)
        self.recurrence.begin(input_std, forget_bias)  # type: ignore[operator]


@models.register("memrnn")
class MemRNN(Recurrent):
    """Stacked layers of `MemRNNCell`, which has the equation and the options."""

    cell_class = MemRNNCell


@models.register("memlstm")
class MemLSTM(Recurrent):
    """Stacked layers of `MemLSTMCell`, which has the equation and the options."""

    cell_class = MemLSTMCell
