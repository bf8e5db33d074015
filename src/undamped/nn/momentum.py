"""MomentumRNN and MomentumLSTM (Nguyen et al., 2020), with Adam, RMSProp and Nesterov variants.

u is the projected input of a step, filtered as an optimiser filters a gradient; the filtered input
p enters the recurrence. The filters do not depend on the state, so that a whole sequence is
filtered at once, before the recurrence begins.

    momentum   v' = μ v + s u,               p = v'
    Nesterov   v' = k/(k + 3) v + s u,       p = v', k steps since the last restart, below F
    RMSProp    m' = β m + (1 − β) u²,        p = s u/√(m' + δ)
    Adam       both v and m,                 p = v'/√(m' + δ)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from undamped._base.options import Fraction, PositiveFloat, PositiveInt
from undamped.kernels.coupled import coupled_scan, projections, steps
from undamped.nn.bases.cell import ScanResult, State, loop_scan
from undamped.nn.bases.coupled import CoupledCell, runs_compiled
from undamped.nn.recurrent import Recurrent

FilterKind = Literal["momentum", "nesterov", "rmsprop", "adam"]


@dataclass(frozen=True)
class InputFilter:
    """One of the four filters.

    Args:
        kind: The filter.
        momentum: The number μ.
        step: The number s.
        decay: The number β.
        softening: The number δ.
        restart: The number F of steps after which Nesterov's count starts again.
    """

    kind: FilterKind
    momentum: float = 0.0
    step: float = 1.0
    decay: float = 0.0
    softening: float = 1e-6
    restart: int = 1

    def forward(self, u: Tensor, state: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Filter one step: u (batch, …) and the filter's state."""
        if self.kind == "momentum":
            (velocity,) = state
            velocity = self.momentum * velocity + self.step * u
            return velocity, [velocity]
        if self.kind == "nesterov":
            velocity, count = state
            k = self._steps_since_restart(count)
            velocity = k / (k + 3) * velocity + self.step * u
            return velocity, [velocity, torch.remainder(count + 1, self.restart)]
        moment = self.decay * state[-1] + (1 - self.decay) * u * u
        scale = torch.rsqrt(moment + self.softening)
        if self.kind == "rmsprop":
            return self.step * u * scale, [moment]
        velocity = self.momentum * state[0] + self.step * u
        return velocity * scale, [velocity, moment]

    def projection(self, steps: int, state: list[Tensor]) -> projections.Filtered:
        """Return the kernel that projects and filters `steps` steps from a state of the filter."""
        return projections.Filtered(
            self._decays(steps, state),
            (self.step, self.decay, self.softening),
            has_velocity=self.kind != "rmsprop",
            has_moment=self.kind in ("rmsprop", "adam"),
        )

    @property
    def counts(self) -> bool:
        """Whether the last tensor of the state is a count of steps, which no kernel needs."""
        return self.kind == "nesterov"

    def _decays(self, steps: int, state: list[Tensor]) -> Tensor:
        """Return the factors of the velocity, (time, batch)."""
        if not self.counts:
            return state[0].new_full((steps, state[0].shape[0]), self.momentum)
        time = torch.arange(steps, device=state[1].device).unsqueeze(1)
        k = torch.remainder(self._steps_since_restart(state[1]).squeeze(1) + time, self.restart)
        return k / (k + 3)

    def _steps_since_restart(self, count: Tensor) -> Tensor:
        """Return the steps since the last restart of each sequence, (batch, 1)."""
        return torch.remainder(count[:, :1].detach().round(), self.restart)


