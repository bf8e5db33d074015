"""A bank of oscillators that is drawn once: frequencies, dampings, and who is driven by what."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from undamped.lab.baselines.bank.kernels.pools import Pools, Rates, turned
from undamped.lab.baselines.bank.listeners import STEPS_AT_ONCE, BankState, Listeners
from undamped.models.timestamped import time_gaps

DAMPINGS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 1.0)
"""Shares of a frequency; each oscillator draws one."""
SHORTEST = 2.5  # usual gaps: a little more than what can still be seen as an oscillation
_MOST_DRIVERS = 3.0


class Oscillators(Listeners):
    """Fixed oscillators, each driven by a few channels or their changes from sample to sample.

    Args:
        channels: Features of a sample.
        count: How many oscillators.
        thresholds: How many levels of each are counted.
        gap: The usual time between two samples.
    """

    drivers: Tensor
    position: Tensor
    damping_share: Tensor
    phase: Tensor
    longest: Tensor

    def __init__(self, channels: int, count: int, thresholds: int, gap: float) -> None:
        super().__init__(channels, count, thresholds, gap)
        # Fixed by the seed; between them and the data stand `centre`, `scale` and `longest`.
        self.register_buffer("drivers", _draw_drivers(count, 2 * channels))
        self.register_buffer("position", torch.rand(count, dtype=torch.float64))
        which = torch.randint(len(DAMPINGS), (count,))
        self.register_buffer("damping_share", torch.tensor(DAMPINGS, dtype=torch.float64)[which])
        self.register_buffer("phase", 2 * math.pi * torch.rand(count, dtype=torch.float64))
        self.register_buffer("longest", torch.tensor(100.0, dtype=torch.float64))

    def rates(self) -> Rates:
        """Return γ and ω of every oscillator, per usual gap, and φ."""
        period = SHORTEST * (self.longest / SHORTEST).clamp_min(2.0) ** self.position
        frequency = 2 * math.pi / period
        return Rates(self.damping_share * frequency, frequency, self.phase)

    def hear_span(self, span: float) -> None:
        """Let the slowest oscillator turn twice in a usual sequence."""
        self.longest.fill_(span / 2)

    def run(
        self,
        x: Tensor,
        times: Tensor | None = None,
        observed: Tensor | None = None,
        lengths: Tensor | None = None,
        state: BankState | None = None,
        snapshots: dict[int, Pools | None] | None = None,
    ) -> BankState:
        """Let samples drive the oscillators; arguments are those of `Listeners.run`."""
        state = self.empty_state(x.shape[1]) if state is None else state
        rates = self.rates().to(x.dtype)
        pools = state.pools
        gaps, at = self._gaps(times, state.time, lengths)
        signals = self.signals(x, observed, state, lengths)
        standard = self.standard(signals)
        for begin in range(0, len(x), STEPS_AT_ONCE):
            stop = begin + STEPS_AT_ONCE
            drive = standard[begin:stop] @ self.drivers.T
            part = None if gaps is None else gaps[begin:stop]
            pools = self._advance(pools, drive, part, lengths, rates, begin, snapshots)
        return BankState(signals.held, signals.held_known, at, pools)

    def _gaps(
        self, times: Tensor | None, at: Tensor, lengths: Tensor | None
    ) -> tuple[Tensor | None, Tensor]:
        """Return usual gaps before every sample, or None for one each; and the time at the end."""
        if times is None:
            return None, at
        passed = time_gaps(times, lengths, self.gap, at)
        return passed / self.gap, at + passed.sum(0)

    def responses(
        self, x: Tensor, times: Tensor | None, observed: Tensor | None, chosen: Tensor
    ) -> Tensor:
        """Return y of some oscillators; arguments are those of `Listeners.responses`."""
        state = self.empty_state(1)
        signals = self.signals(x, observed, state, None)
        drive = self.standard(signals)[:, 0] @ self.drivers[chosen].T
        gaps, _ = self._gaps(times, state.time, None)
        steps = drive.new_ones(len(x)) if gaps is None else gaps[:, 0].to(drive.dtype)
        damping, frequency, phase = (rate[chosen] for rate in self.rates().to(x.dtype))
        real = imaginary = drive.new_zeros(len(chosen))
        heard = []
        for u, gap in zip(drive, steps, strict=True):
            real, imaginary = turned(real, imaginary, gap, damping, frequency)
            real = real + u
            heard.append(phase.cos() * real - phase.sin() * imaginary)
        return torch.stack(heard)


def _draw_drivers(oscillators: int, signals: int) -> Tensor:
    """Return who is driven by what, (oscillators, signals): one to a few signals, with signs."""
    most = min(signals, _MOST_DRIVERS)
    numbers = torch.exp(torch.rand(oscillators) * math.log(most)).long().clamp(1, signals)
    order = torch.rand(oscillators, signals).argsort(1).argsort(1)
    chosen = order < numbers.unsqueeze(1)
    signs = torch.randint(2, (oscillators, signals)) * 2.0 - 1.0
    return chosen * signs / numbers.sqrt().unsqueeze(1)
