"""Networks of timestamped samples that store the time since the last one: CfC, GRU-D, neural CDE.

CfC, the closed-form continuous-time network: Hasani and others, 2022. GRU-D: Che, Purushotham, Cho,
Sontag and Liu, 2018. Neural CDE: Kidger, Morrill, Foster and Lyons, 2020. A gap only adds to the
time since the last sample, on which the output depends, so that queries do not change the state.
"""

from __future__ import annotations

from typing import Literal, Unpack

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.contract import LONGEST_GAP
from undamped._base.options import PositiveInt, Units
from undamped._base.registry import models
from undamped.kernels.dispatch import use_plain_loops
from undamped.models.irregular.network import JumpNetwork, Parts, SampleOptions, TimestampedNetwork
from undamped.models.timestamped import hold_last
from undamped.nn.lstm import GRUCell


@models.register("cfc")
class CfC(JumpNetwork):
    """CfC: a step whose result interpolates between two states with the time it lasts.

    Equation:
        b = φ(W [x, h]),  s = σ̂(p(b) Δt + q(b)),  h' = (1 − s) ⊙ tanh(f(b)) + s ⊙ tanh(g(b))

    Symbols:
        b a shared backbone of one layer, φ(u) = 1.7159 tanh(2u/3), f, g, p, q linear, Δt time since
        the previous sample, in usual gaps.

    Promise:
        None. It is not a flow: a step of duration zero changes the state too.

    Args:
        backbone_size: Width of the backbone.
        samples: See `SampleOptions`.

    Reference:
        R. Hasani and others. Closed-form continuous-time neural networks. Nature Machine
        Intelligence, 2022.
    """

    @checked
    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: Units,
        *,
        backbone_size: Units = 128,
        **samples: Unpack[SampleOptions],
    ) -> None:
        super().__init__(input_size, hidden_size, **samples)
        width = input_size * (2 if self.missing else 1)
        self.read = nn.Linear(width, backbone_size)
        self.recall = nn.Linear(hidden_size, backbone_size, bias=False)
        self.heads = nn.Linear(backbone_size, 4 * hidden_size)

    # The state: h, and the time since it last changed.

    @property
    def state_sizes(self) -> tuple[int, ...]:
        """h, and the time since the last sample."""
        return (self.hidden_size, 1)

    def project(self, x: Tensor, observed: Tensor, gaps: Tensor, state: Parts) -> Tensor:
        """Return the input of the backbone."""
        return self.read(torch.cat([x, observed.to(x.dtype)], -1) if self.missing else x)

    def jump(self, projected: Tensor, state: Parts, constants: Parts) -> Parts:
        """Return the state after a step over the time since the last one."""
        hidden, since = state
        return self._step(projected, hidden, since), torch.zeros_like(since)

    def _step(self, projected: Tensor, hidden: Tensor, since: Tensor) -> Tensor:
        backbone = 1.7159 * torch.tanh((2 / 3) * (projected + self.recall(hidden)))
        f, g, p, q = self.heads(backbone).chunk(4, dim=-1)
        weight = torch.sigmoid(p * since + q)
        return torch.lerp(torch.tanh(f), torch.tanh(g), weight)

    def flow(self, state: Parts, gaps: Tensor) -> Parts:
        """Add the gaps to the time since the last sample."""
        return state[0], state[1] + gaps.unsqueeze(-1).to(state[1].dtype)

    def output(self, state: Parts) -> Tensor:
        """Return h, or the result of a step without a sample where time has passed since."""
        hidden, since = state
        if not use_plain_loops() and not bool((since > 0).any()):
            return hidden
        empty = self.read(hidden.new_zeros(self.read.in_features))
        return torch.where(since > 0, self._step(empty, hidden, since), hidden)


