"""Neural CDE (Kidger, Morrill, Foster and Lyons, 2020)."""

from __future__ import annotations

from typing import Literal, Unpack

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.contract import LONGEST_GAP
from undamped._base.options import PositiveInt, Units
from undamped._base.registry import models
from undamped.models.irregular.network import Parts, SampleOptions, TimestampedNetwork
from undamped.models.timestamped import hold_last

Control = Literal["linear", "cubic"]


@models.register("neural-cde")
class NeuralCDE(TimestampedNetwork):
    """Neural CDE: the data are a path in time, whose changes control the state.

    Equation:
        dz = f(z) dX,  z(t₀) = W X(t₀) + b,  X = (time, values, counts of measurements)

    Symbols:
        z state, f a perceptron with values between −1 and 1, (hidden × channels of X); X the
        control: lines between samples, or cubics that start with the slope before. A missing
        value is replaced by the last measured one. Over a gap X is parametrised from 0 to 1, which
        does not change z, so that every sequence has its own timestamps. After the last sample
        only time changes.

    Promise:
        None. It is causal: at every sample the state depends only on the samples so far.

    Args:
        control: Linear or cubic interpolation.
        field_size: Width of the field's hidden layer.
        steps: Steps of rk4 between two samples. Gradients are exact for the steps; those of the
            equation, whose field is not smooth, may differ by some per cent with one step, 1 % with
            ten.
        samples: See `SampleOptions`; with missing features their counts are part of X.

    Example:
        >>> net = undamped.models.NeuralCDE(3, 16, control="cubic")
        >>> output, state = net(torch.randn(20, 4, 3), torch.rand(20, 4).cumsum(0))

    Reference:
        P. Kidger, J. Morrill, J. Foster, T. Lyons. Neural controlled differential equations for
        irregular time series. NeurIPS, 2020.
    """

    longest_gap = LONGEST_GAP

    @checked
    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: Units,
        *,
        control: Control = "linear",
        field_size: Units = 64,
        steps: PositiveInt = 1,
        **samples: Unpack[SampleOptions],
    ) -> None:
        super().__init__(input_size, hidden_size, **samples)
        self.control, self.steps = control, steps
        self.channels = 1 + input_size * (2 if self.missing else 1)
        self.enter = nn.Linear(self.channels, hidden_size)
        self.inner = nn.Linear(hidden_size, field_size)
        self.outer = nn.Linear(field_size, hidden_size * self.channels)
        with torch.no_grad():
            # Small weights, since every sample and every gap adds to the state.
            self.outer.weight.mul_(0.1)
            self.outer.bias.mul_(0.1)

    # The state: z, X and its slope at the last sample, the number of samples (up to 2), and the
    # time since. Only `output` applies that time, so that queries do not change the state.

    @property
    def state_sizes(self) -> tuple[int, ...]:
        """z, X, dX/dt, samples so far (at most 2), time since the last."""
        return (self.hidden_size, self.channels, self.channels, 1, 1)

    def matrix(self, z: Tensor) -> Tensor:
        """Return f(z), (rows, hidden, channels)."""
        flat = torch.tanh(self.outer(torch.relu(self.inner(z))))
        return flat.unflatten(-1, (self.hidden_size, self.channels))

    def project(
        self, x: Tensor, observed: Tensor, gaps: Tensor, state: Parts
    ) -> tuple[Tensor, Tensor]:
        """Return the control at all samples (time, batch, channels), and the clock."""
        _, before, _, _, waited = state
        values = hold_last(x, observed, before[:, 1 : 1 + self.input_size])
        # In double precision: differences of a long clock in single precision are noise.
        clock = waited.double() + gaps.cumsum(0).unsqueeze(-1)
        parts = [(before[:, :1] + clock).to(x.dtype), values]
        if self.missing:
            counts = observed.to(x.dtype).cumsum(0)
            parts.append(before[:, 1 + self.input_size :] + counts)
        return torch.cat(parts, -1), clock

    def scan(
        self, projected: tuple[Tensor, Tensor], gaps: Tensor, alive: Tensor | None, state: Parts
    ) -> Parts:
        """Solve along the control from sample to sample."""
        X, clock = projected
        z, before, slope, count, _ = state
        if alive is None:
            alive = torch.ones_like(clock, dtype=torch.bool)
        steps = torch.arange(len(X), device=X.device).view(-1, 1, 1)
        last = torch.where(alive, steps, -1).cummax(0).values  # the last sample so far
        earlier = torch.cat([torch.full_like(last[:1], -1), last[:-1]])

        def at(values: Tensor, index: Tensor, start: Tensor) -> Tensor:
            """Return values at indices; the start where an index is negative."""
            selected = values.gather(0, index.clamp(min=0).expand(-1, -1, values.shape[-1]))
            return torch.where(index >= 0, selected, start)

        counts = (count + alive.to(X.dtype).cumsum(0)).clamp(max=2)
        begun = torch.where(earlier >= 0, 1.0, count.clamp(max=1).unsqueeze(0))
        none = torch.zeros_like(clock[0])
        gap = (clock - at(clock, earlier, none)).to(X.dtype) * begun
        move = torch.cat([gap, (X - at(X, earlier, before))[..., 1:] * begun], -1)
        slopes = torch.where(gap > 0, move / gap.clamp(min=1e-30), 0.0)
        left = move
        if self.control == "cubic":
            has_slope = at(counts, earlier, count) >= 2
            left = torch.where(has_slope, at(slopes, earlier, slope), slopes) * gap
        entry = self.enter(X)
        moves, joins = alive & (begun > 0), alive & (begun == 0)
        states = []
        for t in range(len(X)):
            z = torch.where(moves[t], self.follow(z, move[t], left[t]), z)
            z = torch.where(joins[t], entry[t], z)
            states.append(z)
        since = (clock - at(clock, last, none)).to(X.dtype)
        return torch.stack(states), at(X, last, before), at(slopes, last, slope), counts, since

    def follow(self, z: Tensor, move: Tensor, left: Tensor) -> Tensor:
        """Return z after a change of X, (rows, hidden).

        Args:
            z: The state before.
            move: (rows, channels) the change of X.
            left: The initial slope of X over this change; `move` itself for a line.
        """
        size = 1 / self.steps
        for step in range(self.steps):
            slopes = [self._slope(move, left, (step + s) * size) for s in (0.0, 0.5, 1.0)]
            k1 = self._rate(z, slopes[0])
            k2 = self._rate(z + (size / 2) * k1, slopes[1])
            k3 = self._rate(z + (size / 2) * k2, slopes[1])
            k4 = self._rate(z + size * k3, slopes[2])
            z = z + (size / 6) * (k1 + 2 * (k2 + k3) + k4)
        return z

    def _slope(self, move: Tensor, left: Tensor, s: float) -> Tensor:
        """Return dX/ds of a line, or of the cubic that ends with the slope of the line."""
        if self.control == "linear":
            return move
        return (4 * s - 3 * s * s) * move + (1 - 4 * s + 3 * s * s) * left

    def _rate(self, z: Tensor, slope: Tensor) -> Tensor:
        return torch.matmul(self.matrix(z), slope.unsqueeze(-1)).squeeze(-1)

    def flow(self, state: Parts, gaps: Tensor) -> Parts:
        """Add the gaps to the time since the last sample."""
        return (*state[:4], state[4] + gaps.unsqueeze(-1).to(state[4].dtype))

    def output(self, state: Parts) -> Tensor:
        """Return z, moved on by time alone where some has passed since the last sample."""
        z, _, _, count, waited = state
        waited = waited * (count > 0)
        if not bool((waited > 0).any()):
            return z
        shape = z.shape[:-1]
        time = torch.zeros(*shape, self.channels, dtype=z.dtype, device=z.device)
        time[..., :1] = waited
        rows = [part.reshape(-1, part.shape[-1]) for part in (z, time)]
        return self.follow(rows[0], rows[1], rows[1]).view(*shape, -1)
