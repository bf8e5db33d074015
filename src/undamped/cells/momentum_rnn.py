"""MomentumRNN (Nguyen et al., 2020) and its Adam, RMSProp and Nesterov variants."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from undamped.cells.cell import State, reference_scan
from undamped.cells.coupled_cell import CoupledCell, runs_compiled
from undamped.cells.momentum_drive import Drive
from undamped.kernels.coupled import coupled_scan
from undamped.options import Fraction, PositiveFloat, PositiveInt
from undamped.promises import Kind, Promise

if TYPE_CHECKING:
    from undamped.kernels.coupled import Step


class MomentumCell(CoupledCell):
    """What the four variants share: h' = tanh(U h + p), p the filtered input.

    Args:
        input_size: Number of features of the input at each step.
        hidden_size: Number of hidden units.
        drive: The filter.
    """

    dense = True
    blocks: ClassVar[int] = 1

    def __init__(self, input_size: PositiveInt, hidden_size: PositiveInt, drive: Drive) -> None:
        super().__init__(input_size, hidden_size)
        self.drive = drive
        bound = hidden_size**-0.5
        self.weight_ih = nn.Parameter(torch.empty(self.blocks * hidden_size, input_size))
        self.weight_hh = nn.Parameter(torch.empty(self.blocks * hidden_size, hidden_size))
        self.bias_ih = nn.Parameter(torch.empty(self.blocks * hidden_size))
        nn.init.orthogonal_(self.weight_ih)
        nn.init.orthogonal_(self.weight_hh)
        nn.init.uniform_(self.bias_ih, -bound, bound)

    def recurrent_matrices(self) -> tuple[Tensor, ...]:
        """U, block by block."""
        return self.weight_hh.chunk(self.blocks)

    def constants(self) -> State:
        """U."""
        return (self.weight_hh,)

    def input_tensors(self) -> State:
        """W and b."""
        return self.weight_ih, self.bias_ih

    def advance(self, projected: Tensor, state: State, constants: State) -> State:
        """Filter the input, then step."""
        pushed, filtered = self.drive.forward(projected, self._filter_state(state))
        base = self.advance_driven(pushed, state, constants)
        return *base, *self._split_filter(filtered)

    def advance_driven(self, pushed: Tensor, state: State, constants: State) -> State:
        """tanh(U h + p)."""
        return (torch.tanh(pushed + F.linear(state[0], constants[0])),)

    @property
    def _own(self) -> int:
        """How many tensors of the state are not the filter's."""
        return 1

    def _filter_state(self, state: State) -> list[Tensor]:
        """Put the filter's tensors, one per block, side by side."""
        rest = state[self._own :]
        return [
            torch.cat(rest[i : i + self.blocks], dim=-1) if self.blocks > 1 else rest[i]
            for i in range(0, len(rest), self.blocks)
        ]

    def _split_filter(self, filtered: list[Tensor]) -> State:
        return tuple(part for tensor in filtered for part in tensor.chunk(self.blocks, dim=-1))

    def elementwise(self) -> Step:
        """The kernel of tanh."""
        from undamped.kernels.coupled_activation import Tanh

        return Tanh()

    def scan(self, x: Tensor, state: State, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        """Filter and walk through time with the fused kernels."""
        constants = self.steady_constants()
        if not runs_compiled(x, *state, *constants):
            return reference_scan(self, x, state, lengths)
        filters = self._filter_state(state)
        kept = filters[:-1] if self.drive.counts else filters
        output, final = coupled_scan(
            self.elementwise(),
            self.operator(),
            self.drive.projection(len(x), filters),
            x,
            state[: self._own],
            input_tensors=self.input_tensors(),
            linear=constants[:1],
            filters=tuple(kept),
            lengths=lengths,
        )
        own, filtered = final[: self._own], list(final[self._own :])
        if self.drive.counts:
            made = len(x) if lengths is None else lengths.to(x).unsqueeze(-1)
            filtered.append(filters[-1] + made)
        return output, (*own, *self._split_filter(filtered))


class MomentumRNNCell(MomentumCell):
    """MomentumRNN: the input enters through a velocity, as in the heavy-ball method.

    Equation:
        v' = μ v + s (W x + b),  h' = tanh(U h + v')

    Symbols:
        h hidden state, v velocity, x input, U recurrent matrix, W input matrix, b bias, μ
        momentum, s step.

    Promise:
        Written in h alone, ∂h'/∂h = D (U + μΣ) with Σ the slope of arctanh, at least one: the
        gradient vanishes more slowly than the RNN's D U.

    Args:
        input_size: Number of features of the input at each step.
        hidden_size: Number of hidden units.
        momentum: The number μ.
        step: The number s.

    Example:
        >>> net = undamped.MomentumRNN(3, 16)
        >>> output, (h, v) = net(torch.randn(50, 4, 3))

    Reference:
        T. M. Nguyen, R. G. Baraniuk, A. L. Bertozzi, S. J. Osher, B. Wang. MomentumRNN: integrating
        momentum into recurrent neural networks. NeurIPS, 2020.
    """

    promises = (
        Promise(Kind.SLOWER_VANISHING, "early inputs reach the state more than with μ = 0"),
    )
    state_names = ("hidden", "velocity")

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        momentum: Fraction = 0.6,
        step: PositiveFloat = 0.6,
    ) -> None:
        super().__init__(input_size, hidden_size, Drive("momentum", momentum, step))


