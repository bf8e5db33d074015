"""MemRNN and MemLSTM (Bahdanau et al., 2014; Kerg et al., 2020): attention over all past states."""

from __future__ import annotations

import torch
from torch import Tensor

from undamped._base.options import PositiveFloat, PositiveInt
from undamped._base.registry import models
from undamped.nn.bases.cell import MemoryPlan, State
from undamped.nn.bases.memory import Alignment, MemoryCell, Mix, Nonlinearity, recurrence_of
from undamped.nn.recurrent import Recurrent


class MemRNNCell(MemoryCell):
    """MemRNN: an RNN that stores all its states and attends to them.

    Equation:
        h_t = φ(V s_{t−1} + U x_t + b),  s_t = f(h_t, c_t),  c_t = Σ_{i ≤ t} a_i h_i
        a = softmax(e),  e_i = vᵀ tanh(W s_{t−1} + K h_i)

    Symbols:
        h hidden state, s which the next step reads in its place, c context, a attention weights, V
        recurrent matrix (initially a rotation), U input matrix; W, K, v trained. By default f(h, c)
        is (h + c)/2: with h + c and uniform attention, gradients grow like a power of the length if
        V has eigenvalues above one half; with the half they never do (docs/memory.md).

    Promise:
        None strict: the contribution of an early state depends on the attention to it. With uniform
        attention and a linear recurrence the gradient decays or grows as a power of the length,
        never exponentially; `undamped.analysis.attention_exponent` returns the power. The state
        grows by one hidden vector per step.

    Args:
        recurrence: The recurrent part, by the name of its network; V of `exprnn` stays a rotation.
        nonlinearity: The function φ; by default that of the recurrence.
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
        """None for past states and their flags, which grow."""
        return (None, None)

    def remember(
        self, projected: Tensor, hidden: Tensor, state: State, memory: State, constants: State
    ) -> tuple[Tensor, State]:
        """Append the new state, and attend to all."""
        past, flags = memory
        past = torch.cat((past, hidden), dim=-1)
        flags = torch.cat((flags, torch.ones_like(hidden[:, :1])), dim=-1).detach()
        states = past.view(hidden.shape[0], -1, self.hidden_size)
        weights = self.weights(state[1], states, flags)
        return (weights.unsqueeze(1) @ states).squeeze(1), (past, flags)

    def as_slots(self, memory: State, batch: int) -> State:
        """Return past states and their flags, with scores of zero."""
        past, flags = memory
        return past.view(batch, -1, self.hidden_size), torch.zeros_like(flags), flags

    def from_slots(self, slots: Tensor, scores: Tensor, flags: Tensor) -> State:
        """Return past states and their flags."""
        return slots.flatten(1), flags

    def _freeze_finished(self, new: State, old: State, running: Tensor) -> State:
        """Add an empty slot to samples that have ended, and a state to the others."""
        *rest, past, flags = new
        earlier = old[-2].shape[1]
        empty = torch.where(running, past[:, earlier:], 0)
        return (
            *(torch.where(running, n, o) for n, o in zip(rest, old, strict=False)),
            torch.cat((past[:, :earlier], empty), dim=-1),
            torch.cat((flags[:, :-1], flags[:, -1:] * running), dim=-1),
        )


class MemLSTMCell(MemRNNCell):
    """MemLSTM: an LSTM that stores all its states and attends to them.

    Equation:
        h_t, m_t = LSTM(s_{t−1}, m_{t−1}, x_t),  s_t = f(h_t, c_t),  c_t = Σ_{i ≤ t} a_i h_i
        a = softmax(e),  e_i = vᵀ tanh(W s_{t−1} + K h_i)

    Symbols:
        h hidden state, m memory cell of the LSTM, s which the gates read in place of h, c context,
        a attention weights; W, K, v trained, f as for MemRNN.

    Args:
        input_std: Standard deviation of the initial input matrix, as for LSTM.
        forget_bias: Initial bias of the forget gate, as for LSTM.

    Example:
        >>> net = undamped.nn.MemLSTM(3, 16)
        >>> output, state = net(torch.randn(50, 4, 3))
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
        self.recurrence.initialise(input_std, forget_bias, "forget_bias")  # type: ignore[operator]


@models.register("memrnn")
class MemRNN(Recurrent):
    cell_class = MemRNNCell


@models.register("memlstm")
class MemLSTM(Recurrent):
    cell_class = MemLSTMCell
