"""Attention to past states: MemRNN and MemLSTM to all, RelRNN and RelLSTM to the relevant ones.

The attention is that of Bahdanau et al. (2014), the networks are those of Kerg et al. (2020).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from undamped._base.options import NonNegativeInt, PositiveFloat, PositiveInt
from undamped.nn.bases.cell import MemoryPlan, State
from undamped.nn.bases.memory import (
    Alignment,
    MemoryCell,
    Mix,
    Nonlinearity,
    recurrence_of,
    weights_of,
)
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


Screening = Literal["attention", "share", "surprise", "learned"]
SCREENED_BY = {
    "attention": "BY_ATTENTION",
    "share": "BY_SHARE",
    "surprise": "BY_SURPRISE",
    "learned": "BY_SCORE",
}


class RelRNNCell(MemoryCell):
    """RelRNN: an RNN that attends to its last ν states and to the ρ most relevant ones.

    Equation:
        h_t = φ(V s_{t−1} + U x_t + b),  s_t = f(h_t, c_t),  c_t = Σ a_i m_i over recent and kept
        a = softmax(e),  e_i = vᵀ tanh(W s_{t−1} + K m_i)
        h_i leaves the recent ones after ν steps; it is kept if there are fewer than ρ kept ones, or
        if its relevance is above the least of theirs, which it replaces.

    Symbols:
        h hidden state, s which the next step reads in its place, c context, a attention weights,
        m_i the stored states, ν number of recent ones, ρ number of kept ones, V recurrent matrix
        (initially a rotation), U input matrix; W, K, v trained; f as for MemRNN. Relevance β_i is
        the attention that h_i received while it was recent.

    Promise:
        The state has a fixed size for any length of the sequence. As long as a state is kept, s
        reads it directly: the gradient has a path of one step to it, with the attention weight
        (half of it for (h + c)/2) as its factor. The selection of states has no gradient.

    Args:
        recent: The number ν of last states that are attended to, the newest included.
        relevant: The number ρ of relevant states; with 0 there are only the recent ones.
        screening: The relevance of a state: attention is β; share is β with every weight multiplied
            by the number of states attended to, without which the first states have an advantage;
            surprise is the distance from the state that the expected input, a running mean over
            about ν steps, would have given; learned is a trained score, which the attention adds as
            log σ̂(score).
        recurrence: The recurrent part, by the name of its network; V of `exprnn` stays a rotation.
        nonlinearity: The function φ; by default that of the recurrence.
        attention: Additive, as in the equation, or a scaled dot product (W s)ᵀ(K m_i)/√n.
        mix: The function f: half is (h + c)/2, sum is h + c, learned is a matrix times both.

    Example:
        >>> net = undamped.nn.RelRNN(3, 16, recent=5, relevant=5)
        >>> output, state = net(torch.randn(50, 4, 3))

    Reference:
        G. Kerg, B. Kanuparthi, A. Goyal, K. Goyette, Y. Bengio, G. Lajoie. Untangling tradeoffs
        between recurrence and self-attention in neural networks. NeurIPS, 2020.
    """

    state_names = (
        "hidden",
        "mixed",
        "recent",
        "recent_score",
        "recent_seen",
        "relevant",
        "relevant_score",
        "relevant_seen",
    )
    memory_names = state_names[2:]

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        recent: PositiveInt = 10,
        relevant: NonNegativeInt = 10,
        screening: Screening = "attention",
        recurrence: str = "rnn-orth",
        nonlinearity: Nonlinearity | None = None,
        attention: Alignment = "additive",
        mix: Mix = "half",
    ) -> None:
        inner = recurrence_of(recurrence, input_size, hidden_size, nonlinearity)
        super().__init__(input_size, hidden_size, inner, attention, mix)
        self.recent, self.relevant = recent, relevant
        self.screening: Screening = screening
        self.screened_by = SCREENED_BY[screening]
        self.relevance = nn.Linear(hidden_size, 1) if screening == "learned" else None
        self.expects = screening == "surprise"
        if self.expects:
            self.state_names = (*self.state_names, "expected")

    @property
    def memory_sizes(self) -> tuple[int | None, ...]:
        """States, scores and flags of the recent and of the kept ones; what is expected."""
        slots = (
            n * size for n in (self.recent, self.relevant) for size in (self.hidden_size, 1, 1)
        )
        if not self.expects:
            return tuple(slots)
        with torch.no_grad():
            return (*slots, self._silence().shape[1])

    def constants(self) -> State:
        """Return those of the recurrence, and for surprise its projection of an input of zeros."""
        return (*super().constants(), *((self._silence(),) if self.expects else ()))

    def _silence(self) -> Tensor:
        weight = next(self.recurrence.parameters())
        return self.recurrence.project(weight.new_zeros(1, self.input_size))

    def remember(
        self, projected: Tensor, hidden: Tensor, state: State, memory: State, constants: State
    ) -> tuple[Tensor, State]:
        """Move the oldest recent state to the kept ones if it is relevant, and attend to all."""
        batch = hidden.shape[0]
        shapes = (batch, -1, self.hidden_size)
        recent, recent_score, recent_seen, relevant, kept_score, kept_seen = memory[:6]
        recent, relevant = recent.view(shapes), relevant.view(shapes)
        relevant, kept_score, kept_seen = screen(
            (relevant, kept_score, kept_seen), (recent[:, 0], recent_score[:, 0], recent_seen[:, 0])
        )
        first = self._first_score(hidden, state, constants).detach()
        recent = torch.cat((recent[:, 1:], hidden.unsqueeze(1)), dim=1)
        recent_score = torch.cat((recent_score[:, 1:], first), dim=1)
        recent_seen = torch.cat((recent_seen[:, 1:], torch.ones_like(first)), dim=1)
        states = torch.cat((recent, relevant), dim=1)
        occupied = torch.cat((recent_seen, kept_seen), dim=1) != 0
        weights = self.weights(state[1], states, occupied)
        if self.screening in ("attention", "share"):
            received = weights[:, : self.recent].detach()
            if self.screening == "share":
                received = received * occupied.sum(1, keepdim=True)
            recent_score = recent_score + received
        context = (weights.unsqueeze(1) @ states).squeeze(1)
        return context, (
            recent.flatten(1),
            recent_score.detach(),
            recent_seen.detach(),
            relevant.flatten(1),
            kept_score.detach(),
            kept_seen.detach(),
            *self._expectation(projected, memory, constants),
        )

    def weights(self, query: Tensor, states: Tensor, flags: Tensor) -> Tensor:
        """Return the softmax of scores, to which the logarithm of a learned relevance is added."""
        if self.relevance is None:
            return super().weights(query, states, flags)
        gates = F.logsigmoid(self.relevance(states).squeeze(-1))
        return weights_of(self.attention.scores(query, states) + gates, flags != 0)

    def as_slots(self, memory: State, batch: int) -> State:
        """Return recent and kept states, concatenated."""
        recent, recent_score, recent_seen, relevant, kept_score, kept_seen = memory[:6]
        states = torch.cat((recent, relevant), dim=1).view(batch, -1, self.hidden_size)
        return (
            states,
            torch.cat((recent_score, kept_score), dim=1),
            torch.cat((recent_seen, kept_seen), dim=1),
        )

    def from_slots(self, slots: Tensor, scores: Tensor, flags: Tensor) -> State:
        """Return the recent states, then the kept ones."""
        parts = (slots.flatten(1), scores, flags)
        sizes = ((self.recent * n, self.relevant * n) for n in (self.hidden_size, 1, 1))
        pairs = [part.split(size, dim=1) for part, size in zip(parts, sizes, strict=True)]
        return tuple(pair[at] for at in range(2) for pair in pairs)

    def screening_tensors(self) -> dict[str, Tensor]:
        """Return the learned score, or the projection of an input of zeros."""
        if self.relevance is not None:
            return {"relevance": torch.cat((self.relevance.weight[0], self.relevance.bias))}
        return {"silence": self._silence()} if self.expects else {}

    def _first_score(self, hidden: Tensor, state: State, constants: State) -> Tensor:
        """Return the initial relevance of a state, (batch, 1)."""
        if self.relevance is not None:
            return self.relevance(hidden)
        if not self.expects:
            return torch.zeros_like(hidden[:, :1])
        mixed, cell_state, memory = self.split(state)
        *recurrent_constants, silence = constants
        expected = self.recurrence.advance(
            silence + memory[-1], (mixed, *cell_state), tuple(recurrent_constants)
        )
        return (hidden - expected[0]).square().sum(1, keepdim=True)

    def _expectation(self, projected: Tensor, memory: State, constants: State) -> State:
        """Return the running mean of projected inputs, updated by the present one.

        It is stored minus the projection of zeros, so that zero is the mean of no inputs.
        """
        if not self.expects:
            return ()
        expected = memory[-1]
        return ((expected + (projected - constants[-1] - expected) / self.recent).detach(),)


class RelLSTMCell(RelRNNCell):
    """RelLSTM: an LSTM that attends to its last ν states and to the ρ most relevant ones.

    Equation:
        h_t, m_t = LSTM(s_{t−1}, m_{t−1}, x_t),  s_t = f(h_t, c_t),  c_t = Σ a_i h_i
        over recent and kept states; attention and relevance as for RelRNN

    Symbols:
        h hidden state, m memory cell of the LSTM, s which the gates read in place of h, c context,
        a attention weights, f as for MemRNN.

    Args:
        input_std: Standard deviation of the initial input matrix, as for LSTM.
        forget_bias: Initial bias of the forget gate, as for LSTM.

    Example:
        >>> net = undamped.nn.RelLSTM(3, 16, recent=5, relevant=5)
        >>> output, state = net(torch.randn(50, 4, 3))
    """

    state_names = (*RelRNNCell.state_names[:2], "memory", *RelRNNCell.state_names[2:])

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        recent: PositiveInt = 10,
        relevant: NonNegativeInt = 10,
        screening: Screening = "attention",
        attention: Alignment = "additive",
        mix: Mix = "half",
        input_std: PositiveFloat | None = None,
        forget_bias: float | None = None,
    ) -> None:
        options = {"recent": recent, "relevant": relevant, "attention": attention, "mix": mix}
        super().__init__(input_size, hidden_size, screening=screening, recurrence="lstm", **options)
        self.recurrence.initialise(input_std, forget_bias, "forget_bias")  # type: ignore[operator]


def screen(relevant: State, leaving: State) -> State:
    """Return the kept states after one leaves the recent ones, which replaces the least relevant.

    It replaces an empty slot if there is one, and none if it is less relevant than all of them.

    Args:
        relevant: The kept states (batch, slots, hidden), scores and flags (batch, slots).
        leaving: One state (batch, hidden), its score and its flag (batch,).
    """
    states, scores, flags = relevant
    if not states.shape[1]:
        return relevant
    state, score, flag = leaving
    least, slot_index = scores.masked_fill(flags == 0, -torch.inf).min(dim=1)
    enters = (flag != 0) & (score > least)
    slot = torch.arange(states.shape[1], device=states.device) == slot_index.unsqueeze(1)
    replaced = slot & enters.unsqueeze(1)
    return (
        torch.where(replaced.unsqueeze(-1), state.unsqueeze(1), states),
        torch.where(replaced, score.unsqueeze(1), scores),
        torch.where(replaced, flag.unsqueeze(1), flags),
    )


class MemRNN(Recurrent, cell=MemRNNCell, name="memrnn"): ...


class MemLSTM(Recurrent, cell=MemLSTMCell, name="memlstm"): ...


class RelRNN(Recurrent, cell=RelRNNCell, name="relrnn"): ...


class RelLSTM(Recurrent, cell=RelLSTMCell, name="rellstm"): ...