class NesterovRNNCell(MomentumCell):
    """Nesterov RNN: momentum that grows from step to step, and starts again now and then.

    Equation:
        v' = k/(k + 3) v + s (W x + b),  h' = tanh(U h + v'),  k = t mod F

    Symbols:
        As in momentum-rnn; t steps so far, F steps between restarts.

    Promise:
        None strict; within a cycle as momentum-rnn.

    Args:
        input_size: Number of features of the input at each step.
        hidden_size: Number of hidden units.
        step: The number s.
        restart: The number F.

    Example:
        >>> net = undamped.NesterovRNN(3, 16, restart=40)
        >>> output, (h, v, count) = net(torch.randn(50, 4, 3))

    Reference:
        T. M. Nguyen, R. G. Baraniuk, A. L. Bertozzi, S. J. Osher, B. Wang. MomentumRNN: integrating
        momentum into recurrent neural networks. NeurIPS, 2020.
    """

    state_names = ("hidden", "velocity", "count")

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        step: PositiveFloat = 0.6,
        restart: PositiveInt = 40,
    ) -> None:
        super().__init__(input_size, hidden_size, Drive("nesterov", step=step, restart=restart))


class RMSPropRNNCell(MomentumCell):
    """RMSProp RNN: the input enters divided by its running size.

    Equation:
        u = W x + b,  m' = β m + (1 − β) u²,  h' = tanh(U h + s u/√(m' + δ))

    Symbols:
        As in momentum-rnn; m running mean of squares, β its decay, δ against zero.

    Promise:
        None strict.

    Args:
        input_size: Number of features of the input at each step.
        hidden_size: Number of hidden units.
        step: The number s.
        decay: The number β.
        softening: The number δ. The authors have 1e-16, with which an input of exactly zero
            has a slope of 1e8.

    Example:
        >>> net = undamped.RMSPropRNN(3, 16)
        >>> output, (h, m) = net(torch.randn(50, 4, 3))

    Reference:
        T. M. Nguyen, R. G. Baraniuk, A. L. Bertozzi, S. J. Osher, B. Wang. MomentumRNN: integrating
        momentum into recurrent neural networks. NeurIPS, 2020.
    """

    state_names = ("hidden", "moment")

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        step: PositiveFloat = 0.6,
        decay: Fraction = 0.9,
        softening: PositiveFloat = 1e-6,
    ) -> None:
        drive = Drive("rmsprop", step=step, decay=decay, softening=softening)
        super().__init__(input_size, hidden_size, drive)


class AdamRNNCell(MomentumCell):
    """Adam RNN: a velocity divided by the running size of the input.

    Equation:
        u = W x + b,  v' = μ v + s u,  m' = β m + (1 − β) u²,  h' = tanh(U h + v'/√(m' + δ))

    Symbols:
        As in momentum-rnn and rmsprop-rnn.

    Promise:
        None strict.

    Args:
        input_size: Number of features of the input at each step.
        hidden_size: Number of hidden units.
        momentum: The number μ.
        step: The number s.
        decay: The number β.
        softening: The number δ. The authors have 1e-16, with which an input of exactly zero
            has a slope of 1e8.

    Example:
        >>> net = undamped.AdamRNN(3, 16)
        >>> output, (h, v, m) = net(torch.randn(50, 4, 3))

    Reference:
        T. M. Nguyen, R. G. Baraniuk, A. L. Bertozzi, S. J. Osher, B. Wang. MomentumRNN: integrating
        momentum into recurrent neural networks. NeurIPS, 2020.
    """

    state_names = ("hidden", "velocity", "moment")

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
        drive = Drive("adam", momentum, step, decay, softening)
        super().__init__(input_size, hidden_size, drive)
