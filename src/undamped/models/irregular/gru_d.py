"""GRU-D (Che, Purushotham, Cho, Sontag and Liu, 2018)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.options import PositiveFloat, PositiveInt, Units
from undamped._base.registry import models
from undamped.models.irregular.network import Parts, StampedNetwork
from undamped.models.stamped import hold_last
from undamped.nn.gru import GRUCell


@models.register("gru-d")
class GRUD(StampedNetwork):
    """GRU-D: a channel that was not measured drifts from its last value to a mean, and h decays.

    Equation:
        γ = exp(−max(0, W δ + b)) for inputs (W diagonal) and for the state (W full)
        x̂ = m x + (1 − m)(γ_x x_last + (1 − γ_x) x̄),  h' = GRU([x̂, m], γ_h ⊙ h)

    Symbols:
        δ time since each channel was last measured, m what was measured, x_last the last measured
        value, x̄ a mean that is learnt, from 0 on.

    Promise:
        None. Decays are learnt, and two short gaps do more than one long gap.

    Args:
        input_size: Features of a sample.
        hidden_size: Number of hidden units.
        missing: Whether features may be missing; the task decides.
        gap: The usual time between two samples; the task says it.

    Example:
        >>> net = undamped.models.GRUD(3, 16, missing=True)
        >>> x, seen = torch.randn(20, 4, 3), torch.rand(20, 4, 3) > 0.5
        >>> output, state = net(x, torch.rand(20, 4).cumsum(0), seen)

    Reference:
        Z. Che and others. Recurrent neural networks for multivariate time series with missing
        values. Scientific Reports, 2018.
    """

    @checked
    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: Units,
        *,
        missing: bool = False,
        gap: PositiveFloat = 1.0,
    ) -> None:
        super().__init__(input_size, hidden_size, missing=missing, gap=gap)
        self.cell = GRUCell(2 * input_size, hidden_size)
        self.state_decay = nn.Linear(input_size, hidden_size)
        self.input_rate = nn.Parameter(torch.full((input_size,), 0.1))
        self.input_shift = nn.Parameter(torch.zeros(input_size))
        self.mean = nn.Parameter(torch.zeros(input_size))

    # The state: h, the last values, the time since each channel was measured, and since a sample.
    # Decay is left undone until somebody looks: then two questions in one gap do no harm.

    @property
    def state_sizes(self) -> tuple[int, ...]:
        """h, x_last, δ, and the time since the last sample."""
        return (self.hidden_size, self.input_size, self.input_size, 1)

    def _left(self, since: Tensor) -> Tensor:
        """γ_h, what is left of the state."""
        return torch.exp(-torch.relu(self.state_decay(since)))

    def project(
        self, x: Tensor, observed: Tensor, gaps: Tensor, state: Parts
    ) -> tuple[Tensor, ...]:
        """All but the recurrence: decays, imputed values, and what the gates see of them."""
        _, held, since, waited = state
        # In double precision: differences of a long clock in single precision are noise.
        clock = gaps.cumsum(0).unsqueeze(-1)  # (time, batch, 1)
        since, waited = since.double(), waited.double()
        stamp = torch.where(observed, clock, -torch.inf).cummax(0).values
        # Before a sample: what was last measured earlier.
        stamp = torch.cat([(-since).unsqueeze(0), stamp]).cummax(0).values
        ago = (clock - stamp[:-1]).to(x.dtype)
        values = hold_last(x, observed, held)
        earlier = torch.cat([held.unsqueeze(0), values[:-1]])
        kept = torch.exp(-torch.relu(self.input_rate * ago + self.input_shift))
        drifted = kept * earlier + (1 - kept) * self.mean
        filled = torch.where(observed, x, drifted)
        seen = observed.any(-1, keepdim=True)
        last = torch.where(seen, clock, -torch.inf).cummax(0).values
        last = torch.maximum(last, -waited.unsqueeze(0))
        gates = self.cell.project(torch.cat([filled, observed.to(x.dtype)], -1))
        since, waited = (clock - stamp[1:]).to(x.dtype), (clock - last).to(x.dtype)
        return gates, self._left(ago), values, since, waited

    def scan(
        self, projected: tuple[Tensor, ...], gaps: Tensor, alive: Tensor | None, state: Parts
    ) -> Parts:
        """Decay and step."""
        gates, left, values, since, waited = projected
        hidden, made, constants = state[0], [], self.cell.constants()
        for t, (sample, decay) in enumerate(zip(gates.unbind(0), left.unbind(0), strict=True)):
            (new,) = self.cell.advance(sample, (decay * hidden,), constants)
            hidden = new if alive is None else torch.where(alive[t], new, hidden)
            made.append(hidden)
        return torch.stack(made), values, since, waited

    def flow(self, state: Parts, gaps: Tensor) -> Parts:
        """Let time pass."""
        hidden, held, since, waited = state
        passed = gaps.unsqueeze(-1).to(since.dtype)
        return hidden, held, since + passed, waited + passed

    def output(self, state: Parts) -> Tensor:
        """h, decayed where time has passed since the last sample."""
        hidden, _, since, waited = state
        return torch.where(waited > 0, self._left(since) * hidden, hidden)
