"""The oscillators of a bank: random frequencies, dampings, phases and drivers."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from undamped._base.contract import Batch
from undamped.lab.baselines.bank.dynamics import CHUNK, BankState, FixedDynamics, Snapshots
from undamped.lab.baselines.bank.kernels.pools import Rates, rotate
from undamped.models.timestamped import time_gaps

DAMPING_RATIOS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 1.0)
"""γ / ω; each oscillator has one of them."""
SHORTEST_PERIOD = 2.5  # typical gaps, a little more than the Nyquist limit of 2
_MOST_DRIVERS = 3.0


class Oscillators(FixedDynamics):
    """Fixed oscillators, each driven by a few channels or their changes from sample to sample.

    Args:
        channels: Features of a sample.
        count: Number of oscillators.
        thresholds: Number of thresholds per oscillator.
        gap: The typical time between two samples.
    """

    drivers: Tensor
    position: Tensor
    damping_ratio: Tensor
    phase: Tensor
    longest: Tensor

    def __init__(self, channels: int, count: int, thresholds: int, gap: float) -> None:
        super().__init__(channels, count, thresholds, gap)
        # These depend on the seed only. `centre`, `scale` and `longest` adapt them to the data.
        self.register_buffer("drivers", _random_drivers(count, 2 * channels))
        self.register_buffer("position", torch.rand(count, dtype=torch.float64))
        index = torch.randint(len(DAMPING_RATIOS), (count,))
        ratios = torch.tensor(DAMPING_RATIOS, dtype=torch.float64)
        self.register_buffer("damping_ratio", ratios[index])
        self.register_buffer("phase", 2 * math.pi * torch.rand(count, dtype=torch.float64))
        self.register_buffer("longest", torch.tensor(100.0, dtype=torch.float64))

    def rates(self) -> Rates:
        """Return γ and ω of every oscillator, per typical gap, and φ."""
        longest = (self.longest / SHORTEST_PERIOD).clamp_min(2.0)
        frequency = 2 * math.pi / (SHORTEST_PERIOD * longest**self.position)
        return Rates(self.damping_ratio * frequency, frequency, self.phase)

    def set_span(self, span: float) -> None:
        """Set the longest period, so that the slowest oscillator turns twice in a sequence."""
        self.longest.fill_(span / 2)

    def run(
        self, batch: Batch, state: BankState | None = None, snapshots: Snapshots | None = None
    ) -> BankState:
        x = batch.inputs
        state = self.empty_state(x.shape[1]) if state is None else state
        rates, pools = self.rates().to(x.dtype), state.pools
        gaps, end_time = self._gaps(batch, state.time)
        signals = self.signals(batch, state)
        inputs = self.standardise(signals)
        for begin in range(0, len(x), CHUNK):
            stop = begin + CHUNK
            drive = inputs[begin:stop] @ self.drivers.T
            part = None if gaps is None else gaps[begin:stop]
            pools = self._advance(pools, drive, part, batch.lengths, rates, begin, snapshots)
        return BankState(signals.last, signals.has_last, end_time, pools)

    def _gaps(self, batch: Batch, before: Tensor) -> tuple[Tensor | None, Tensor]:
        """Return the gaps before the samples (None for 1 each), and the time of the last sample."""
        if batch.times is None:
            return None, before
        elapsed = time_gaps(batch.times, batch.lengths, self.gap, before)
        return elapsed / self.gap, before + elapsed.sum(0)

    def responses(self, sequence: Batch, index: Tensor) -> Tensor:
        """Return y of some oscillators; arguments are those of `FixedDynamics.responses`."""
        state = self.empty_state(1)
        inputs = self.standardise(self.signals(sequence, state))
        drive = inputs[:, 0] @ self.drivers[index].T
        gaps, _ = self._gaps(sequence, state.time)
        steps = drive.new_ones(len(drive)) if gaps is None else gaps[:, 0].to(drive.dtype)
        damping, frequency, phase = (rate[index] for rate in self.rates().to(drive.dtype))
        real = imaginary = drive.new_zeros(len(index))
        outputs = []
        for u, gap in zip(drive, steps, strict=True):
            real, imaginary = rotate(real, imaginary, gap, damping, frequency)
            real = real + u
            outputs.append(phase.cos() * real - phase.sin() * imaginary)
        return torch.stack(outputs)


def _random_drivers(oscillators: int, signals: int) -> Tensor:
    """Return the weights of the signals (oscillators, signals): one to a few, with random signs."""
    most = min(signals, _MOST_DRIVERS)
    counts = torch.exp(torch.rand(oscillators) * math.log(most)).long().clamp(1, signals)
    order = torch.rand(oscillators, signals).argsort(1).argsort(1)
    mask = order < counts.unsqueeze(1)
    signs = torch.randint(2, (oscillators, signals)) * 2.0 - 1.0
    return mask * signs / counts.sqrt().unsqueeze(1)