class MomentumCell(CoupledCell):
    """A step h' = tanh(U h + p) with the filtered input p.

    Promise:
        None.

    Args:
        input_filter: The filter.

    Reference:
        T. M. Nguyen, R. G. Baraniuk, A. L. Bertozzi, S. J. Osher, B. Wang. MomentumRNN: integrating
        momentum into recurrent neural networks. NeurIPS, 2020.
    """

    needs_full_precision = True
    kernel = steps.Tanh()
    blocks: ClassVar[int] = 1
    recurrent_tensors: ClassVar[int] = 1
    """Number of tensors of the state that do not belong to the filter."""

    def __init__(self, input_size: int, hidden_size: int, input_filter: InputFilter) -> None:
        super().__init__(input_size, hidden_size)
        self.input_filter = input_filter
        bound = hidden_size**-0.5
        self.weight_ih = nn.Parameter(torch.empty(self.blocks * hidden_size, input_size))
        self.weight_hh = nn.Parameter(torch.empty(self.blocks * hidden_size, hidden_size))
        self.bias_ih = nn.Parameter(torch.empty(self.blocks * hidden_size))
        nn.init.orthogonal_(self.weight_ih)
        nn.init.orthogonal_(self.weight_hh)
        nn.init.uniform_(self.bias_ih, -bound, bound)

    def recurrent_matrices(self) -> tuple[Tensor, ...]:
        return self.weight_hh.chunk(self.blocks)

    def input_tensors(self) -> State:
        return self.weight_ih, self.bias_ih

    def advance(self, projected: Tensor, state: State, constants: State) -> State:
        """Filter the input, then make a step."""
        p, filtered = self.input_filter.forward(projected, self._filter_state(state))
        return *self.advance_filtered(p, state, constants), *self._split_filter(filtered)

    def advance_filtered(self, p: Tensor, state: State, constants: State) -> State:
        """Return tanh(U h + p)."""
        return (torch.tanh(p + F.linear(state[0], constants[0])),)

    def _filter_state(self, state: State) -> list[Tensor]:
        """Return the tensors of the filter, with those of all blocks concatenated."""
        rest = state[self.recurrent_tensors :]
        return [
            torch.cat(rest[i : i + self.blocks], dim=-1) if self.blocks > 1 else rest[i]
            for i in range(0, len(rest), self.blocks)
        ]

    def _split_filter(self, filtered: list[Tensor]) -> State:
        return tuple(part for tensor in filtered for part in tensor.chunk(self.blocks, dim=-1))

    def scan(self, x: Tensor, state: State, lengths: Tensor | None = None) -> ScanResult:
        """Filter and scan with the fused kernels."""
        constants = self.cached_constants()
        if not x.shape[1] or not runs_compiled(x, *state, *constants):
            return loop_scan(self, x, state, lengths)
        filters = self._filter_state(state)
        without_count = filters[:-1] if self.input_filter.counts else filters
        output, final = coupled_scan(
            self.elementwise(),
            self.operator(),
            self.input_filter.projection(x.shape[0], filters),
            x,
            state[: self.recurrent_tensors],
            input_tensors=self.input_tensors(),
            linear=constants[:1],
            filters=tuple(without_count),
            lengths=lengths,
        )
        hidden, filtered = final[: self.recurrent_tensors], list(final[self.recurrent_tensors :])
        if self.input_filter.counts:
            count = x.shape[0] if lengths is None else lengths.to(x).unsqueeze(-1)
            # The count starts again, because float32 cannot count the steps of a long stream.
            filtered.append(torch.remainder(filters[-1] + count, self.input_filter.restart))
        return output, (*hidden, *self._split_filter(filtered))


class MomentumFilter(MomentumCell):
    """The options of momentum-rnn and momentum-lstm, whose input is a velocity.

    Args:
        momentum: The number μ; the paper: 0.6 on MNIST, 0.3 on TIMIT.
        step: The number s; the paper: 0.6 on sequential and 1 on permuted MNIST, 0.1 on TIMIT.
    """

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        momentum: Fraction = 0.6,
        step: PositiveFloat = 0.6,
    ) -> None:
        super().__init__(input_size, hidden_size, InputFilter("momentum", momentum, step))


class NesterovFilter(MomentumCell):
    """The options of nesterov-rnn and nesterov-lstm, whose momentum restarts.

    Args:
        step: The number s.
        restart: The number F.
    """

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        step: PositiveFloat = 0.6,
        restart: PositiveInt = 40,
    ) -> None:
        super().__init__(
            input_size, hidden_size, InputFilter("nesterov", step=step, restart=restart)
        )


