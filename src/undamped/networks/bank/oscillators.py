"""A bank of oscillators that is drawn once: frequencies, dampings, and who is driven by what."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from undamped.kernels.bank.pools import Pools, advance, turned

DAMPINGS = (0.0, 0.01, 0.03, 0.1, 0.3, 0.6)
"""Shares of a frequency; each oscillator draws one."""
SHORTEST = 2.5  # usual gaps: a little more than what can still be seen as an oscillation
_STEPS_AT_ONCE = 64
_MOST_DRIVERS = 3.0


class BankState(NamedTuple):
    """Where a bank stands.

    Args:
        held: (batch, channels) the last value that was measured of each.
        known: (batch, channels) whether there was one.
        time: (batch,) when the last sample came.
        pools: The oscillators, and what was counted of them.
    """

    held: Tensor
    known: Tensor
    time: Tensor
    pools: Pools


class Signals(NamedTuple):
    """What drives a bank: values and their changes from sample to sample.

    Args:
        values: (time, batch, 2 · channels), anything where nothing is known.
        known: (time, batch, 2 · channels) where something is.
        held: (batch, channels) the last value that was measured of each channel.
        held_known: (batch, channels) whether there was one.
    """

    values: Tensor
    known: Tensor
    held: Tensor
    held_known: Tensor


class Oscillators(nn.Module):
    """Fixed oscillators, each driven by a few channels or their changes from sample to sample.

    Args:
        channels: Features of a sample.
        oscillators: How many.
        thresholds: How many levels of each are counted.
        gap: The usual time between two samples.
    """

    drivers: Tensor
    position: Tensor
    damping_share: Tensor
    levels: Tensor
    centre: Tensor
    scale: Tensor
    longest: Tensor
    thresholds: Tensor

    def __init__(self, channels: int, oscillators: int, thresholds: int, gap: float) -> None:
        super().__init__()
        self.channels, self.gap = channels, gap
        # Fixed by the seed; between them and the data stand `centre`, `scale` and `longest`.
        self.register_buffer("drivers", _draw_drivers(oscillators, 2 * channels))
        self.register_buffer("position", torch.rand(oscillators, dtype=torch.float64))
        which = torch.randint(len(DAMPINGS), (oscillators,))
        self.register_buffer("damping_share", torch.tensor(DAMPINGS, dtype=torch.float64)[which])
        spread = 0.1 + 0.8 * torch.rand(thresholds, oscillators)
        self.register_buffer("levels", spread)
        # Found in the data
        self.register_buffer("centre", torch.zeros(2 * channels))
        self.register_buffer("scale", torch.ones(2 * channels))
        self.register_buffer("longest", torch.tensor(100.0, dtype=torch.float64))
        self.register_buffer("thresholds", torch.zeros(thresholds, oscillators))

    @property
    def count(self) -> int:
        """How many oscillators there are."""
        return len(self.position)

    def rates(self) -> tuple[Tensor, Tensor]:
        """Return γ and ω of every oscillator, per usual gap."""
        period = SHORTEST * (self.longest / SHORTEST).clamp_min(2.0) ** self.position
        frequency = 2 * math.pi / period
        return self.damping_share * frequency, frequency

    def empty_state(self, batch: int) -> BankState:
        """Return the state before the first sample."""
        held = self.thresholds.new_zeros(batch, self.channels)
        time = torch.zeros(batch, dtype=torch.float64, device=held.device)
        return BankState(
            held, torch.zeros_like(held).bool(), time, Pools.empty(batch, self.thresholds)
        )

    @staticmethod
    def signals(
        x: Tensor, observed: Tensor | None, state: BankState, lengths: Tensor | None
    ) -> Signals:
        """Return values and their changes, where they are known, and what is held at the end.

        Args:
            x: (time, batch, channels).
            observed: (time, batch, channels) what was measured.
            state: Where the bank stands.
            lengths: (batch,) samples of each sequence.
        """
        measured = ~x.isnan() if observed is None else observed & ~x.isnan()
        if lengths is not None:
            steps = torch.arange(len(x), device=x.device).view(-1, 1, 1)
            measured = measured & (steps < lengths.view(1, -1, 1))
        # The last known value at and before every step, by the number of the step it came from.
        numbers = torch.arange(1, len(x) + 1, device=x.device).view(-1, 1, 1)
        latest = torch.where(measured, numbers, 0).cummax(0).values
        values = torch.cat((state.held.unsqueeze(0), torch.where(measured, x, 0)))
        filled = values.gather(0, latest)
        earlier = torch.cat((state.held.unsqueeze(0), filled[:-1]))
        had = torch.cat((state.known.unsqueeze(0), (latest[:-1] > 0) | state.known))
        both = torch.cat((x, filled - earlier), dim=-1)
        there = torch.cat((measured, measured & had), dim=-1)
        return Signals(both, there, filled[-1], (latest[-1] > 0) | state.known)

    def standard(self, signals: Signals) -> Tensor:
        """Return standardised signals, 0 where nothing is known."""
        return torch.where(signals.known, (signals.values - self.centre) / self.scale, 0)

    def run(
        self,
        x: Tensor,
        times: Tensor | None = None,
        observed: Tensor | None = None,
        lengths: Tensor | None = None,
        state: BankState | None = None,
    ) -> BankState:
        """Let samples drive the bank; return where it stands afterwards.

        Args:
            x: (time, batch, channels).
            times: (time, batch) when the samples came; one usual gap after the other if not given.
            observed: (time, batch, channels) what was measured.
            lengths: (batch,) samples of each sequence.
            state: Where to go on from.
        """
        state = self.empty_state(x.shape[1]) if state is None else state
        damping, frequency = (rate.to(x.dtype) for rate in self.rates())
        pools = state.pools
        gaps, at = self._gaps(times, state.time, lengths)
        signals = self.signals(x, observed, state, lengths)
        standard = self.standard(signals)
        for begin in range(0, len(x), _STEPS_AT_ONCE):
            stop = begin + _STEPS_AT_ONCE
            drive = standard[begin:stop] @ self.drivers.T
            left = None if lengths is None else (lengths - begin).clamp(0, len(drive))
            part = None if gaps is None else gaps[begin:stop]
            pools = advance(pools, drive, part, left, damping, frequency, self.thresholds)
        return BankState(signals.held, signals.held_known, at, pools)

    def _gaps(
        self, times: Tensor | None, at: Tensor, lengths: Tensor | None
    ) -> tuple[Tensor | None, Tensor]:
        """Return usual gaps before every sample, or None for one each; and the time at the end."""
        if times is None:
            return None, at
        stamps = times.double()
        gaps = torch.diff(stamps, dim=0, prepend=at.unsqueeze(0)) / self.gap
        if lengths is None:
            return gaps, stamps[-1]
        last = (lengths - 1).clamp_min(0).unsqueeze(0)
        return gaps, torch.where(lengths > 0, stamps.gather(0, last).squeeze(0), at)

    def responses(
        self, x: Tensor, times: Tensor | None, observed: Tensor | None, chosen: Tensor
    ) -> Tensor:
        """Return y of some oscillators at every sample of one sequence, (time, chosen).

        Args:
            x: (time, 1, channels).
            times: (time, 1), as `run` takes them.
            observed: (time, 1, channels).
            chosen: Numbers of oscillators.
        """
        state = self.empty_state(1)
        signals = self.signals(x, observed, state, None)
        drive = self.standard(signals)[:, 0] @ self.drivers[chosen].T
        gaps, _ = self._gaps(times, state.time, None)
        steps = drive.new_ones(len(x)) if gaps is None else gaps[:, 0].to(drive.dtype)
        damping, frequency = (rate[chosen].to(x.dtype) for rate in self.rates())
        real = imaginary = drive.new_zeros(len(chosen))
        heard = []
        for u, gap in zip(drive, steps, strict=True):
            real, imaginary = turned(real, imaginary, gap, damping, frequency)
            real = real + u
            heard.append(real)
        return torch.stack(heard)


def _draw_drivers(oscillators: int, signals: int) -> Tensor:
    """Return who is driven by what, (oscillators, signals): one to a few signals, with signs."""
    most = min(signals, _MOST_DRIVERS)
    numbers = torch.exp(torch.rand(oscillators) * math.log(most)).long().clamp(1, signals)
    order = torch.rand(oscillators, signals).argsort(1).argsort(1)
    chosen = order < numbers.unsqueeze(1)
    signs = torch.randint(2, (oscillators, signals)) * 2.0 - 1.0
    return chosen * signs / numbers.sqrt().unsqueeze(1)
