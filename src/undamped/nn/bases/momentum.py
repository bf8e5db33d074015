"""What the momentum networks share: a recurrence behind a filter, and options of each filter."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from undamped._base.options import Fraction, PositiveFloat, PositiveInt
from undamped.kernels.coupled import Step, coupled_scan, steps
from undamped.nn.bases.cell import State, loop_scan
from undamped.nn.bases.coupled import CoupledCell, runs_compiled
from undamped.nn.bases.momentum_filter import Drive


class MomentumCell(CoupledCell):
    """What all variants share: h' = tanh(U h + p), p the filtered input.

    Args:
        input_size: Number of features of the input at each step.
        hidden_size: Number of hidden units.
        drive: The filter.
    """

    dense = True
    needs_full_precision = True
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
        return steps.Tanh()

    def scan(self, x: Tensor, state: State, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        """Filter and scan with the fused kernels."""
        constants = self.steady_constants()
        if not x.shape[1] or not runs_compiled(x, *state, *constants):
            return loop_scan(self, x, state, lengths)
        filters = self._filter_state(state)
        kept = filters[:-1] if self.drive.counts else filters
        output, final = coupled_scan(
            self.elementwise(),
            self.operator(),
            self.drive.projection(x.shape[0], filters),
            x,
            state[: self._own],
            input_tensors=self.input_tensors(),
            linear=constants[:1],
            filters=tuple(kept),
            lengths=lengths,
        )
        own, filtered = final[: self._own], list(final[self._own :])
        if self.drive.counts:
            made = x.shape[0] if lengths is None else lengths.to(x).unsqueeze(-1)
            filtered.append(filters[-1] + made)
        return output, (*own, *self._split_filter(filtered))


class MomentumDriven(MomentumCell):
    """Input through a velocity: the options of momentum-rnn and momentum-lstm."""

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        momentum: Fraction = 0.6,
        step: PositiveFloat = 0.6,
    ) -> None:
        super().__init__(input_size, hidden_size, Drive("momentum", momentum, step))


class NesterovDriven(MomentumCell):
    """Momentum with restarts: the options of nesterov-rnn and nesterov-lstm."""

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        step: PositiveFloat = 0.6,
        restart: PositiveInt = 40,
    ) -> None:
        super().__init__(input_size, hidden_size, Drive("nesterov", step=step, restart=restart))


class RMSPropDriven(MomentumCell):
    """Input over its running size: the options of rmsprop-rnn and rmsprop-lstm."""

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


class AdamDriven(MomentumCell):
    """Both: the options of adam-rnn and adam-lstm."""

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
