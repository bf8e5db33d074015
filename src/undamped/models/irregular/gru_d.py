"""GRU-D (Che, Purushotham, Cho, Sontag and Liu, 2018)."""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.options import PositiveInt, Units
from undamped._base.registry import models
from undamped.models.irregular.network import Parts, SampleOptions, TimestampedNetwork
from undamped.models.timestamped import hold_last
from undamped.nn.gru import GRUCell


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