@models.register("gru-d")
class GRUD(TimestampedNetwork):
    """GRU-D: a missing channel decays from its last value to a mean, and h decays.

    Equation:
        γ = exp(−max(0, W δ + b)) for inputs (W diagonal) and for the state (W full)
        x̂ = m x + (1 − m)(γ_x x_last + (1 − γ_x) x̄),  h' = GRU([x̂, m], γ_h ⊙ h)

    Symbols:
        δ time since each channel was last measured, m mask of measured values, x_last the last
        measured value, x̄ a learned mean, 0 at first.

    Promise:
        None. Decays are learned, and two short gaps decay more than one long gap.

    Args:
        samples: See `SampleOptions`.

    Example:
        >>> net = undamped.models.GRUD(3, 16, missing=True)
        >>> x, observed = torch.randn(20, 4, 3), torch.rand(20, 4, 3) > 0.5
        >>> output, state = net(x, torch.rand(20, 4).cumsum(0), observed)

    Reference:
        Z. Che and others. Recurrent neural networks for multivariate time series with missing
        values. Scientific Reports, 2018.
    """

    @checked
    def __init__(
        self, input_size: PositiveInt, hidden_size: Units, **samples: Unpack[SampleOptions]
    ) -> None:
        super().__init__(input_size, hidden_size, **samples)
        self.cell = GRUCell(2 * input_size, hidden_size)
        self.state_decay = nn.Linear(input_size, hidden_size)
        self.input_rate = nn.Parameter(torch.full((input_size,), 0.1))
        self.input_shift = nn.Parameter(torch.zeros(input_size))
        self.mean = nn.Parameter(torch.zeros(input_size))

    # The state: h, the last values, the time since each channel was measured, and since a sample.
    # The output applies the decay, so that two queries in one gap do not decay the state twice.

    @property
    def state_sizes(self) -> tuple[int, ...]:
        """h, x_last, δ, and the time since the last sample."""
        return (self.hidden_size, self.input_size, self.input_size, 1)

    def _decay(self, since: Tensor) -> Tensor:
        """Return γ_h, the decay factor of the state."""
        return torch.exp(-torch.relu(self.state_decay(since)))

    def project(
        self, x: Tensor, observed: Tensor, gaps: Tensor, state: Parts
    ) -> tuple[Tensor, ...]:
        """Return all but the recurrence: gates of imputed values, decays, times since samples."""
        _, last_values, since, waited = state
        # In double precision: differences of a long clock in single precision are noise.
        clock = gaps.cumsum(0).unsqueeze(-1)  # (time, batch, 1)
        since, waited = since.double(), waited.double()
        stamp = torch.where(observed, clock, -torch.inf).cummax(0).values
        # Before a sample: the last earlier measurement.
        stamp = torch.cat([(-since).unsqueeze(0), stamp]).cummax(0).values
        ago = (clock - stamp[:-1]).to(x.dtype)
        values = hold_last(x, observed, last_values)
        earlier = torch.cat([last_values.unsqueeze(0), values[:-1]])
        decay = torch.exp(-torch.relu(self.input_rate * ago + self.input_shift))
        imputed = decay * earlier + (1 - decay) * self.mean
        filled = torch.where(observed, x, imputed)
        sampled = observed.any(-1, keepdim=True)
        last = torch.where(sampled, clock, -torch.inf).cummax(0).values
        last = torch.maximum(last, -waited.unsqueeze(0))
        gates = self.cell.project(torch.cat([filled, observed.to(x.dtype)], -1))
        since, waited = (clock - stamp[1:]).to(x.dtype), (clock - last).to(x.dtype)
        return gates, self._decay(ago), values, since, waited

    def scan(
        self, projected: tuple[Tensor, ...], gaps: Tensor, alive: Tensor | None, state: Parts
    ) -> Parts:
        """Decay the state and step the cell at every sample."""
        gates, decays, values, since, waited = projected
        hidden, states, constants = state[0], [], self.cell.constants()
        for t, (sample, decay) in enumerate(zip(gates.unbind(0), decays.unbind(0), strict=True)):
            (new,) = self.cell.advance(sample, (decay * hidden,), constants)
            hidden = new if alive is None else torch.where(alive[t], new, hidden)
            states.append(hidden)
        return torch.stack(states), values, since, waited

    def flow(self, state: Parts, gaps: Tensor) -> Parts:
        """Add the gaps to the times since the last measurements."""
        hidden, values, since, waited = state
        time = gaps.unsqueeze(-1).to(since.dtype)
        return hidden, values, since + time, waited + time

    def output(self, state: Parts) -> Tensor:
        """Return h, decayed where time has passed since the last sample."""
        hidden, _, since, waited = state
        return torch.where(waited > 0, self._decay(since) * hidden, hidden)


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
        has_start = torch.where(earlier >= 0, 1.0, count.clamp(max=1).unsqueeze(0))
        none = torch.zeros_like(clock[0])
        gap = (clock - at(clock, earlier, none)).to(X.dtype) * has_start
        move = torch.cat([gap, (X - at(X, earlier, before))[..., 1:] * has_start], -1)
        slopes = torch.where(gap > 0, move / gap.clamp(min=1e-30), 0.0)
        first_slope = move
        if self.control == "cubic":
            has_slope = at(counts, earlier, count) >= 2
            first_slope = torch.where(has_slope, at(slopes, earlier, slope), slopes) * gap
        entry = self.enter(X)
        moves, joins = alive & (has_start > 0), alive & (has_start == 0)
        states = []
        for t in range(len(X)):
            z = torch.where(moves[t], self.follow(z, move[t], first_slope[t]), z)
            z = torch.where(joins[t], entry[t], z)
            states.append(z)
        since = (clock - at(clock, last, none)).to(X.dtype)
        return torch.stack(states), at(X, last, before), at(slopes, last, slope), counts, since

    def follow(self, z: Tensor, move: Tensor, first_slope: Tensor) -> Tensor:
        """Return z after a change of X, (rows, hidden).

        Args:
            z: The state before.
            move: (rows, channels) the change of X.
            first_slope: The initial slope of X over this change; `move` itself for a line.
        """
        size = 1 / self.steps
        for step in range(self.steps):
            slopes = [self._slope(move, first_slope, (step + s) * size) for s in (0.0, 0.5, 1.0)]
            k1 = self._rate(z, slopes[0])
            k2 = self._rate(z + (size / 2) * k1, slopes[1])
            k3 = self._rate(z + (size / 2) * k2, slopes[1])
            k4 = self._rate(z + size * k3, slopes[2])
            z = z + (size / 6) * (k1 + 2 * (k2 + k3) + k4)
        return z

    def _slope(self, move: Tensor, first_slope: Tensor, s: float) -> Tensor:
        """Return dX/ds of a line, or of the cubic that ends with the slope of the line."""
        if self.control == "linear":
            return move
        return (4 * s - 3 * s * s) * move + (1 - 4 * s + 3 * s * s) * first_slope

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