class RMSPropFilter(MomentumCell):
    """The options of rmsprop-rnn and rmsprop-lstm, whose input is divided by its running size.

    Args:
        step: The number s.
        decay: The number β.
        softening: The number δ. The authors use 1e-16, with which an input of exactly zero has a
            slope of 1e8.
    """

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        step: PositiveFloat = 0.6,
        decay: Fraction = 0.9,
        softening: PositiveFloat = 1e-6,
    ) -> None:
        input_filter = InputFilter("rmsprop", step=step, decay=decay, softening=softening)
        super().__init__(input_size, hidden_size, input_filter)


class AdamFilter(MomentumCell):
    """The options of adam-rnn and adam-lstm: a velocity divided by the running size of the input.

    Args:
        momentum: The number μ.
        step: The number s.
        decay: The number β.
        softening: The number δ. The authors use 1e-16, with which an input of exactly zero has a
            slope of 1e8.
    """

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        momentum: Fraction = 0.6,
        step: PositiveFloat = 0.6,
        decay: Fraction = 0.999,
        softening: PositiveFloat = 1e-6,
    ) -> None:
        input_filter = InputFilter("adam", momentum, step, decay, softening)
        super().__init__(input_size, hidden_size, input_filter)


class MomentumLSTMBase(MomentumCell):
    """An LSTM whose gates read filtered inputs.

    Symbols:
        h hidden state, c memory, v velocity of each gate, m running mean of squares, x input, W
        input matrix, U recurrent matrix, b and d biases, μ momentum, s step, β decay of m, δ
        softening, t steps so far, F steps between restarts.
    """

    kernel = steps.LongShort()
    blocks = 4
    recurrent_tensors = 2

    def __init__(self, input_size: int, hidden_size: int, input_filter: InputFilter) -> None:
        super().__init__(input_size, hidden_size, input_filter)
        self.bias_hh = nn.Parameter(torch.zeros(4 * hidden_size))
        # As in the authors' program: the identity for the input gate only, and a forget bias of one
        # in both biases.
        nn.init.eye_(self.weight_hh)
        nn.init.zeros_(self.bias_ih)
        for bias in (self.bias_ih, self.bias_hh):
            nn.init.ones_(bias[hidden_size : 2 * hidden_size])

    def input_tensors(self) -> State:
        """Return W, b, and the bias that is added after the filter."""
        return self.weight_ih, self.bias_ih, self.bias_hh

    def project(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight_ih, self.bias_ih)

    def advance_filtered(self, p: Tensor, state: State, constants: State) -> State:
        hidden, memory = state[:2]
        gates = p + self.bias_hh + F.linear(hidden, constants[0])
        i, f, g, o = gates.chunk(4, dim=-1)
        memory = torch.sigmoid(f) * memory + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(memory), memory


def _lstm_names(*filtered: str) -> tuple[str, ...]:
    """Return the names of the state: the LSTM's two, and those of the filter for each gate."""
    gates = ("input", "forget", "candidate", "output")
    return ("hidden", "memory", *(f"{gate} {name}" for name in filtered for gate in gates))


class MomentumRNNCell(MomentumFilter):
    """MomentumRNN: the input enters through a velocity, as in the heavy-ball method.

    Equation:
        v' = μ v + s (W x + b),  h' = tanh(U h + v')

    Symbols:
        h hidden state, v velocity, x input, U recurrent matrix, W input matrix, b bias, μ
        momentum, s step.

    Promise:
        As a function of h only, ∂h'/∂h = D (U + μΣ) with Σ the slope of arctanh, at least one: the
        gradient vanishes more slowly than D U of the RNN.

    Example:
        >>> net = undamped.nn.MomentumRNN(3, 16)
        >>> output, (h, v) = net(torch.randn(50, 4, 3))
    """

    state_names = ("hidden", "velocity")


class NesterovRNNCell(NesterovFilter):
    """Nesterov RNN: momentum that grows from step to step, with restarts.

    Equation:
        v' = k/(k + 3) v + s (W x + b),  h' = tanh(U h + v'),  k = t mod F

    Symbols:
        As in momentum-rnn; t steps so far, F steps between restarts.

    Promise:
        None strict; within a cycle as momentum-rnn.

    Example:
        >>> net = undamped.nn.NesterovRNN(3, 16, restart=40)
        >>> output, (h, v, count) = net(torch.randn(50, 4, 3))
    """

    state_names = ("hidden", "velocity", "count")


