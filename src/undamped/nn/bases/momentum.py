"""Base classes of the momentum networks: a recurrence whose input is filtered like a gradient.

u is the projected input of a step, treated as an optimiser treats a gradient; the drive p is what
enters the recurrence. The filters do not depend on the state, so that a whole sequence is filtered
at once, before the recurrence begins.

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
from undamped.kernels.coupled import Step, coupled_scan, projections, steps
from undamped.nn.bases.cell import State, loop_scan
from undamped.nn.bases.coupled import CoupledCell, runs_compiled

DriveKind = Literal["momentum", "nesterov", "rmsprop", "adam"]


@dataclass(frozen=True)
class Drive:
    """One of the four filters.

    Args:
        kind: Which one.
        momentum: The number μ.
        step: The number s.
        decay: The number β.
        softening: The number δ.
        restart: The number F of steps after which Nesterov's count starts again.
    """

    kind: DriveKind
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
            return velocity, [velocity, count + 1]
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

    Args:
        drive: The filter.
    """

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
        drive, filtered = self.drive.forward(projected, self._filter_state(state))
        base = self.advance_driven(drive, state, constants)
        return *base, *self._split_filter(filtered)

    def advance_driven(self, drive: Tensor, state: State, constants: State) -> State:
        """tanh(U h + p)."""
        return (torch.tanh(drive + F.linear(state[0], constants[0])),)

    @property
    def _recurrent_tensors(self) -> int:
        """Number of tensors of the state that do not belong to the filter."""
        return 1

    def _filter_state(self, state: State) -> list[Tensor]:
        """Return the tensors of the filter, with those of all blocks concatenated."""
        rest = state[self._recurrent_tensors :]
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
        constants = self.cached_constants()
        if not x.shape[1] or not runs_compiled(x, *state, *constants):
            return loop_scan(self, x, state, lengths)
        filters = self._filter_state(state)
        without_count = filters[:-1] if self.drive.counts else filters
        output, final = coupled_scan(
            self.elementwise(),
            self.operator(),
            self.drive.projection(x.shape[0], filters),
            x,
            state[: self._recurrent_tensors],
            input_tensors=self.input_tensors(),
            linear=constants[:1],
            filters=tuple(without_count),
            lengths=lengths,
        )
        hidden, filtered = final[: self._recurrent_tensors], list(final[self._recurrent_tensors :])
        if self.drive.counts:
            count = x.shape[0] if lengths is None else lengths.to(x).unsqueeze(-1)
            filtered.append(filters[-1] + count)
        return output, (*hidden, *self._split_filter(filtered))


class MomentumDriven(MomentumCell):
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
        super().__init__(input_size, hidden_size, Drive("momentum", momentum, step))


class NesterovDriven(MomentumCell):
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
        super().__init__(input_size, hidden_size, Drive("nesterov", step=step, restart=restart))


class RMSPropDriven(MomentumCell):
    """The options of rmsprop-rnn and rmsprop-lstm, whose input is divided by its running size.

    Args:
        step: The number s.
        decay: The number β.
        softening: The number δ. The authors have 1e-16, with which an input of exactly zero
            has a slope of 1e8.
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
        drive = Drive("rmsprop", step=step, decay=decay, softening=softening)
        super().__init__(input_size, hidden_size, drive)


class AdamDriven(MomentumCell):
    """The options of adam-rnn and adam-lstm: a velocity divided by the running size of the input.

    Args:
        momentum: The number μ.
        step: The number s.
        decay: The number β.
        softening: The number δ. The authors have 1e-16, with which an input of exactly zero
            has a slope of 1e8.
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
        drive = Drive("adam", momentum, step, decay, softening)
        super().__init__(input_size, hidden_size, drive)