class RMSPropRNNCell(RMSPropFilter):
    """RMSProp RNN: the input is divided by its running root mean square.

    Equation:
        u = W x + b,  m' = β m + (1 − β) u²,  h' = tanh(U h + s u/√(m' + δ))

    Symbols:
        As in momentum-rnn; m running mean of squares, β its decay, δ softening.

    Example:
        >>> net = undamped.nn.RMSPropRNN(3, 16)
        >>> output, (h, m) = net(torch.randn(50, 4, 3))
    """

    state_names = ("hidden", "moment")


class AdamRNNCell(AdamFilter):
    """Adam RNN: a velocity divided by the running root mean square of the input.

    Equation:
        u = W x + b,  v' = μ v + s u,  m' = β m + (1 − β) u²,  h' = tanh(U h + v'/√(m' + δ))

    Symbols:
        As in momentum-rnn and rmsprop-rnn.

    Example:
        >>> net = undamped.nn.AdamRNN(3, 16)
        >>> output, (h, v, m) = net(torch.randn(50, 4, 3))
    """

    state_names = ("hidden", "velocity", "moment")


class MomentumLSTMCell(MomentumFilter, MomentumLSTMBase):
    """MomentumLSTM: the input of every gate enters through a velocity.

    Equation:
        v' = μ v + s (W x + b),  (i, f, g, o) = v' + U h + d
        c' = σ̂(f) ⊙ c + σ̂(i) ⊙ tanh(g),  h' = σ̂(o) ⊙ tanh(c')
    """

    state_names = _lstm_names("velocity")


class NesterovLSTMCell(NesterovFilter, MomentumLSTMBase):
    """Nesterov LSTM (SRLSTM in the paper): momentum that grows, with restarts.

    This is the equation of the paper; the authors' program has (k − 1)/(k + 2), of U h − s W x.

    Equation:
        v' = k/(k + 3) v + s (W x + b),  k = t mod F,  then as momentum-lstm

    Example:
        >>> net = undamped.nn.NesterovLSTM(3, 16, restart=40)
        >>> output, state = net(torch.randn(50, 4, 3))
    """

    state_names = _lstm_names("velocity", "count")


class RMSPropLSTMCell(RMSPropFilter, MomentumLSTMBase):
    """RMSProp LSTM: the input of every gate is divided by its running root mean square.

    Equation:
        u = W x + b,  m' = β m + (1 − β) u²,  p = s u/√(m' + δ),  then as momentum-lstm with p
    """

    state_names = _lstm_names("moment")


class AdamLSTMCell(AdamFilter, MomentumLSTMBase):
    """Adam LSTM: a velocity divided by the running root mean square of the input, for every gate.

    Equation:
        u = W x + b,  v' = μ v + s u,  m' = β m + (1 − β) u²,  p = v'/√(m' + δ)
        then as momentum-lstm with p
    """

    state_names = _lstm_names("velocity", "moment")


class MomentumRNN(Recurrent, cell=MomentumRNNCell, name="momentum-rnn"): ...


class NesterovRNN(Recurrent, cell=NesterovRNNCell, name="nesterov-rnn"): ...


class RMSPropRNN(Recurrent, cell=RMSPropRNNCell, name="rmsprop-rnn"): ...


class AdamRNN(Recurrent, cell=AdamRNNCell, name="adam-rnn"): ...


class MomentumLSTM(Recurrent, cell=MomentumLSTMCell, name="momentum-lstm"): ...


class NesterovLSTM(Recurrent, cell=NesterovLSTMCell, name="nesterov-lstm"): ...


class RMSPropLSTM(Recurrent, cell=RMSPropLSTMCell, name="rmsprop-lstm"): ...


class AdamLSTM(Recurrent, cell=AdamLSTMCell, name="adam-lstm"): ...
